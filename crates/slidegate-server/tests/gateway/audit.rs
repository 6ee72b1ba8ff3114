//! The audit trail of known traffic.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use slidegate_testbed::http1::response;
use slidegate_testbed::{Directory, Gateway, GatewayOptions, Upstream, assert_no_hang, wait_until};

use crate::{configure, options};

fn audited(upstream: &Upstream, file: &Path, keys: &str) -> GatewayOptions {
    configure(upstream)
        .policy("api", "2/h", "identity = [\"api-key\", \"ip\"]")
        .tables("[blocked]\npaths = [\"/blocked\"]")
        .tables(&format!("[audit]\nfile = {file:?}\n{keys}"))
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn events(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["event"].as_str().expect("every line has an event")).collect()
}

fn stop(gateway: &Gateway) {
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0), "{}", gateway.output());
}

fn dropped(gateway: &Gateway) -> f64 {
    gateway.metric("slidegate_audit_dropped_total", "")
}

#[test]
fn an_audit_trail_has_refusals_and_changes() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("audit.jsonl");
    let setup = audited(&upstream, &file, "");
    let gateway = setup.start();
    let long = format!("/{}?token=hunter2", "x".repeat(1000));
    for _ in 0..4 {
        gateway.get(&long, "X-API-Key: sk-secret\r\n");
    }
    assert_eq!(gateway.status("/blocked"), 403);
    gateway.reconfigure(&setup.text().replace("2/h", "3/h"));
    gateway.signal("HUP");
    wait_until("the reload", || events(&lines(&file)).contains(&"reload"));
    stop(&gateway);
    let lines = lines(&file);
    assert_eq!(
        events(&lines),
        ["start", "decision", "decision", "decision", "reload", "stop"],
        "{lines:#?}"
    );
    assert_eq!(lines[0]["in_force"], serde_json::json!(["api"]));
    assert_eq!(lines[4]["changes"], serde_json::json!(["policy api: quotas 2/h -> 3/h"]));
    let denial = &lines[1];
    for (field, value) in [
        ("listener", "gateway"),
        ("method", "GET"),
        ("path", &long[..200]),
        ("client", "127.0.0.1"),
        ("verdict", "deny"),
    ] {
        assert_eq!(denial[field], value, "{field} of {denial}");
    }
    let time = denial["time"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 24, "{time}");
    let policy = &denial["policies"][0];
    assert_eq!((&policy["policy"], &policy["quotas"][0]["quota"]), (&"api".into(), &"2/h".into()));
    assert_eq!(policy["quotas"][0]["remaining"], 0);
    assert!(policy["identity"].as_str().unwrap().starts_with("api-key:"), "{policy}");
    for wait in [&denial["retry_after_ms"], &policy["quotas"][0]["retry_after_ms"]] {
        assert!((3_000_000..=3_600_000).contains(&wait.as_u64().unwrap()), "{wait}");
    }
    assert_eq!((&lines[3]["verdict"], &lines[3]["reason"]), (&"block".into(), &"listed".into()));
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("sk-secret"), "{text}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_reload_that_fails_is_in_the_trail_with_all_that_is_wrong() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("audit.jsonl");
    let setup = audited(&upstream, &file, "");
    let gateway = setup.start();
    let reloads = || {
        let mut lines = lines(&file);
        lines.retain(|line| line["event"] == "reload");
        lines
    };
    gateway
        .reconfigure(&setup.text().replace("2/h", "2/fortnight").replace("[blocked]", "[bloked]"));
    gateway.signal("HUP");
    wait_until("the failure", || reloads().len() == 1);
    let failed = &reloads()[0];
    assert_eq!(failed["outcome"], "failed", "{failed}");
    assert_eq!(failed["in_force"], serde_json::json!(["api"]));
    let problems: Vec<&str> =
        failed["problems"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(problems.len(), 2, "{failed}");
    assert!(problems.iter().any(|text| text.contains("2/fortnight")), "{failed}");
    assert!(problems.iter().any(|text| text.contains("bloked")), "{failed}");
    assert!(failed.get("changes").is_none(), "{failed}");
    gateway.reconfigure(&setup.text().replace("2/h", "3/h"));
    wait_until("the reload", || reloads().len() == 2);
    assert_eq!(reloads()[1]["outcome"], "done");
}

