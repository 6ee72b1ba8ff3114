//! The API service: limits for each endpoint, and internal calls without any.

use slidegate_testbed::{Gateway, Message, RedisServer, Upstream, ledger_keys};

use crate::example::{Example, number, send};

const LOGIN: &str = "POST /api/v1/auth/login";
const RESET: &str = "POST /api/v1/auth/password-reset";

fn service() -> (Gateway, Upstream, RedisServer) {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let gateway = Example::load("api-service.toml").start(&upstream, &redis);
    (gateway, upstream, redis)
}

fn statuses(gateway: &Gateway, line: &str, client: &str, count: usize) -> Vec<u16> {
    let mut wire = gateway.wire();
    (0..count).map(|_| send(&mut wire, line, client, "").status()).collect()
}

fn assert_code(refused: &Message, longest: u64) {
    let body: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
    let error = &body["error"];
    assert_eq!(error["code"], "RATE_LIMIT_EXCEEDED", "{body}");
    let retry_after = error["retryAfter"].as_u64().unwrap();
    assert!((1..=longest).contains(&retry_after), "{body}");
    assert_eq!(number(refused, "retry-after"), retry_after);
    let plural = if retry_after == 1 { "" } else { "s" };
    let message = format!("Too many requests. Please retry after {retry_after} second{plural}.");
    assert_eq!(error["message"], message, "{body}");
}

#[test]
fn five_logins_a_minute_and_three_password_resets_an_hour() {
    let (gateway, upstream, _redis) = service();
    for (line, units, longest, policy) in
        [(LOGIN, 5, 61, "login"), (RESET, 3, 3605, "password-reset")]
    {
        let before = upstream.received().len();
        let expected = [vec![200; units], vec![429; 4]].concat();
        assert_eq!(statuses(&gateway, line, "203.0.113.7", units + 4), expected, "{line}");
        assert_eq!(upstream.received().len() - before, units);
        let refused = send(&mut gateway.wire(), line, "203.0.113.7", "");
        assert_code(&refused, longest);
        assert!(longest < 100 || number(&refused, "retry-after") > 60, "{}", refused.head);
        let exceeded = gateway.metric("rate_limit_exceeded_total", &format!("policy=\"{policy}\""));
        assert_eq!(exceeded as usize, 5);
        assert_eq!(statuses(&gateway, line, "203.0.113.8", 1), [200], "another address");
    }
    for detour in ["POST /api/v1/auth/%6cogin", "POST /api/v1//auth/./login"] {
        assert_eq!(statuses(&gateway, detour, "203.0.113.7", 1), [429], "{detour}");
    }
    assert_eq!(statuses(&gateway, "GET /api/v1/auth/login", "203.0.113.7", 1), [200], "the form");
}

#[test]
fn internal_calls_are_exempt() {
    let (gateway, upstream, redis) = service();
    assert_eq!(statuses(&gateway, LOGIN, "10.20.3.4", 30), [200; 30]);
    assert_eq!(statuses(&gateway, RESET, "10.20.3.4", 30), [200; 30]);
    assert_eq!(statuses(&gateway, "GET /health", "203.0.113.7", 150), [200; 150]);
    let internal = "POST /api/v1/internal/jobs/7";
    assert_eq!(statuses(&gateway, internal, "203.0.113.7", 150), [200; 150]);
    assert_eq!(upstream.received().len(), 360);
    assert_eq!(ledger_keys(&redis), [""; 0], "they are not even counted");
    let answer = send(&mut gateway.wire(), LOGIN, "10.20.3.4", "");
    assert!(answer.values("x-ratelimit-limit").is_empty(), "{}", answer.head);
    // Who only says so is a client that sends X-Forwarded-For; the proxy adds its address.
    let forged = statuses(&gateway, LOGIN, "10.20.3.4, 203.0.113.7", 6);
    assert_eq!(forged, [200, 200, 200, 200, 200, 429]);
    let detour = "POST /api/v1/internal/../auth/login";
    assert_eq!(statuses(&gateway, detour, "203.0.113.7", 1), [429], "it is not internal");
}

#[test]
fn users_keys_and_addresses_have_an_account_each() {
    let (gateway, _upstream, redis) = service();
    let mut wire = gateway.wire();
    let mut remaining = |client, headers| {
        let answer = send(&mut wire, "GET /api/v1/items", client, headers);
        assert_eq!((answer.status(), number(&answer, "x-ratelimit-limit")), (200, 100));
        number(&answer, "x-ratelimit-remaining")
    };
    let user = "X-User-Id: 42\r\nX-API-Key: hunter2\r\n";
    for (client, headers, left) in [
        ("203.0.113.7", "", 99),
        ("203.0.113.7", "X-API-Key: hunter2\r\n", 99),
        ("203.0.113.7", user, 99),
        ("203.0.113.8", user, 98),
        ("203.0.113.8", "X-API-Key: hunter2\r\n", 98),
        ("203.0.113.8", "", 99),
    ] {
        assert_eq!(remaining(client, headers), left, "{client} {headers}");
    }
    let keys = ledger_keys(&redis);
    let starts = [
        "ratelimit:api-key:",
        "ratelimit:ip:203.0.113.7",
        "ratelimit:ip:203.0.113.8",
        "ratelimit:user:42",
    ];
    assert_eq!(keys.len(), starts.len(), "{keys:?}");
    assert!(keys.iter().zip(starts).all(|(key, start)| key.starts_with(start)), "{keys:?}");
    assert!(
        !keys.concat().contains("hunter2") && !gateway.output().contains("hunter2"),
        "{keys:?}"
    );
}

#[test]
fn an_environment_variable_switches_all_limits_off() {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let off = Example::load("api-service.toml").variable("RATE_LIMIT_ENABLED", "false");
    let gateway = off.start(&upstream, &redis);
    assert_eq!(statuses(&gateway, LOGIN, "203.0.113.7", 20), [200; 20]);
}
