//! Files: compressed, merged, broken and out of order.

use std::io::Write;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Files, ONE_A_MINUTE, combined, log_at};
use crate::run_with;

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn several_logs_are_merged_by_time_compressed_or_not() {
    let files = Files::with_config("[[policy]]\nname = \"api\"\nquotas = [\"2/min\"]\n");
    let client = "203.0.113.7";
    // Together a request every ten seconds: two of three are refused, whichever file they are in.
    files.write("a.log", log_at(client, &[0, 30, 60, 90, 120]));
    files.write("b.log.gz", gzip(&log_at(client, &[10, 40, 70, 100])));
    // Two frames: seconds 20 and 50, and seconds 80 and 110.
    files.write("c.log.zst", include_bytes!("two-frames.log.zst"));
    let report = files.json(&["c.log.zst", "a.log", "b.log.gz"]);
    assert_eq!((report["requests"].as_u64(), report["refused"].as_u64()), (Some(13), Some(8)));
    assert_eq!(report["late_lines"], 0);
    assert_eq!(report["first"], "2026-10-10T13:00:00.000Z");
    assert_eq!(report["policies"][0]["quotas"][0]["never_refused"]["all"], 6);

    // One file after the other is the same, as long as the buffer can sort it.
    let concatenated = [gzip(&log_at(client, &[0, 10, 20])), gzip(&log_at(client, &[30, 5]))];
    files.write("d.log.gz", concatenated.concat());
    let report = files.json(&["d.log.gz"]);
    assert_eq!((report["requests"].as_u64(), report["late_lines"].as_u64()), (Some(5), Some(0)));
}

