//! A local flood guard beside the plans that customers pay for.

use serde_json::Value;
use slidegate_testbed::{Gateway, GatewayOptions, Message, Upstream};

use crate::{configure, options};

const DECISIONS: &str = "[decisions]\nlisten = \"127.0.0.1:0\"";

fn guarded(upstream: &Upstream, keys: &str) -> GatewayOptions {
    configure(upstream)
        .tables(DECISIONS)
        .policy("flood", "50/min", &format!("scope = \"local\"\n{keys}"))
        .policy("api", "600/min", "")
}

/// A request through the decision API.
fn decide(gateway: &Gateway, question: &str) -> Value {
    serde_json::from_slice(&gateway.post("/v1/decide", question).body).unwrap()
}

fn remaining(answer: &Value, policy: &str) -> u64 {
    let standings = answer["standings"].as_array().unwrap();
    let own = standings.iter().find(|own| own["policy"] == policy).unwrap();
    own["remaining"].as_u64().unwrap()
}

fn limit_fields(answer: &Message) -> String {
    let names = ["ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining"];
    names.map(|name| answer.values(name).join(", ")).join(" | ")
}

#[test]
fn a_requests_cost_is_not_charged_to_the_guard() {
    let upstream = Upstream::simple();
    let gateway = guarded(&upstream, "").start();
    let question = r#"{"method":"GET","path":"/","client":"203.0.113.7","cost":100}"#;
    let answer = decide(&gateway, question);
    assert_eq!(answer["verdict"], "allow", "{answer}");
    assert_eq!((remaining(&answer, "flood"), remaining(&answer, "api")), (49, 500));
    for (keys, left) in [("cost = 5", 45), ("cost = \"request\"", 30)] {
        let gateway = guarded(&upstream, keys).start();
        let answer = decide(&gateway, &question.replace("100", "20"));
        assert_eq!((remaining(&answer, "flood"), remaining(&answer, "api")), (left, 580), "{keys}");
    }
    let gateway = guarded(&upstream, "cost = \"request\"").start();
    assert_eq!(decide(&gateway, question)["reason"], "cost-above-units");
}

#[test]
fn customers_see_their_plan_and_not_the_guard() {
    let upstream = Upstream::simple();
    let gateway = guarded(&upstream, "").start();
    let answer = gateway.get("/", "");
    assert_eq!(answer.status(), 200);
    assert_eq!(
        limit_fields(&answer),
        "\"api\";q=600;w=60 | \"api\";r=599;t=60 | 600 | 599",
        "and a minute is 60 seconds"
    );
    let answer = decide(&gateway, r#"{"method":"GET","path":"/","client":"203.0.113.7"}"#);
    assert_eq!(answer["headers"]["x-ratelimit-limit"], "600", "{answer}");
    assert_eq!(remaining(&answer, "flood"), 49, "the decision API returns all of it");
    let shown = guarded(&upstream, "headers = true").start();
    assert!(
        limit_fields(&shown.get("/", "")).starts_with("\"flood\";q=50;w=60, \"api\";q=600;w=60 | ")
    );
    let hidden = configure(&upstream).policy("api", "600/min", "headers = false").start();
    assert_eq!(limit_fields(&hidden.get("/", "")), " |  |  | ");
}

#[test]
fn a_denial_of_the_guard_has_retry_after_and_no_quota() {
    let upstream = Upstream::simple();
    let setup = configure(&upstream)
        .policy("flood", "2/min", "scope = \"local\"\ncount_denied = true")
        .policy("api", "600/min", "");
    let gateway = setup.start();
    let mut wire = gateway.wire();
    assert_eq!((wire.get("/", "").status(), wire.get("/", "").status()), (200, 200));
    let refusal = wire.get("/", "");
    assert_eq!(refusal.problem(), 429);
    let retry_after: u64 = refusal.value("retry-after").unwrap().parse().unwrap();
    assert!((1..=61).contains(&retry_after), "{retry_after}");
    assert_eq!(limit_fields(&refusal), " |  |  | ");
    let body: Value = serde_json::from_slice(&refusal.body).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["flood"]), "{body}");
}

/// Whatever the part of a millisecond in which the first request comes.
#[test]
fn no_reset_is_later_than_its_window() {
    let upstream = Upstream::simple();
    let setup = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.1\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .tables("[headers]\ndialects = [\"ietf-draft-11\", \"x-ratelimit-delta\"]")
        .policy("api", "60/min", "");
    let gateway = setup.start();
    let mut wire = gateway.wire();
    for client in 1..=100 {
        let answer = wire.get("/", &format!("X-Forwarded-For: 10.0.0.{client}\r\n"));
        assert_eq!(answer.values("ratelimit"), ["\"api\";r=59;t=60"]);
        assert_eq!(answer.values("x-ratelimit-reset"), ["60"]);
    }
}

#[test]
fn a_cost_and_headers_that_are_neither_are_errors_with_their_lines() {
    let upstream = Upstream::simple();
    let text = guarded(&upstream, "cost = \"reqest\"\nheaders = \"no\"").text();
    let failed = options().configuration(&text).spawn();
    assert_eq!(failed.wait(), Some(1), "{}", failed.output());
    let output = failed.output();
    for part in [
        "policy[0].cost = \"reqest\": expected a whole number of units, or \"request\"",
        "policy[0].headers = \"no\": expected true or false",
    ] {
        assert!(output.contains(part), "no {part} in {output}");
    }
}
