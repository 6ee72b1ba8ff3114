//! The URL shortener: ten links a minute for each address.

use std::time::{SystemTime, UNIX_EPOCH};

use slidegate_testbed::http1::response;
use slidegate_testbed::{Gateway, RedisServer, Upstream};

use crate::example::{Example, number, send};

fn shortener() -> (Gateway, Upstream, RedisServer) {
    let upstream = Upstream::answering(|request| match request.start().split(' ').next() {
        Some("POST") => response("201 Created", "", "{\"slug\":\"1\"}"),
        _ => response("302 Found", "Location: https://example.com/\r\n", ""),
    });
    let redis = RedisServer::start();
    let gateway = Example::load("url-shortener.toml").start(&upstream, &redis);
    (gateway, upstream, redis)
}

fn posts(gateway: &Gateway, client: &str, count: usize) -> Vec<u16> {
    let mut wire = gateway.wire();
    (0..count).map(|_| send(&mut wire, "POST /shorten", client, "").status()).collect()
}

#[test]
fn of_fifteen_links_ten_are_made_and_five_refused() {
    let (gateway, upstream, redis) = shortener();
    let statuses = posts(&gateway, "203.0.113.7", 15);
    assert_eq!(statuses, [[201; 10].as_slice(), &[429; 5]].concat());
    assert_eq!(upstream.received().len(), 10, "the refused never got there");

    let refused = send(&mut gateway.wire(), "POST /shorten", "203.0.113.7", "");
    assert_eq!(refused.text(), "{\"error\":\"Too Many Requests\"}");
    assert_eq!(refused.value("content-type").as_deref(), Some("application/json"));
    assert!((1..=61).contains(&number(&refused, "retry-after")), "{}", refused.head);
    assert!(refused.values("x-ratelimit-limit").is_empty(), "{}", refused.head);

    let key = "rate_limit:203.0.113.7:post_shorten";
    assert_eq!(redis.command(&["TYPE", key]).text(), "zset");
    assert_eq!(redis.command(&["ZCARD", key]).integer(), 10);
}

#[test]
fn links_can_be_followed_and_others_can_make_them() {
    let (gateway, _upstream, _redis) = shortener();
    assert_eq!(posts(&gateway, "203.0.113.7", 11)[10], 429);
    let mut wire = gateway.wire();
    for _ in 0..30 {
        assert_eq!(send(&mut wire, "GET /1", "203.0.113.7", "").status(), 302);
    }
    assert_eq!(posts(&gateway, "203.0.113.8", 10), [201; 10]);
    // Caddy adds the address that it sees to whatever a client says.
    let forged = send(&mut wire, "POST /shorten", "198.51.100.1, 203.0.113.7", "");
    assert_eq!(forged.status(), 429);
    assert_eq!(send(&mut wire, "POST //shorten", "203.0.113.7", "").status(), 429, "a detour");
}

#[test]
fn what_an_old_instance_has_admitted_counts() {
    let (gateway, _upstream, redis) = shortener();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    for n in 0..4 {
        let (score, member) = (now.to_string(), format!("{now}-{n}"));
        redis.command(&["ZADD", "rate_limit:203.0.113.7:post_shorten", &score, &member]);
    }
    let statuses = posts(&gateway, "203.0.113.7", 8);
    assert_eq!(statuses, [[201; 6].as_slice(), &[429; 2]].concat());
}

#[test]
fn without_redis_links_are_still_made() {
    let (gateway, _upstream, redis) = shortener();
    redis.kill();
    assert_eq!(posts(&gateway, "203.0.113.7", 15), [201; 15]);
}
