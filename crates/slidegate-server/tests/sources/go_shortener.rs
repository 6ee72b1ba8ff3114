//! The shortener in Go: 100 a minute for an address, 1000 for a user, and headers that say so.

use std::sync::Mutex;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use slidegate_testbed::{Gateway, Message, RedisServer, Upstream};

use crate::admissions::Admissions;
use crate::example::{Example, number, send};

const USER: &str = "X-User-Id: 42\r\nX-Plan: authenticated\r\n";

fn shortener() -> (Gateway, Upstream, RedisServer) {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let gateway = Example::load("go-shortener.toml").start(&upstream, &redis);
    (gateway, upstream, redis)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn assert_standing(answer: &Message, limit: u64, remaining: u64) {
    let standing = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| number(answer, name));
    assert_eq!(standing, [limit, remaining], "{}", answer.head);
}

#[test]
fn an_anonymous_address_has_a_hundred_and_headers_count_down() {
    let (gateway, upstream, redis) = shortener();
    let (mut wire, began_s) = (gateway.wire(), now_s());
    for remaining in (0..100).rev() {
        let answer = send(&mut wire, "GET /abc", "203.0.113.7", "");
        assert_eq!(answer.status(), 200);
        assert_standing(&answer, 100, remaining);
        let reset = number(&answer, "x-ratelimit-reset");
        assert!((began_s..=now_s() + 61).contains(&reset), "{reset}, begun at {began_s}");
    }
    for _ in 0..5 {
        let refused = send(&mut wire, "GET /abc", "203.0.113.7", "");
        assert_eq!(refused.status(), 429);
        assert_standing(&refused, 100, 0);
        let retry_after = number(&refused, "retry-after");
        assert!((1..=61).contains(&retry_after), "{retry_after}");
        assert_eq!(refused.value("content-type").as_deref(), Some("text/plain; charset=utf-8"));
        assert_eq!(refused.text(), "Rate limit exceeded\n");
    }
    assert_eq!(upstream.received().len(), 100);
    let key = "ratelimit:203.0.113.7";
    assert_eq!(redis.command(&["TYPE", key]).text(), "zset");
    assert_eq!(redis.command(&["ZCARD", key]).integer(), 100, "denials take others' places");
}

#[test]
fn a_user_has_a_thousand_wherever_it_is() {
    let (gateway, _upstream, redis) = shortener();
    let total = Mutex::new(Admissions::default());
    thread::scope(|scope| {
        for thread in 0..4 {
            let (gateway, total) = (&gateway, &total);
            scope.spawn(move || {
                let (mut wire, mut admissions) = (gateway.wire(), Admissions::default());
                for n in 0..280 {
                    let (sent, client) = (Instant::now(), format!("203.0.113.{thread}"));
                    let answer = send(&mut wire, "GET /abc", &client, USER);
                    assert_eq!(number(&answer, "x-ratelimit-limit"), 1000, "{n}");
                    match answer.status() {
                        200 => admissions.note(sent, Instant::now()),
                        429 => assert!(number(&answer, "retry-after") >= 1),
                        status => panic!("{status}: {}", answer.head),
                    }
                }
                total.lock().unwrap().merge(admissions);
            });
        }
    });
    total.into_inner().unwrap().assert_quota(1000);
    assert_eq!(redis.command(&["TYPE", "ratelimit:user:42"]).text(), "zset");
    let visitor = send(&mut gateway.wire(), "GET /abc", "203.0.113.1", "");
    assert_eq!(visitor.status(), 200, "the address has spent nothing");
    assert_standing(&visitor, 100, 99);
}

#[test]
fn behind_a_load_balancer_clients_are_distinguished_and_cannot_forge_addresses() {
    let (gateway, _upstream, _redis) = shortener();
    let mut wire = gateway.wire();
    for (forwarded, remaining) in [
        ("203.0.113.7", 99),
        ("203.0.113.8", 99),
        ("198.51.100.1, 203.0.113.7", 98),
        ("127.0.0.1, 203.0.113.7", 97),
        ("unknown, 203.0.113.7", 96),
        ("::ffff:203.0.113.7", 95),
        ("2001:db8::1", 99),
        ("2001:db8::2", 98),
        ("2001:db8:0:1::1", 99),
    ] {
        let answer = send(&mut wire, "GET /abc", forwarded, "");
        assert_standing(&answer, 100, remaining);
    }
}

#[test]
fn forwarding_headers_count_from_trusted_proxies_only() {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let example = Example::load("go-shortener.toml").trusting("10.0.0.1");
    let gateway = example.start(&upstream, &redis);
    let mut wire = gateway.wire();
    for (n, client) in ["203.0.113.7", "203.0.113.8", "203.0.113.9"].into_iter().enumerate() {
        let answer = send(&mut wire, "GET /abc", client, USER);
        assert_standing(&answer, 100, 99 - n as u64);
    }
}

#[test]
fn a_client_that_hammers_is_banned() {
    let (gateway, _upstream, _redis) = shortener();
    let mut wire = gateway.wire();
    let mut banned = None;
    for _ in 0..3000 {
        let answer = send(&mut wire, "GET /abc", "203.0.113.7", "");
        if answer.status() == 429 && number(&answer, "retry-after") > 61 {
            banned = Some(answer);
            break;
        }
    }
    let banned = banned.expect("a ban");
    assert!((62..=301).contains(&number(&banned, "retry-after")), "{}", banned.head);
    assert_eq!(send(&mut wire, "GET /abc", "203.0.113.8", "").status(), 200);
    assert_eq!(gateway.metric("slidegate_bans_total", "") as usize, 1);
}

/// The old limiter's commands, on the key that the gateway counts on too.
fn go_limiter_allows(redis: &RedisServer, key: &str, limit: i64) -> bool {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let (now, left) = (now_ns.to_string(), (now_ns - 60_000_000_000).to_string());
    redis.command(&["ZREMRANGEBYSCORE", key, "0", &left]).integer();
    let count = redis.command(&["ZCARD", key]).integer();
    redis.command(&["ZADD", key, &now, &now]).integer();
    redis.command(&["EXPIRE", key, "60"]).integer();
    count < limit
}

#[test]
fn beside_the_old_instances_one_budget_is_admitted() {
    for (key, limit, headers) in
        [("ratelimit:203.0.113.7", 100, ""), ("ratelimit:user:42", 1000, USER)]
    {
        let (gateway, upstream, redis) = shortener();
        let (mut wire, began) = (gateway.wire(), Instant::now());
        let mut admitted = 0;
        // More than half of the limit at each.
        for _ in 0..limit / 2 + 150 {
            admitted += i64::from(go_limiter_allows(&redis, key, limit));
            let answer = send(&mut wire, "GET /abc", "203.0.113.7", headers);
            admitted += i64::from(answer.status() == 200);
        }
        assert!(began.elapsed().as_secs() < 60, "a machine this slow shows nothing");
        assert_eq!(admitted, limit, "{key}");
        let ours = upstream.received().len() as i64;
        assert!((limit / 2 - 1..=limit / 2 + 1).contains(&ours), "they took turns: {ours}");
    }
}
