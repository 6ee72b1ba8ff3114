//! What the headers say, in every dialect, and beside headers that are there already.

use std::time::Duration;

use crate::support::{Scripted, decide, field, gate, policies};
use http::{HeaderMap, HeaderName};
use slidegate::{Ban, Gate, ManualClock, Policy, Quota, Scope, Timestamp};
use slidegate_tower::{Dialect, Headers, Responder};

const SECOND: Duration = Duration::from_secs(1);

/// Midnight of the first day of 2026, where a `ManualClock` starts.
const MIDNIGHT: u64 = 1_767_225_600;

fn fields(headers: &Headers, gate: &Gate) -> HeaderMap {
    let mut map = HeaderMap::new();
    headers.write(&decide(gate).unwrap(), &mut map);
    map
}

fn lines(map: &HeaderMap) -> Vec<String> {
    map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
}

#[test]
fn each_dialect_has_its_fields_on_the_wire() {
    let minute_and_day =
        || Policy::new("api").quota(Quota::per_minute(60)).quota(Quota::per_day(1000));
    for (dialect, expected) in [
        (
            Dialect::Draft11,
            vec![
                r#"ratelimit-policy: "api/60s";q=60;w=60, "api/86400s";q=1000;w=86400"#,
                r#"ratelimit: "api/60s";r=59;t=60, "api/86400s";r=999;t=86400"#,
            ],
        ),
        (
            Dialect::Draft07,
            vec![
                "ratelimit-policy: 60;w=60, 1000;w=86400",
                "ratelimit: limit=60, remaining=59, reset=60",
            ],
        ),
        (
            Dialect::Draft06,
            vec![
                "ratelimit-policy: 60;w=60, 1000;w=86400",
                "ratelimit-limit: 60",
                "ratelimit-remaining: 59",
                "ratelimit-reset: 60",
            ],
        ),
        (
            Dialect::XRateLimit,
            vec![
                "x-ratelimit-limit: 60",
                "x-ratelimit-remaining: 59",
                "x-ratelimit-reset: 1767225660",
            ],
        ),
        (
            Dialect::XRateLimitDelta,
            vec!["x-ratelimit-limit: 60", "x-ratelimit-remaining: 59", "x-ratelimit-reset: 60"],
        ),
    ] {
        let clock = ManualClock::default();
        let gate = gate(&clock, policies([minute_and_day()]));
        let headers = Headers::new([dialect]).clock(clock);
        assert_eq!(lines(&fields(&headers, &gate)), expected, "{dialect}");
        assert_eq!(dialect.to_string().parse(), Ok(dialect));
    }
    let error = "draft-99".parse::<Dialect>().unwrap_err().to_string();
    assert!(error.contains("draft-99") && error.contains("ietf-draft-11"), "{error}");
}

#[test]
fn by_default_headers_are_the_ietf_fields_and_x_ratelimit() {
    let clock = ManualClock::default();
    let gate = gate(&clock, policies([Policy::new("api").quota(Quota::per_minute(60))]));
    let names: Vec<String> =
        fields(&Headers::default(), &gate).keys().map(HeaderName::to_string).collect();
    assert_eq!(
        names,
        [
            "ratelimit-policy",
            "ratelimit",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset"
        ]
    );
    assert!(fields(&Headers::none(), &gate).is_empty());
}

#[test]
fn dialects_that_share_a_field_send_it_once() {
    let clock = ManualClock::default();
    let gate = gate(&clock, policies([Policy::new("api").quota(Quota::per_minute(60))]));
    let all = [
        Dialect::Draft11,
        Dialect::Draft07,
        Dialect::Draft06,
        Dialect::XRateLimitDelta,
        Dialect::XRateLimit,
    ];
    assert_eq!(
        lines(&fields(&Headers::new(all), &gate)),
        [
            r#"ratelimit-policy: "api";q=60;w=60"#,
            r#"ratelimit: "api";r=59;t=60"#,
            "ratelimit-limit: 60",
            "ratelimit-remaining: 59",
            "ratelimit-reset: 60",
            "x-ratelimit-limit: 60",
            "x-ratelimit-remaining: 59",
            "x-ratelimit-reset: 60",
        ]
    );
}