#[test]
fn standard_input_is_a_log_or_the_configuration_but_not_both() {
    let files = Files::with_config(ONE_A_MINUTE);
    let candidate = files.path("candidate.toml").display().to_string();
    let log = log_at("203.0.113.7", &[0, 1, 2]);
    let output = run_with(&log, &["replay", "--config", &candidate, "-"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("2 of 3 requests would be refused (66.7%)"), "{text}");
    assert!(text.contains("standard input"), "{text}");
    files.write("access.log", &log);
    let path = files.path("access.log").display().to_string();
    let output = run_with(ONE_A_MINUTE, &["replay", "--config", "-", &path]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("2 of 3 requests"));
    let output = run_with("", &["replay", "--config", "-", "-"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("more than once"));
}

#[test]
fn bad_lines_are_counted_and_the_first_shown_without_secrets() {
    let files = Files::with_config(ONE_A_MINUTE);
    let mut log = log_at("203.0.113.7", &[0, 1]);
    log += &combined("203.0.113.7", 2, r"\x16\x03\x01");
    log += "\n  \n";
    log += &combined("client.example", 3, "GET / HTTP/1.1");
    log += "203.0.113.7 - - [32/Oct/2026:13:00:00 +0000] \"GET /x?token=hunter2 HTTP/1.1\" 200 1 \"-\" \"-\"\n";
    log += "\x1b[31mnonsense\n";
    log += &format!("{}\n", "x".repeat(100_000));
    for _ in 0..3 {
        log += "more\n";
    }
    log += &combined("203.0.113.7", 4, "GET / HTTP/1.1");
    files.write("access.log", &log);
    let report = files.json(&["access.log"]);
    assert_eq!(report["requests"], 3);
    assert_eq!((report["lines"].as_u64(), report["bad_lines"].as_u64()), (Some(11), Some(8)));
    let text = files.text(&["access.log"]);
    for expected in [
        "bad lines, which were left out: 8",
        "access.log:3: expected a request such as GET / HTTP/1.1: 203.0.113.7 - - [10/Oct/2026",
        "access.log:6: expected a client's address such as 203.0.113.7: client.example",
        "access.log:7: expected a time from 1970 to 2554, such as 10/Oct/2026",
        "access.log:8: expected 6 fields, as the format has: \u{fffd}[31mnonsense",
        "access.log:9: expected at most 65536 bytes: xxx",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("access.log:10"), "only the first few: {text}");
    assert!(!text.contains("hunter2") && !text.contains('\x1b'), "{text}");
}

#[test]
fn a_stray_quote_spoils_one_line_of_csv_and_unmapped_columns_are_not_shown() {
    let files = Files::with_config(ONE_A_MINUTE);
    let mut log = "time,client,path,session\n".to_owned();
    for (second, client) in [(0, "203.0.113.7"), (1, "\"203.0.113.7"), (2, "203.0.113.7")] {
        log += &format!("2026-10-10T13:00:0{second}Z,{client},/,hunter2\n");
    }
    files.write("requests.csv", &log);
    let report = files.json(&["requests.csv"]);
    assert_eq!((&report["requests"], &report["bad_lines"]), (&2.into(), &1.into()), "{report}");
    let text = files.text(&["requests.csv"]);
    assert!(text.contains("requests.csv:3: ") && !text.contains("hunter2"), "{text}");

    let format = "$remote_addr [$time_iso8601] \"$request\" $http_x_session";
    files.write("access.log", "203.0.113.7 [soon] \"GET / HTTP/1.1\" hunter2\n");
    let text = files.text(&["--log-format", format, "access.log"]);
    assert!(text.contains("access.log:1: ") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_replay_on_a_terminal_shows_progress_and_time_left() {
    let files = Files::with_config(ONE_A_MINUTE);
    files.write("access.log", log_at("203.0.113.7", &[0; 200_000]));
    let replay =
        format!("'{}' replay --config candidate.toml access.log", env!("CARGO_BIN_EXE_slidegate"));
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &replay, "/dev/null"]).current_dir(files.path(""));
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("script: {error}; apt-get install bsdutils"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("░") && text.contains("s left"), "{text}");
    assert!(text.contains("199,999 of 200,000 requests"), "and the result behind it: {text}");
}

#[test]
fn lines_out_of_order_are_sorted_and_those_too_late_are_counted() {
    let files = Files::with_config(ONE_A_MINUTE);
    // The second line is late by one, which the buffer mends: 10 is refused after 0, and 60 is not.
    files.write("access.log", log_at("203.0.113.7", &[10, 0, 60]));
    let report = files.json(&["access.log"]);
    assert_eq!((report["refused"].as_u64(), report["late_lines"].as_u64()), (Some(1), Some(0)));
    assert_eq!(report["first"], "2026-10-10T13:00:00.000Z");

    // More lines than the buffer has are between the first two and the last.
    let mut log = log_at("203.0.113.7", &[0, 1]);
    log += &log_at("198.51.100.1", &vec![2; 9000]);
    log += &log_at("203.0.113.7", &[1]);
    files.write("access.log", log);
    let report = files.json(&["access.log"]);
    assert_eq!((report["requests"].as_u64(), report["late_lines"].as_u64()), (Some(9002), Some(1)));
    let text = files.text(&["access.log"]);
    assert!(text.contains("lines that came too late to be sorted, and were left out: 1"), "{text}");
}

#[test]
fn empty_broken_and_missing_logs_are_reported() {
    let files = Files::with_config(ONE_A_MINUTE);
    files.write("empty.log", "");
    assert!(files.text(&["empty.log"]).contains("no requests"));
    assert_eq!(files.json(&["empty.log", "--html", "empty.html"])["requests"], 0);
    assert!(files.read("empty.html").contains("no requests"));
    let error = files.failure(1, &["empty.log", "missing.log"]);
    assert!(error.contains("missing.log cannot be read"), "{error}");

    let error = files.failure(1, &["."]);
    assert!(error.contains(". cannot be read"), "{error}");

    // A file that is still being written, or was cut, whether it is long or short.
    for lines in [500, 3000] {
        let lines = 0..lines;
        let log: String =
            lines.clone().map(|i| log_at(&format!("198.51.{}.7", i % 250), &[i])).collect();
        let whole = gzip(&log);
        files.write("cut.log.gz", &whole[..whole.len() / 2]);
        let report = files.json(&["cut.log.gz"]);
        let requests = report["requests"].as_u64().unwrap();
        assert!((100..u64::from(lines.end)).contains(&requests), "{requests}");
        assert!(report["cut_short"][0].as_str().unwrap().starts_with("cut.log.gz: "), "{report}");
    }
}
