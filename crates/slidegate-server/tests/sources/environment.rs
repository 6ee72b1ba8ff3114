//! The sources' own environments beside their files: they tune the policy that is meant, and open
//! no hole.

use slidegate_testbed::RedisServer;

use crate::example::{Example, send};
use crate::support::{Front, Upstream, ledgers};

const LOGIN: &str = "POST /api/v1/auth/login";

/// How many requests of a client pass, sent to the gateways in turn.
fn passing(fronts: &[Front], line: &str, requests: usize) -> usize {
    let mut wires: Vec<_> = fronts.iter().map(|front| front.wire()).collect();
    let gateways = wires.len();
    let passes = |n: usize| {
        let status = send(&mut wires[n % gateways], line, "203.0.113.7", "").status();
        assert!([200, 429].contains(&status), "{status}");
        status == 200
    };
    (0..requests).map(passes).filter(|passes| *passes).count()
}

fn service(variables: &[(&'static str, &'static str)]) -> (Vec<Front>, Upstream, RedisServer) {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let example = Example::load("api-service.toml");
    let example = variables.iter().fold(example, |e, (name, value)| e.variable(name, value));
    let fronts = (0..2).map(|_| example.start(&upstream, &redis)).collect();
    (fronts, upstream, redis)
}

#[test]
fn the_api_service_is_limited_with_its_own_environment_at_two_gateways() {
    let own = [("RATE_LIMIT_ENABLED", "true"), ("RATE_LIMIT_TTL", "60"), ("RATE_LIMIT_MAX", "100")];
    let (fronts, _upstream, redis) = service(&own);
    assert_eq!(passing(&fronts, LOGIN, 10), 5);
    assert_eq!(passing(&fronts, "GET /api/v1/items", 200), 95, "logins count under it too");
    let key = "ratelimit:ip:203.0.113.7";
    assert_eq!(redis.command(&["ZCARD", key]).integer(), 100, "Redis was asked");
    assert_eq!(fronts[0].metric("slidegate_store_errors_total", ""), 0.0);
}

#[test]
fn the_environment_of_the_api_service_changes_its_main_policy_and_no_other() {
    let (fronts, _upstream, _redis) = service(&[("RATE_LIMIT_MAX", "20")]);
    assert_eq!(passing(&fronts, LOGIN, 10), 5);
    assert_eq!(passing(&fronts, "GET /api/v1/items", 40), 15);
    assert_eq!(passing(&fronts, "GET /health", 40), 40, "exempt as before");
}

#[test]
fn the_environment_of_the_shortener_limits_links_and_leaves_redirects_free() {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let example = Example::load("url-shortener.toml")
        .variable("RATE_LIMIT_MAX", "3")
        .variable("RATE_LIMIT_WINDOW_MS", "60000");
    let fronts: Vec<Front> = (0..2).map(|_| example.start(&upstream, &redis)).collect();
    assert_eq!(passing(&fronts, "GET /1", 30), 30);
    assert_eq!(passing(&fronts, "POST /shorten", 10), 3);
    assert_eq!(ledgers(&redis).len(), 1, "no other account");
}
