//! Which requests are limited, by which identity, and the responses that clients get.

use std::thread;
use std::time::Duration;

use slidegate_testbed::http1::response;
use slidegate_testbed::{Http2Client, Message, RedisServer, Upstream};

use crate::configure;

#[test]
fn a_refusal_is_complete_and_reaches_no_upstream() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("api", "3/min", "").start();
    let mut wire = gateway.wire();
    for remaining in (0..3).rev() {
        let answer = wire.get("/", "");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.values("ratelimit-policy"), ["\"api\";q=3;w=60"]);
        let standing = answer.value("ratelimit").unwrap();
        assert!(standing.starts_with(&format!("\"api\";r={remaining};t=")), "{standing}");
        assert_eq!(answer.value("x-ratelimit-remaining"), Some(remaining.to_string()));
    }
    // A unit is held for up to a tick of 1 ms longer. Past it, less than a minute is left.
    thread::sleep(Duration::from_millis(5));
    let refusal = wire.get("/", "");
    assert_eq!(refusal.problem(), 429);
    let retry_after: u64 = refusal.value("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&retry_after), "{retry_after}");
    assert_eq!(refusal.value("cache-control").as_deref(), Some("no-store"));
    assert!(refusal.text().contains("#quota-exceeded"), "{}", refusal.text());
    assert!(refusal.text().contains("\"violated-policies\":[\"api\"]"), "{}", refusal.text());
    assert_eq!(upstream.received().len(), 3);
    assert_eq!(wire.get("/", "").status(), 429, "the connection goes on");
}

#[test]
fn a_refusal_is_the_same_in_every_version_of_http() {
    // Names without what is of one connection or one version, and values without numbers: seconds
    // go by between refusals.
    fn limit_fields<'a>(
        fields: impl Iterator<Item = (&'a str, &'a str)>,
        body: &str,
    ) -> Vec<String> {
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value));
        let lines = fields
            .filter(|(name, _)| !["date", "connection", "content-length"].contains(&name.as_str()));
        let mut lines: Vec<String> =
            lines.map(|(name, value)| format!("{name}: {value}")).collect();
        lines.sort();
        lines.push(body.to_owned());
        lines.iter().map(|line| line.replace(|c: char| c.is_ascii_digit(), "")).collect()
    }
    fn limit_fields_of_text(answer: &str) -> Vec<String> {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        limit_fields(head.lines().skip(1).filter_map(|line| line.split_once(": ")), body)
    }
    let upstream = Upstream::simple();
    // So long that the seconds have as many digits all the time.
    let gateway = configure(&upstream).policy("api", "1/hour", "").start();
    assert_eq!(gateway.status("/"), 200);

    let client = Http2Client::connect(gateway.listener());
    let received = client.get("http://a/");
    assert_eq!(received.status, 429);
    let fields =
        received.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    let expected = limit_fields(fields, std::str::from_utf8(&received.body).unwrap());
    assert!(expected.iter().any(|line| line.starts_with("ratelimit-policy: ")), "{expected:?}");

    let length = received.body.len();
    for (request, version, says) in [
        ("GET / HTTP/1.1\r\nConnection: close", "HTTP/1.1", Some("close")),
        ("GET / HTTP/1.0", "HTTP/1.0", None),
        ("HEAD / HTTP/1.1\r\nConnection: close", "HTTP/1.1", Some("close")),
        ("HEAD / HTTP/1.0", "HTTP/1.0", None),
    ] {
        let answer = gateway.answer_to(format!("{request}\r\nHost: a\r\n\r\n"));
        let mut expected = expected.clone();
        if request.starts_with("HEAD") {
            *expected.last_mut().unwrap() = String::new();
        }
        assert_eq!(limit_fields_of_text(&answer), expected, "{request}");
        assert!(answer.starts_with(&format!("{version} 429 Too Many Requests\r\n")), "{answer}");
        let has = |line: &str| answer.contains(&format!("\r\n{line}\r\n"));
        assert!(has(&format!("content-length: {length}")), "{answer}");
        assert_eq!(answer.contains("\r\nconnection: "), says.is_some(), "{answer}");
        assert!(says.is_none_or(|says| has(&format!("connection: {says}"))), "{answer}");
        assert_eq!(answer.matches("\r\ndate: ").count(), 1, "{answer}");
    }
    let mut wire = gateway.wire();
    for _ in 0..2 {
        wire.send("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        let refusal = wire.response();
        assert_eq!(refusal.status(), 429);
        assert_eq!(refusal.value("connection").as_deref(), Some("keep-alive"));
        assert_eq!(refusal.text().len(), length);
    }
}