#[test]
fn every_decision_is_in_the_trail_if_wanted_and_none_is_lost_at_the_end() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("audit.jsonl");
    let gateway = audited(&upstream, &file, "every_decision = true").start();
    let mut wire = gateway.wire();
    (0..300).for_each(|_| drop(wire.get("/", "")));
    drop(wire);
    stop(&gateway);
    let lines = lines(&file);
    let count = |verdict: &str| lines.iter().filter(|line| line["verdict"] == verdict).count();
    assert_eq!((count("allow"), count("deny"), lines.len()), (2, 298, 302));
}

#[test]
fn full_files_of_the_trail_are_rotated() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("audit.jsonl");
    let gateway = audited(&upstream, &file, "rotate_bytes = 4096\nkeep = 2").start();
    let mut wire = gateway.wire();
    (0..200).for_each(|_| drop(wire.get("/", "")));
    drop(wire);
    stop(&gateway);
    let numbered = |suffix: &str| PathBuf::from(format!("{}{suffix}", file.display()));
    for suffix in ["", ".1", ".2"] {
        assert!(!lines(&numbered(suffix)).is_empty(), "{suffix:?}");
        assert!(fs::metadata(numbered(suffix)).unwrap().len() <= 4096);
    }
    assert!(!numbered(".3").exists());
}

/// A pipe without a reader takes 64 KiB and then blocks; `/dev/full` fails every write.
#[test]
fn a_disk_that_takes_nothing_does_not_slow_requests_and_lost_records_are_counted() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let pipe = directory.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (file, requests) in [(pipe.as_path(), 9500), (Path::new("/dev/full"), 500)] {
        let gateway = audited(&upstream, file, "").start();
        let mut wire = gateway.wire();
        let mut slowest = Duration::ZERO;
        for _ in 0..requests {
            let began = Instant::now();
            wire.get("/", "");
            slowest = slowest.max(began.elapsed());
        }
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
        wait_until("the count", || dropped(&gateway) > 0.0);
        drop(wire);
        let began = Instant::now();
        stop(&gateway);
        assert_no_hang(began, Duration::from_secs(20));
    }
}

#[test]
fn a_trail_that_cannot_be_written_is_an_error_at_the_start() {
    let upstream = Upstream::simple();
    let text = audited(&upstream, Path::new("/nowhere/at/all.jsonl"), "").text();
    let failed = options().configuration(&text).spawn();
    assert_eq!(failed.wait(), Some(1), "{}", failed.output());
    let output = failed.output();
    assert!(output.contains("cannot write /nowhere/at/all.jsonl: No such file"), "{output}");
}

#[test]
fn what_a_response_says_about_the_cost_is_in_the_trail() {
    let upstream = Upstream::answering(|request| match request.target() {
        "/cheap" => response("200 OK", "X-Cost: 3\r\n", ""),
        "/dear" => response("200 OK", "X-Cost: 900\r\n", ""),
        _ => response("200 OK", "", ""),
    });
    let directory = Directory::new();
    let file = directory.path().join("audit.jsonl");
    let gateway = configure(&upstream)
        .policy("queries", "1000/h", "cost = { response_header = \"x-cost\", hold = 50 }")
        .tables(&format!("[audit]\nfile = {file:?}\nevery_decision = true"))
        .start();
    for path in ["/cheap", "/dear", "/silent"] {
        assert_eq!(gateway.status(path), 200);
    }
    stop(&gateway);
    let lines = lines(&file);
    let settled: Vec<&Value> = lines.iter().filter(|line| line["event"] == "settlement").collect();
    let units: Vec<_> = settled.iter().map(|line| line["units"].as_u64().unwrap()).collect();
    assert_eq!(units, [3, 900], "what costs as much as was held has no line: {lines:?}");
    for line in settled {
        assert_eq!((&line["source"], &line["outcome"]), (&"response".into(), &"done".into()));
        assert_eq!(line["policies"][0]["policy"], "queries");
        assert_eq!(line["policies"][0]["held"], 50);
    }
}