#[test]
fn values_follow_the_sliding_log() {
    let clock = ManualClock::default();
    let gate = gate(&clock, policies([Policy::new("api").quota(Quota::per_minute(3))]));
    let headers = Headers::default().clock(clock.clone());
    let ms = Duration::from_millis;
    for (advance, standing, reset) in [
        (ms(0), r#""api";r=2;t=60"#, MIDNIGHT + 60),
        (ms(20_500), r#""api";r=1;t=40"#, MIDNIGHT + 60),
        (ms(39_499), r#""api";r=0;t=1"#, MIDNIGHT + 60),
        // The first unit is free again, and is spent again; the second is free in 20.5 seconds.
        (ms(1), r#""api";r=0;t=21"#, MIDNIGHT + 81),
        (ms(0), r#""api";r=0;t=21"#, MIDNIGHT + 81),
    ] {
        clock.advance(advance);
        let map = fields(&headers, &gate);
        assert_eq!(field(&map, "ratelimit"), standing);
        assert_eq!(field(&map, "x-ratelimit-reset"), reset.to_string());
    }
}

#[test]
fn a_quota_that_nothing_is_spent_from_is_open_for_its_window() {
    let scripted = Scripted { spent: true, standings: vec![(5, Duration::ZERO, Duration::ZERO)] };
    let policies = policies([Policy::new("api").quota("5/90s")]);
    let gate = Gate::new(policies.build().unwrap(), scripted);
    let mut map = HeaderMap::new();
    Headers::new([Dialect::Draft11]).write(&decide(&gate).unwrap(), &mut map);
    assert_eq!(field(&map, "ratelimit"), r#""api";r=5;t=90"#);
}

#[test]
fn windows_are_whole_seconds_at_least_one_and_rounded_up() {
    let clock = ManualClock::default();
    let quotas = ["1/100ms", "9/1500ms", "20/2s"].map(|text| text.parse::<Quota>().unwrap());
    let policy = quotas.into_iter().fold(Policy::new("api"), Policy::quota);
    let gate = gate(&clock, policies([policy]));
    assert_eq!(
        field(&fields(&Headers::default(), &gate), "ratelimit-policy"),
        r#""api/100ms";q=1;w=1, "api/1500ms";q=9;w=2, "api/2s";q=20;w=2"#
    );
}

#[test]
fn a_denials_reset_is_not_before_the_request_would_fit() {
    let scripted = Scripted { spent: false, standings: vec![(2, 10 * SECOND, 35 * SECOND)] };
    let policies = policies([Policy::new("api").quota(Quota::per_minute(5))]);
    let gate = Gate::new(policies.build().unwrap(), scripted);
    let clock = ManualClock::new(Timestamp::from_millis(1500));
    let headers = Headers::new([Dialect::Draft11, Dialect::Draft06, Dialect::XRateLimit]);
    let mut map = HeaderMap::new();
    headers.clock(clock).write(&decide(&gate).unwrap(), &mut map);
    // Two units are left and one comes back in ten seconds, but the request needs more of them.
    assert_eq!(field(&map, "ratelimit"), r#""api";r=2;t=10"#);
    assert_eq!(field(&map, "ratelimit-reset"), "35");
    assert_eq!(field(&map, "x-ratelimit-reset"), "37", "1.5 and 35 seconds, rounded up");
}

#[test]
fn a_denial_that_begins_a_ban_has_a_reset_not_before_its_end() {
    for (dialect, name, expected) in [
        (Dialect::Draft07, "ratelimit", "limit=1, remaining=0, reset=600".to_owned()),
        (Dialect::Draft06, "ratelimit-reset", "600".to_owned()),
        (Dialect::XRateLimitDelta, "x-ratelimit-reset", "600".to_owned()),
        (Dialect::XRateLimit, "x-ratelimit-reset", (MIDNIGHT + 600).to_string()),
        // This one is about the quota alone.
        (Dialect::Draft11, "ratelimit", r#""api";r=0;t=60"#.to_owned()),
    ] {
        let clock = ManualClock::default();
        let ban = Ban::after(Quota::per_minute(1)).lasting(600 * SECOND);
        let policy = Policy::new("api").quota(Quota::per_minute(1)).ban(ban);
        let gate = gate(&clock, policies([policy]));
        let responder = Responder::new().headers(Headers::new([dialect]).clock(clock));
        assert!(responder.refuse(&decide(&gate), &HeaderMap::new()).is_none());
        let refusal = responder.refuse(&decide(&gate), &HeaderMap::new()).unwrap();
        assert_eq!(field(refusal.headers(), "retry-after"), "600");
        assert_eq!(field(refusal.headers(), name), expected, "{dialect}");
    }
}

#[test]
fn shadow_policies_are_never_shown() {
    let clock = ManualClock::default();
    let watching = Policy::new("new").quota(Quota::per_hour(1)).shadow();
    let api = Policy::new("api").quota(Quota::per_minute(60));
    let both = gate(&clock, policies([watching.clone(), api]));
    let all = [Dialect::Draft11, Dialect::Draft06, Dialect::XRateLimitDelta];
    for _ in 0..3 {
        let map = fields(&Headers::new(all), &both);
        assert_eq!(field(&map, "ratelimit-policy"), r#""api";q=60;w=60"#);
        assert!(!field(&map, "ratelimit").contains("new"));
        assert_eq!(field(&map, "ratelimit-limit"), "60");
        assert_eq!(field(&map, "x-ratelimit-limit"), "60");
    }
    let alone = gate(&clock, policies([watching]));
    assert!(fields(&Headers::default(), &alone).is_empty());
}

/// Through every dialect: a paying customer sees its plan, however little the guard has left.
#[test]
fn policies_that_are_kept_out_are_in_no_header() {
    let clock = ManualClock::default();
    let guard = || Policy::new("flood").quota(Quota::per_second(50)).scope(Scope::Local);
    let api = || Policy::new("api").quota(Quota::per_minute(600));
    let every = [
        Dialect::Draft11,
        Dialect::Draft07,
        Dialect::Draft06,
        Dialect::XRateLimit,
        Dialect::XRateLimitDelta,
    ];
    for hidden in [
        guard(),
        guard().in_headers().not_in_headers(),
        Policy::new("flood").quota(Quota::per_second(50)).not_in_headers(),
    ] {
        let both = gate(&clock, policies([hidden.clone(), api()]));
        let only_api = gate(&clock, policies([api()]));
        for dialect in every {
            let headers = Headers::new([dialect]).clock(clock.clone());
            assert_eq!(fields(&headers, &both), fields(&headers, &only_api), "{dialect}");
        }
        let alone = gate(&clock, policies([hidden]));
        assert!(fields(&Headers::new(every), &alone).is_empty());
    }
    let shown = gate(&clock, policies([guard().in_headers(), api()]));
    let map = fields(&Headers::default(), &shown);
    assert_eq!(field(&map, "ratelimit-policy"), r#""flood";q=50;w=1, "api";q=600;w=60"#);
    assert_eq!(field(&map, "x-ratelimit-limit"), "50");
}

#[test]
fn headers_show_the_quota_with_the_smallest_part_left() {
    let clock = ManualClock::default();
    let small = Policy::new("small").quota(Quota::per_minute(10));
    let large = Policy::new("large").quota(Quota::per_day(1000));
    // 8 of 10 are fewer than 300 of 1000, and a larger part.
    for (left, expected) in [([8, 300], "1000"), ([2, 300], "10"), ([5, 500], "1000")] {
        let standings = left.map(|left| (left, SECOND, Duration::ZERO)).to_vec();
        let policies = policies([small.clone(), large.clone()]).build().unwrap();
        let gate = Gate::new(policies, Scripted { spent: true, standings });
        let mut map = HeaderMap::new();
        Headers::default().clock(clock.clone()).write(&decide(&gate).unwrap(), &mut map);
        assert_eq!(field(&map, "x-ratelimit-limit"), expected, "{left:?} left");
    }
}

/// A unit is held for its window and a part of a millisecond, which is not told as a second more.
#[test]
fn a_first_response_has_a_reset_of_the_whole_window() {
    for began_ns in [0, 1, 999_999, 1_000_000, 500_000_123] {
        let clock = ManualClock::new(Timestamp::from_nanos(began_ns));
        let gate = gate(&clock, policies([Policy::new("api").quota(Quota::per_minute(60))]));
        let headers = Headers::new([Dialect::Draft11, Dialect::Draft06, Dialect::XRateLimitDelta]);
        let map = fields(&headers, &gate);
        assert_eq!(field(&map, "ratelimit"), r#""api";r=59;t=60"#, "{began_ns}");
        assert_eq!(field(&map, "ratelimit-reset"), "60", "{began_ns}");
        assert_eq!(field(&map, "x-ratelimit-reset"), "60", "{began_ns}");
    }
}

#[test]
fn headers_show_the_most_restrictive_quota() {
    let clock = ManualClock::default();
    let gate = gate(
        &clock,
        policies([
            Policy::new("flood").quota(Quota::per_second(50)).scope(Scope::Local),
            Policy::new("api").quota(Quota::per_minute(10)).quota(Quota::per_day(11)),
        ]),
    );
    let headers = Headers::default().clock(clock.clone());
    let shown = |map: &HeaderMap| {
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(|f| field(map, f))
    };
    for remaining in (0..10).rev() {
        let expected = ["10".to_owned(), remaining.to_string(), (MIDNIGHT + 60).to_string()];
        assert_eq!(shown(&fields(&headers, &gate)), expected);
    }
    clock.advance(60 * SECOND);
    // Ten of eleven are spent for the day; this is the eleventh.
    let day = ["11".to_owned(), "0".to_owned(), (MIDNIGHT + 86_400).to_string()];
    assert_eq!(shown(&fields(&headers, &gate)), day);
}

#[test]
fn older_drafts_never_list_two_quotas_of_the_same_units() {
    let clock = ManualClock::default();
    let gate = gate(
        &clock,
        policies([
            Policy::new("a").quota(Quota::per_minute(10)),
            Policy::new("b").quota(Quota::per_hour(10)),
            Policy::new("c").quota(Quota::per_hour(10)),
            Policy::new("d").quota(Quota::per_day(100)),
        ]),
    );
    let map = fields(&Headers::new([Dialect::Draft06]), &gate);
    assert_eq!(field(&map, "ratelimit-policy"), "10;w=3600, 100;w=86400");
}

/// Fields and their values.
type Lines = &'static [(&'static str, &'static str)];

/// What is there, what we add to it (5 of 60 remain), and what comes out.
#[test]
fn headers_are_merged_with_those_that_are_already_there() {
    let all = [Dialect::Draft11, Dialect::XRateLimit];
    let triple = [Dialect::Draft06];
    let dictionary = [Dialect::Draft07];
    let cases: &[(&[Dialect], Lines, Lines)] = &[
        // Lists grow, in one line or several.
        (
            &all,
            &[
                ("ratelimit-policy", r#""up";q=9;w=1, "stream";q=1;w=2"#),
                ("ratelimit", r#""up";r=7;t=1"#),
            ],
            &[
                ("ratelimit-policy", r#""up";q=9;w=1, "stream";q=1;w=2, "api";q=60;w=60"#),
                ("ratelimit", r#""up";r=7;t=1, "api";r=5;t=30"#),
            ],
        ),
        // A name that is taken is set apart, in both lists alike.
        (
            &all,
            &[("ratelimit-policy", r#""api";q=9;w=1"#)],
            &[
                ("ratelimit-policy", r#""api";q=9;w=1, "api/2";q=60;w=60"#),
                ("ratelimit", r#""api/2";r=5;t=30"#),
            ],
        ),
        (
            &all,
            &[("ratelimit", r#""api/2";r=1;t=1, "api";r=3;t=4"#)],
            &[("ratelimit", r#""api/2";r=1;t=1, "api";r=3;t=4, "api/3";r=5;t=30"#)],
        ),
        // Another syntax in the same field is left alone: mixed, neither could be read.
        (
            &all,
            &[("ratelimit", "limit=10, remaining=3, reset=1"), ("ratelimit-policy", "10;w=1")],
            &[("ratelimit", "limit=10, remaining=3, reset=1"), ("ratelimit-policy", "10;w=1")],
        ),
        // Of three fields for one quota, those with less remaining stay, all three of them.
        (
            &all,
            &[
                ("x-ratelimit-limit", "9"),
                ("x-ratelimit-remaining", "4"),
                ("x-ratelimit-reset", "1"),
            ],
            &[
                ("x-ratelimit-limit", "9"),
                ("x-ratelimit-remaining", "4"),
                ("x-ratelimit-reset", "1"),
            ],
        ),
        (
            &all,
            &[
                ("x-ratelimit-limit", "9"),
                ("x-ratelimit-remaining", "6"),
                ("x-ratelimit-reset", "1"),
            ],
            &[
                ("x-ratelimit-limit", "60"),
                ("x-ratelimit-remaining", "5"),
                ("x-ratelimit-reset", "1767225630"),
            ],
        ),
        // What cannot be compared is not touched.
        (
            &all,
            &[("x-ratelimit-limit", "9")],
            &[("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "")],
        ),
        (
            &all,
            &[("x-ratelimit-reset", "5")],
            &[
                ("x-ratelimit-limit", ""),
                ("x-ratelimit-remaining", ""),
                ("x-ratelimit-reset", "5"),
                ("ratelimit-policy", r#""api";q=60;w=60"#),
                ("ratelimit", r#""api";r=5;t=30"#),
            ],
        ),
        // Fields that we do not send are no concern of ours.
        (
            &all,
            &[("ratelimit-limit", "9"), ("x-ratelimit-used", "1")],
            &[
                ("ratelimit-limit", "9"),
                ("x-ratelimit-used", "1"),
                ("x-ratelimit-remaining", "5"),
                ("ratelimit", r#""api";r=5;t=30"#),
            ],
        ),
        (
            &all,
            &[("x-ratelimit-remaining", "-1")],
            &[("x-ratelimit-limit", ""), ("x-ratelimit-remaining", "-1")],
        ),
        (
            &triple,
            &[("ratelimit-limit", "9"), ("ratelimit-remaining", "5"), ("ratelimit-reset", "900")],
            &[("ratelimit-limit", "9"), ("ratelimit-remaining", "5"), ("ratelimit-reset", "900")],
        ),
        (
            &triple,
            &[("ratelimit-remaining", "99"), ("ratelimit-policy", "9;w=1")],
            &[("ratelimit-remaining", "5"), ("ratelimit-policy", "9;w=1, 60;w=60")],
        ),
        (
            &dictionary,
            &[("ratelimit", "limit=10, remaining=3, reset=1")],
            &[("ratelimit", "limit=10, remaining=3, reset=1")],
        ),
        (
            &dictionary,
            &[("ratelimit", "limit=10, remaining=8, reset=1")],
            &[("ratelimit", "limit=60, remaining=5, reset=30")],
        ),
    ];
    let scripted = Scripted { spent: true, standings: vec![(5, 30 * SECOND, Duration::ZERO)] };
    let policies = policies([Policy::new("api").quota(Quota::per_minute(60))]);
    let gate = Gate::new(policies.build().unwrap(), scripted);
    for (dialects, there, expected) in cases {
        let mut map = HeaderMap::new();
        for (name, value) in *there {
            map.append(*name, value.parse().unwrap());
        }
        let headers = Headers::new(dialects.iter().copied()).clock(ManualClock::default());
        headers.write(&decide(&gate).unwrap(), &mut map);
        for (name, value) in *expected {
            assert_eq!(field(&map, name), *value, "{name} beside {there:?}");
        }
    }
}

#[test]
fn redirects_can_be_left_without_headers() {
    let clock = ManualClock::default();
    let gate = gate(&clock, policies([Policy::new("api").quota(Quota::per_minute(60))]));
    let decision = decide(&gate).unwrap();
    for (headers, status, expected) in [
        (Headers::default(), 302, true),
        (Headers::default().not_on_redirects(), 302, false),
        (Headers::default().not_on_redirects(), 304, false),
        (Headers::default().not_on_redirects(), 200, true),
        (Headers::default().not_on_redirects(), 404, true),
    ] {
        let mut response = http::Response::builder().status(status).body(()).unwrap();
        Responder::new().headers(headers).annotate(&decision, &mut response);
        assert_eq!(response.headers().contains_key("ratelimit"), expected, "{status}");
    }
}
