//! The sources' own environments beside their files: they tune the policy that is meant, and open
//! no hole.

use slidegate_testbed::{Gateway, RedisServer, Upstream, ledger_keys};

use crate::example::{Example, send};

const LOGIN: &str = "POST /api/v1/auth/login";

/// How many requests of a client pass, sent to the gateways in turn. All others must be refused, and
/// after the first that is, all are.
fn passing(gateways: &[Gateway], line: &str, requests: usize) -> usize {
    let mut wires: Vec<_> = gateways.iter().map(|gateway| gateway.wire()).collect();
    let gateways = wires.len();
    let status = |n: usize| send(&mut wires[n % gateways], line, "203.0.113.7", "").status();
    let statuses: Vec<u16> = (0..requests).map(status).collect();
    let passed = statuses.iter().take_while(|status| **status == 200).count();
    assert_eq!(statuses[passed..], vec![429; requests - passed], "{line}");
    passed
}

fn service(variables: &[(&'static str, &'static str)]) -> (Vec<Gateway>, Upstream, RedisServer) {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let example = Example::load("api-service.toml");
    let example = variables.iter().fold(example, |e, (name, value)| e.variable(name, value));
    let gateways = (0..2).map(|_| example.start(&upstream, &redis)).collect();
    (gateways, upstream, redis)
}

#[test]
fn an_api_service_is_limited_with_its_own_environment_at_two_gateways() {
    let own = [("RATE_LIMIT_ENABLED", "true"), ("RATE_LIMIT_TTL", "60"), ("RATE_LIMIT_MAX", "100")];
    let (gateways, _upstream, redis) = service(&own);
    assert_eq!(passing(&gateways, LOGIN, 10), 5);
    assert_eq!(passing(&gateways, "GET /api/v1/items", 200), 95, "logins count under it too");
    let key = "ratelimit:ip:203.0.113.7";
    assert_eq!(redis.command(&["ZCARD", key]).integer(), 100, "Redis was asked");
    let calls = |outcome| gateways[0].metric("slidegate_store_calls_total", outcome);
    assert!(calls("answered") > 0.0);
    assert_eq!((calls("deadline"), calls("error")), (0.0, 0.0));
}

#[test]
fn an_api_services_environment_changes_its_main_policy_and_no_other() {
    let (gateways, _upstream, _redis) = service(&[("RATE_LIMIT_MAX", "20")]);
    assert_eq!(passing(&gateways, LOGIN, 10), 5);
    assert_eq!(passing(&gateways, "GET /api/v1/items", 40), 15);
    assert_eq!(passing(&gateways, "GET /health", 40), 40, "exempt as before");
}

#[test]
fn a_shorteners_environment_limits_links_and_leaves_redirects_free() {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let example = Example::load("url-shortener.toml")
        .variable("RATE_LIMIT_MAX", "3")
        .variable("RATE_LIMIT_WINDOW_MS", "60000");
    let gateways: Vec<Gateway> = (0..2).map(|_| example.start(&upstream, &redis)).collect();
    assert_eq!(passing(&gateways, "GET /1", 30), 30);
    assert_eq!(passing(&gateways, "POST /shorten", 10), 3);
    assert_eq!(ledger_keys(&redis).len(), 1, "no other account");
}
