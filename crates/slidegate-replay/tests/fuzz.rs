//! Any bytes as an access log.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Cursor;

use serde_json::Value;
use slidegate::{Policies, Policy, Quota, Source};
use slidegate_replay::{AccessLog, AccessLogFormat, FormatChoice, Replay, RuleSet};
use slidegate_tower::{AddressSource, ClientAddress};

use AccessLogFormat::{
    Alb, Audit, Caddy, Combined, Common, Csv, Envoy, Json, Slidegate, TraefikJson,
};

/// By the first line of an input, which is not a part of the log. Any other line is.
const FORMATS: [(&[u8], AccessLogFormat); 10] = [
    (b"#combined", Combined),
    (b"#common", Common),
    (b"#caddy", Caddy),
    (b"#traefik-json", TraefikJson),
    (b"#envoy", Envoy),
    (b"#alb", Alb),
    (b"#slidegate", Slidegate),
    (b"#audit", Audit),
    (b"#csv", Csv),
    (b"#json", Json),
];

/// A template as nginx's `log_format` has it, after this.
const TEMPLATE: &[u8] = b"#template ";

fn format_and_log(input: &[u8]) -> (FormatChoice, &[u8]) {
    let (first, log) = match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &b""[..]),
    };
    if let Some((_, format)) = FORMATS.iter().find(|(name, _)| *name == first) {
        return (FormatChoice::Named(*format), log);
    }
    match first.strip_prefix(TEMPLATE) {
        Some(text) => (FormatChoice::Template(String::from_utf8_lossy(text).into_owned()), log),
        None => (FormatChoice::Detected, input),
    }
}

fn rules() -> RuleSet {
    let one = Policy::new("api")
        .identity([Source::User, Source::ApiKey, Source::ip()])
        .quota(Quota::per_minute(1));
    let all = Policy::new("all").path("/a/{*rest}").quota(Quota::per_second(3));
    let policies = Policies::builder().policy(one).policy(all).build().unwrap();
    let client_address =
        ClientAddress::new(AddressSource::XForwardedFor, ["10.0.0.0/8".parse().unwrap()]);
    RuleSet { policies, client_address }
}

#[test]
fn log() {
    slidegate_fuzz::check("log", |input| {
        let (format, log) = format_and_log(input);
        let lines = log.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.trim_ascii().is_empty()).count() as u64;
        let replay = Replay::new("rules.toml", rules()).format(format);
        let log = AccessLog::new("access.log", Cursor::new(log.to_vec()));
        let Ok(report) = replay.run([log], |_| {}) else { return };
        let shown = serde_json::to_value(&report).unwrap();
        let count = |name: &str| shown[name].as_u64().unwrap_or_else(|| panic!("{name}: {shown}"));

        // No line is lost: the header of CSV is the only one that is not counted.
        let known =
            count("requests") + count("bad_lines") + count("other_lines") + count("late_lines");
        assert_eq!(count("lines"), known, "{shown}");
        let is_plain = shown["cut_short"] == Value::Array(Vec::new()) && !is_compressed(input);
        assert!(!is_plain || [lines, lines.saturating_sub(1)].contains(&count("lines")), "{shown}");
        let bad = shown["first_bad_lines"].as_array().unwrap();
        assert_eq!(bad.len() as u64, count("bad_lines").min(5), "{shown}");
        assert!(count("refused") + count("bad_requests") <= count("requests"), "{shown}");
        let _ = report.to_html();
        check_text(&report.to_text(100));
    });
}

/// What is shown of a log cannot move the cursor: there are no escapes but those of colours.
fn check_text(text: &str) {
    let (first, styled) = text.split_once('\x1b').unwrap_or((text, "[0m"));
    for part in styled.split('\x1b').map(|part| part.split_once('m')) {
        let (style, shown) = part.unwrap_or_else(|| panic!("{text:?}"));
        let is_colour = style.strip_prefix('[').is_some_and(|style| style.parse::<u8>().is_ok());
        assert!(is_colour && !shown.contains(is_bad), "{text:?}");
    }
    assert!(!first.contains(is_bad), "{text:?}");
}

fn is_bad(c: char) -> bool {
    c.is_control() && c != '\n'
}

/// Whether a log may be one of gzip or zstd, whose lines are others.
fn is_compressed(input: &[u8]) -> bool {
    [&b"\x1f\x8b"[..], b"\x28\xb5\x2f\xfd"].iter().any(|magic| {
        let (_, log) = format_and_log(input);
        log.starts_with(magic)
    })
}