#[test]
fn a_long_refusal_is_whole() {
    let upstream = Upstream::simple();
    let long = "no ".repeat(20_000);
    let refusal = format!("refusal = {{ template = \"{long}\" }}");
    let gateway = configure(&upstream).policy("api", "1/min", &refusal).start();
    let mut wire = gateway.wire();
    assert_eq!(wire.get("/", "").status(), 200);
    for _ in 0..3 {
        let refusal = wire.get("/", "");
        assert_eq!((refusal.status(), refusal.text() == long), (429, true));
    }
    let received = Http2Client::connect(gateway.listener()).get("http://a/");
    assert_eq!((received.status.as_u16(), &received.body[..] == long.as_bytes()), (429, true));
}

#[test]
fn a_refused_upload_is_not_read_and_harms_no_other_request() {
    let upstream = Upstream::simple();
    let gateway =
        configure(&upstream).policy("api", "1/min", "match = { method = \"POST\" }").start();
    let mut wire = gateway.wire();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    wire.send(format!("{head}first"));
    assert_eq!(wire.response().status(), 200);
    wire.send(format!("{head}GET /GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(wire.response().status(), 429);
    // Either the connection ends, or it goes on with what stands after the body.
    if let Ok(next) = wire.response_to("GET") {
        assert_eq!((next.status(), upstream.last().target()), (200, "/hidden"));
    }
    assert!(upstream.received().iter().all(|received| received.target() != "/GET"));
}

#[test]
fn fields_of_upstream_are_added_to() {
    let upstream = Upstream::answering(|_| {
        let own = "RateLimit-Policy: \"inner\";q=10;w=1\r\nRateLimit: \"inner\";r=9;t=1\r\n";
        response("200 OK", own, "ok")
    });
    let gateway = configure(&upstream).policy("outer", "100/min", "").start();
    let answer = gateway.get("/", "");
    let joined = |name| Message::values(&answer, name).join(", ");
    assert_eq!(joined("ratelimit-policy"), "\"inner\";q=10;w=1, \"outer\";q=100;w=60");
    let standing = joined("ratelimit");
    assert!(standing.starts_with("\"inner\";r=9;t=1, \"outer\";r=99;t="), "{standing}");
}

#[test]
fn exactly_the_quota_passes_of_concurrent_requests() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("api", "100/min", "").start();
    let allowed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut wire = gateway.wire();
                    (0..50).filter(|_| wire.get("/", "").status() == 200).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((allowed, upstream.received().len()), (100, 100));
}

const PLANS: &str = "[plans.free]\nquotas = [\"2/min\"]\nupgrade_url = \"https://app.example.com/upgrade\"\n\
    [plans.pro]\nquotas = [\"4/min\"]\n";

#[test]
fn plans_come_from_the_table_of_keys() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .tables(PLANS)
        .tables("[[api_key]]\nkey = \"pro-key\"\nplan = \"pro\"")
        .policy("api", "", "identity = [\"api-key\", \"ip\"]\nplan = { default = \"free\" }")
        .start();
    // A key that is not in the table is no identity: such requests are the address's own.
    for (headers, quota) in [("X-API-Key: pro-key\r\n", 4), ("X-API-Key: other\r\n", 2), ("", 0)] {
        let mut wire = gateway.wire();
        for _ in 0..quota {
            assert_eq!(wire.get("/", headers).status(), 200, "{headers}");
        }
        let refusal = wire.get("/", headers);
        assert_eq!(refusal.status(), 429, "{headers}");
        assert_eq!(refusal.text().contains("app.example.com/upgrade"), quota < 4, "{headers}");
        assert!(!refusal.text().contains("-key"), "no secret in {}", refusal.text());
    }
}

#[test]
fn plans_come_from_a_header_of_those_who_are_trusted() {
    let upstream = Upstream::simple();
    let policy = "identity = [\"ip\"]\nplan = { header = \"x-plan\", default = \"free\" }";
    for (trusted, quota) in [(false, 2), (true, 4)] {
        let mut setup = configure(&upstream);
        if trusted {
            setup = setup.key("trusted_proxies", "[\"127.0.0.1\"]");
        }
        let gateway = setup.tables(PLANS).policy("api", "", policy).start();
        let allowed =
            (0..6).filter(|_| gateway.get("/", "X-Plan: pro\r\n").status() == 200).count();
        assert_eq!(allowed, quota, "trusted: {trusted}");
    }
}

