//! Accounts in memory that outlive the process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use slidegate_testbed::{Directory, Gateway, GatewayOptions, Upstream, wait_until};

use crate::{configure, options};

fn setup(upstream: &Upstream, file: &Path, every: &str) -> GatewayOptions {
    let every = if every.is_empty() { String::new() } else { format!(", every = {every:?}") };
    configure(upstream)
        .policy("api", "5/h", "match = { path = \"/shared\" }")
        .policy("guard", "3/h", "match = { path = \"/local\" }\nscope = \"local\"")
        .tables(&format!("[store]\nsnapshot = {{ file = {file:?}{every} }}"))
}

/// How many of the next requests pass before one is refused.
fn allowed(gateway: &Gateway, path: &str) -> usize {
    let mut wire = gateway.wire();
    (0..10).take_while(|_| wire.get(path, "").status() == 200).count()
}

fn saved(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric("slidegate_snapshots_total", outcome)
}

#[test]
fn what_was_spent_is_known_after_a_restart() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("accounts");
    let setup = setup(&upstream, &file, "");
    let first = setup.start();
    wait_until("the line in the log", || first.output().contains("no snapshot at"));
    assert_eq!((first.status("/shared"), first.status("/shared")), (200, 200));
    assert_eq!(allowed(&first, "/local"), 3);
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0), "{}", first.output());
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = setup.start();
    assert_eq!((allowed(&second, "/shared"), allowed(&second, "/local")), (3, 0));
    second.signal("TERM");
    assert_eq!(second.wait(), Some(0));
    assert_eq!(allowed(&setup.start(), "/shared"), 0);
}

#[test]
fn a_killed_process_has_saved_what_was_spent_before() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("accounts");
    let setup = setup(&upstream, &file, "100ms");
    let gateway = setup.start();
    assert_eq!((allowed(&gateway, "/shared"), allowed(&gateway, "/local")), (5, 3));
    let before = saved(&gateway, "ok");
    // The one after next has begun since.
    wait_until("two more", || saved(&gateway, "ok") >= before + 2.0);
    gateway.signal("KILL");
    assert_eq!(gateway.wait(), None);
    let gateway = setup.start();
    assert_eq!((allowed(&gateway, "/shared"), allowed(&gateway, "/local")), (0, 0));
}

#[test]
fn a_damaged_file_is_an_error_and_stays_as_it_is() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("accounts");
    let setup = setup(&upstream, &file, "");
    let first = setup.start();
    assert_eq!(allowed(&first, "/shared"), 5);
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    let good = fs::read(&file).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for bad in [&good[..good.len() - 1], &flipped, b"something else"] {
        fs::write(&file, bad).unwrap();
        let failed = options().configuration(&setup.text()).spawn();
        assert_eq!(failed.wait(), Some(1), "{}", failed.output());
        let output = failed.output();
        let named = file.display().to_string();
        for part in ["store.snapshot.file", &named, "move the file away"] {
            assert!(output.contains(part), "no {part} in {output}");
        }
        assert_eq!(fs::read(&file).unwrap(), bad);
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(allowed(&setup.start(), "/shared"), 5);
}

#[test]
fn a_snapshot_above_the_capacity_is_an_error_that_names_its_key() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let proxied = setup(&upstream, &directory.file("accounts"), "")
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("client_address", "\"x-real-ip\"");
    let first = proxied.start();
    for host in 1..=3 {
        let client = format!("X-Real-IP: 203.0.113.{host}\r\n");
        for path in ["/shared", "/local"] {
            assert_eq!(first.get(path, &client).status(), 200);
        }
    }
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    for (key, file) in [("capacity", "accounts:"), ("local_capacity", "accounts.local:")] {
        let text = proxied.text().replace("snapshot =", &format!("{key} = 2\nsnapshot ="));
        let failed = options().configuration(&text).spawn();
        assert_eq!(failed.wait(), Some(1), "{}", failed.output());
        let output = failed.output();
        assert!(output.contains(&format!("; raise store.{key}\n")), "{output}");
        assert!(output.contains(file), "{output}");
    }
}

#[test]
fn no_place_to_write_is_an_error_at_the_start() {
    let upstream = Upstream::simple();
    let text = setup(&upstream, Path::new("/nowhere/at/all/accounts"), "").text();
    let failed = options().configuration(&text).spawn();
    assert_eq!(failed.wait(), Some(1), "{}", failed.output());
    let output = failed.output();
    assert!(output.contains("cannot write /nowhere/at/all/accounts: No such file"), "{output}");
}

#[test]
fn a_failed_save_is_logged_and_counted_and_harms_no_request() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let folder = directory.file("folder");
    fs::create_dir(&folder).unwrap();
    let gateway = setup(&upstream, &folder.join("accounts"), "50ms").start();
    wait_until("one that is well", || saved(&gateway, "ok") >= 1.0);
    fs::remove_dir_all(&folder).unwrap();
    wait_until("one that is not", || saved(&gateway, "failed") >= 1.0);
    assert_eq!(gateway.status("/shared"), 200);
    wait_until("the error to be logged", || gateway.output().contains("cannot save the snapshot"));
    let before = saved(&gateway, "ok");
    fs::create_dir(&folder).unwrap();
    wait_until("one that is well again", || saved(&gateway, "ok") > before);
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
}
