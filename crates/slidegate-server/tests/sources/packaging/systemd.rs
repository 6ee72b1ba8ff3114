//! The unit: its command lines, with the real program in the place where they have it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use slidegate_testbed::{Directory, Gateway, SlidegateOptions, Upstream, wait_until};

use super::{check, drain_s, path, read};
use crate::options;

const PROGRAM: &str = "/usr/bin/slidegate";
const FILE: &str = "/etc/slidegate/slidegate.toml";
const STATE: &str = "/var/lib/slidegate";

/// The values of a key, in the order of the file.
fn values(key: &str) -> Vec<String> {
    let unit = read("packaging/slidegate.service");
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(found, _)| *found == key).map(|(_, value)| value.to_owned()).collect()
}

fn value(key: &str) -> String {
    let mut values = values(key);
    assert_eq!(values.len(), 1, "{key}: {values:?}");
    values.remove(0)
}

/// The words of a command line of the program, after its own name.
fn arguments(key: &str) -> Vec<String> {
    let line = value(key);
    let mut words = line.split(' ').map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some(PROGRAM), "{key}");
    words.collect()
}

/// The packaged configuration, with its snapshot in a place of the test.
fn configuration(directory: &Directory) -> String {
    let text = read("packaging/slidegate.toml");
    assert!(text.contains(&format!("{STATE}/accounts")), "the snapshot is in the state directory");
    text.replace(STATE, directory.file("state").to_str().unwrap())
}

/// The program as the unit starts it, but for where it listens and where its files are.
fn start(directory: &Directory, upstream: &Upstream) -> Gateway {
    let words = arguments("ExecStart");
    let [serve, config, file] = &words[..] else { panic!("{words:?}") };
    assert_eq!([serve, config, file], ["serve", "--config", FILE]);
    let url = upstream.url();
    let flags = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url];
    let options = options().configuration(&configuration(directory));
    Gateway::from(flags.into_iter().fold(options, SlidegateOptions::argument).start())
}

#[test]
fn a_unit_checks_the_file_before_it_starts() {
    check(&path("packaging/slidegate.toml"));
    let directory = Directory::new();
    // As StateDirectory does before any command of the unit.
    fs::create_dir(directory.file("state")).unwrap();
    let file = directory.file("slidegate.toml");
    for (text, code) in [(configuration(&directory).as_str(), 0), ("profile = 'loud'", 1)] {
        fs::write(&file, text).unwrap();
        let words = arguments("ExecStartPre").into_iter();
        let words = words.map(|word| word.replace(FILE, file.to_str().unwrap()));
        let status = Command::new(env!("CARGO_BIN_EXE_slidegate")).args(words).output().unwrap();
        assert_eq!(status.status.code(), Some(code), "{text}");
    }
}

#[test]
fn a_unit_starts_reloads_stops_and_remembers() {
    let (directory, upstream) = (Directory::new(), Upstream::simple());
    fs::create_dir(directory.file("state")).unwrap();
    let gateway = start(&directory, &upstream);
    let remaining =
        |gateway: &Gateway| gateway.get("/", "").value("x-ratelimit-remaining").unwrap();
    assert_eq!(remaining(&gateway), "99");

    let reload = value("ExecReload");
    let reload = reload.strip_prefix("/bin/sh -c \"").and_then(|rest| rest.strip_suffix('"'));
    let signal = reload.expect("a signal").replace("$MAINPID", &gateway.pid().to_string());
    assert!(Command::new("sh").args(["-c", &signal]).status().unwrap().success());
    wait_until("it to read the file again", || {
        gateway.metric("slidegate_config_reloads_total", "outcome=\"ok\"") > 0.0
    });
    assert_eq!(remaining(&gateway), "98");

    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0), "on-failure would start it again otherwise");
    assert_eq!(remaining(&start(&directory, &upstream)), "97");
}

/// systemd-analyze needs no running systemd.
#[test]
fn systemd_reads_the_unit_without_a_warning_and_finds_it_confined() {
    let directory = Directory::new();
    let unit = read("packaging/slidegate.service").replace(PROGRAM, crate::PROGRAM);
    let file = directory.write("slidegate.service", &unit);
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        let output = command.args(arguments).arg(&file).output().expect("apt-get install systemd");
        // It also warns of what this machine's own units lack.
        let errors = String::from_utf8(output.stderr).unwrap();
        let about_ours =
            errors.lines().filter(|line| line.contains("slidegate")).collect::<String>();
        (output.status.success(), about_ours)
    };
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(analyze(&["verify"]), (true, String::new()));
    // From 0, nothing is exposed, to 10; in tenths. A service that sets nothing has 9.6.
    assert_eq!(analyze(&["security", "--offline=true", "--threshold=20"]), (true, String::new()));
}

#[test]
fn what_a_unit_says_of_the_program_is_true() {
    let seconds = |key: &str| value(key).trim_end_matches('s').parse::<u64>().unwrap();
    assert!(seconds("TimeoutStopSec") > drain_s(), "requests in flight are finished first");
    // What it reports is seen in gateway/systemd.rs.
    assert_eq!(value("Type"), "notify");
    assert!(
        seconds("WatchdogSec") >= 10,
        "longer than a thread of a busy machine waits for its turn"
    );
    assert_eq!(format!("/var/lib/{}", value("StateDirectory")), STATE);
    // 10,000 clients and 10,000 requests on their way are the program's own bounds.
    assert!(value("LimitNOFILE").parse::<u32>().unwrap() > 20_000);
    let variables = value("EnvironmentFile");
    assert!(variables.starts_with("-/etc/slidegate/"), "it need not be there: {variables}");
}
