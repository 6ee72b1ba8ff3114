//! Overrides across restarts of the process, without Redis.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use slidegate_testbed::{Directory, Gateway, GatewayOptions, Upstream, wait_until};

use crate::options;
use crate::terminal::{Operator, for_many_clients, passes};

fn setup(upstream: &Upstream, directory: &Directory) -> GatewayOptions {
    let file = directory.file("accounts");
    for_many_clients(upstream)
        .policy("api", "100/h", "")
        .tables(&format!("[store]\nsnapshot = {{ file = {file:?} }}"))
}

fn ban(gateway: &Gateway) {
    Operator::of(gateway).run(&["ban", "10.0.0.1", "--for", "1h", "--reason", "a test"]);
}

#[test]
fn overrides_outlive_a_process_that_saves_its_accounts_even_if_it_is_killed() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let setup = setup(&upstream, &directory);
    let first = setup.start();
    ban(&first);
    assert!(!passes(&first, "10.0.0.1"));
    first.signal("KILL");
    assert_eq!(first.wait(), None);
    let mode = fs::metadata(directory.file("accounts.overrides")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = setup.start();
    assert!(!passes(&second, "10.0.0.1") && passes(&second, "10.0.0.2"));
    let operator = Operator::of(&second);
    let [id] = &operator.overrides()[..] else { panic!("one override") };
    operator.run(&["lift", id, "--reason", "over"]);
    second.signal("TERM");
    assert_eq!(second.wait(), Some(0));
    assert!(passes(&setup.start(), "10.0.0.1"));
}

#[test]
fn without_a_snapshot_overrides_end_with_the_process() {
    let upstream = Upstream::simple();
    let setup = for_many_clients(&upstream).policy("api", "100/h", "");
    let first = setup.start();
    ban(&first);
    assert!(!passes(&first, "10.0.0.1"));
    drop(first);
    assert!(passes(&setup.start(), "10.0.0.1"));
}

#[test]
fn a_reload_changes_no_override() {
    let upstream = Upstream::simple();
    let setup = for_many_clients(&upstream).policy("api", "100/h", "");
    let gateway = setup.start();
    ban(&gateway);
    gateway.reconfigure(&setup.text().replace("100/h", "50/h"));
    gateway.signal("HUP");
    wait_until("the reload", || gateway.metric("slidegate_config_reloads_total", "ok") >= 1.0);
    assert!(!passes(&gateway, "10.0.0.1") && passes(&gateway, "10.0.0.2"));
}

#[test]
fn a_damaged_file_is_an_error_at_the_start_and_a_full_disk_one_for_the_operator() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let setup = setup(&upstream, &directory);
    fs::write(directory.file("accounts.overrides"), "half a fi").unwrap();
    let failed = options().configuration(&setup.text()).spawn();
    assert_eq!(failed.wait(), Some(1), "{}", failed.output());
    assert!(
        failed.output().contains("accounts.overrides; move the file away"),
        "{}",
        failed.output()
    );
    fs::remove_file(directory.file("accounts.overrides")).unwrap();
    let gateway = setup.start();
    // A directory in the file's place can be neither written nor removed as a file.
    fs::create_dir(directory.file("accounts.overrides.new")).unwrap();
    let operator = Operator::of(&gateway);
    let (status, problem) = operator.ask(
        "POST",
        "/v1/accounts/ip:10.0.0.1/ban",
        "{\"for\":\"1h\",\"reason\":\"a test\"}",
    );
    assert_eq!(status, 503, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("cannot write the file of overrides; nothing was changed: cannot write"),
        "{detail}"
    );
    assert!(passes(&gateway, "10.0.0.1"), "it is not done");
    fs::remove_dir(directory.file("accounts.overrides.new")).unwrap();
    ban(&gateway);
    assert!(!passes(&gateway, "10.0.0.1"));
}
