//! Overrides and the process's lives, without Redis.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Front, Place, Setup, Upstream, options};
use crate::terminal::{Operator, for_many_clients, passes};

fn setup(upstream: &Upstream, place: &Place) -> Setup {
    let file = place.path("accounts");
    for_many_clients(upstream)
        .policy("api", "100/h", "")
        .tables(&format!("[store]\nsnapshot = {{ file = {file:?} }}"))
}

fn ban(front: &Front) {
    Operator::of(front).run(&["ban", "10.0.0.1", "--for", "1h", "--reason", "a test"]);
}

#[test]
fn overrides_outlive_a_process_that_saves_its_accounts_even_if_it_is_killed() {
    let (upstream, place) = (Upstream::simple(), Place::new());
    let setup = setup(&upstream, &place);
    let first = setup.start();
    ban(&first);
    assert!(!passes(&first, "10.0.0.1"));
    first.signal("KILL");
    assert_eq!(first.wait(), None);
    let mode = fs::metadata(place.path("accounts.overrides")).unwrap().permissions().mode();
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
fn without_a_snapshot_they_end_with_the_process() {
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
    let front = setup.start();
    ban(&front);
    front.reconfigure(&setup.text().replace("100/h", "50/h"));
    front.signal("HUP");
    crate::support::wait_until("the reload", || {
        front.metric("slidegate_config_reloads_total", "ok") >= 1.0
    });
    assert!(!passes(&front, "10.0.0.1") && passes(&front, "10.0.0.2"));
}

#[test]
fn a_damaged_file_is_an_error_at_the_start_and_a_full_disk_one_for_the_operator() {
    let (upstream, place) = (Upstream::simple(), Place::new());
    let setup = setup(&upstream, &place);
    fs::write(place.path("accounts.overrides"), "half a fi").unwrap();
    let failed = options().configuration(&setup.text()).spawn();
    assert_eq!(failed.wait(), Some(1), "{}", failed.output());
    assert!(
        failed.output().contains("accounts.overrides; move the file away"),
        "{}",
        failed.output()
    );
    fs::remove_file(place.path("accounts.overrides")).unwrap();
    let front = setup.start();
    // A directory in the file's place can be neither written nor removed as a file.
    fs::create_dir(place.path("accounts.overrides.new")).unwrap();
    let operator = Operator::of(&front);
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
    assert!(passes(&front, "10.0.0.1"), "it is not done");
    fs::remove_dir(place.path("accounts.overrides.new")).unwrap();
    ban(&front);
    assert!(!passes(&front, "10.0.0.1"));
}