#[test]
fn clients_behind_a_trusted_proxy_are_distinguished_and_others_are_not() {
    let upstream = Upstream::simple();
    for (trusted, client, allowed) in [
        ("127.0.0.0/8", "203.0.113.{n}", 6),
        ("127.0.0.0/8", "203.0.113.7", 1),
        ("127.0.0.0/8", "198.51.100.{n}, 203.0.113.7", 1),
        ("127.0.0.0/8", "::ffff:203.0.113.7, 127.0.0.2", 1),
        ("127.0.0.0/8", "2001:db8::{n}", 1),
        ("10.0.0.0/8", "203.0.113.{n}", 1),
    ] {
        let gateway = configure(&upstream)
            .key("trusted_proxies", &format!("[{trusted:?}]"))
            .key("client_address", "\"x-forwarded-for\"")
            .policy("api", "1/min", "")
            .start();
        let passes = |n: usize| {
            let header = format!("X-Forwarded-For: {}\r\n", client.replace("{n}", &n.to_string()));
            gateway.get("/", &header).status() == 200
        };
        assert_eq!((1..=6).filter(|n| passes(*n)).count(), allowed, "{trusted}: {client}");
    }
}

#[test]
fn a_flood_guard_denies_first_and_with_a_bare_refusal() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .policy("flood", "5/min", "scope = \"local\"\nrefusal = \"bare\"")
        .policy("api", "100/min", "")
        .start();
    let mut wire = gateway.wire();
    for _ in 0..5 {
        assert_eq!(wire.get("/", "").status(), 200);
    }
    let refusal = wire.get("/", "");
    assert_eq!((refusal.status(), refusal.text().as_str()), (429, "Too Many Requests"));
    assert_eq!(gateway.metric("rate_limit_exceeded_total", "flood"), 1.0, "{}", gateway.metrics());
    assert_eq!(gateway.metric("rate_limit_exceeded_total", "\"api\""), 0.0);
}

#[test]
fn login_attempts_are_few_whatever_else_passes() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .policy("login", "5/min", "match = { method = \"POST\", path = \"/api/v1/auth/login\" }")
        .policy("api", "1000/min", "")
        .start();
    let mut wire = gateway.wire();
    let mut login = |status| {
        wire.send("POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(wire.response().status(), status);
    };
    (0..5).for_each(|_| login(200));
    login(429);
    for _ in 0..10 {
        assert_eq!(gateway.status("/api/v1/auth/login"), 200, "GET is free");
    }
}

#[test]
fn exempt_and_blocked_requests_are_not_counted() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .policy("api", "1/min", "")
        .tables("[exempt]\npaths = [\"/health\"]\n[blocked]\napi_keys = [\"stolen-key\"]")
        .start();
    for _ in 0..5 {
        assert_eq!(gateway.status("/health"), 200);
        assert_eq!(gateway.get("/", "X-API-Key: stolen-key\r\n").status(), 403);
    }
    assert_eq!(gateway.status("/"), 200);
    assert_eq!(gateway.status("/"), 429);
}

#[test]
fn a_policy_that_counts_denials_answers_only_for_its_own() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let on_redis = |layout: &str| {
        let (url, prefix) = (redis.url(), layout);
        let template = format!("{prefix}:{{<kind>:<identity>}}:<policy>:<window>");
        format!(
            "[store]\nkind = \"redis\"\nurl = {url:?}\nlayout = {layout:?}\ndeadline = \"2s\"\n\
             key_template = {template:?}"
        )
    };
    let down = "[store]\nkind = \"redis\"\nurl = \"redis://127.0.0.1:1\"".to_owned();
    let memory = "[store]\nkind = \"memory\"".to_owned();
    for store in [memory, on_redis("packed"), on_redis("sorted-set"), down] {
        let counting = "count_denied = true\nban = { after = \"1/min\" }\nrefusal = \"bare\"";
        let gateway = configure(&upstream)
            .tables(&store)
            .policy("counting", "2/min", counting)
            .policy("narrow", "1/hour", "")
            .start();
        assert_eq!(gateway.status("/"), 200, "{store}");
        let refusal = gateway.get("/", "");
        assert_eq!(refusal.problem(), 429, "{store}: the refusal of the policy that denied");
        let text = refusal.text();
        assert!(text.contains("\"violated-policies\":[\"narrow\"]"), "{store}: {text}");
        let exceeded = |policy: &str| gateway.metric("rate_limit_exceeded_total", policy);
        assert_eq!((exceeded("counting"), exceeded("narrow")), (0.0, 1.0), "{store}");
        assert_eq!(gateway.metric("slidegate_bans_total", ""), 0.0, "{store}");

        let refusal = gateway.get("/", "");
        let bare = (429, "Too Many Requests".to_owned());
        assert_eq!((refusal.status(), refusal.text()), bare, "{store}: now it denies");
        assert_eq!((exceeded("counting"), exceeded("narrow")), (1.0, 2.0), "{store}");
        // Denials while the store is in trouble begin no ban.
        let bans = if store.contains("127.0.0.1:1\"") { 0.0 } else { 1.0 };
        assert_eq!(gateway.metric("slidegate_bans_total", ""), bans, "{store}");
    }
}
