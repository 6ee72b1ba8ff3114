//! Keys that Redis clients make up: accounts like any other.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use slidegate_testbed::http1::IO_TIMEOUT;
use slidegate_testbed::{Gateway, RedisServer, Upstream};

use crate::configure;
use crate::terminal::Operator;

const RESP: &str = "[resp]\nlisten = \"127.0.0.1:0\"";

/// The integers that a call is answered with.
fn throttle(gateway: &Gateway, call: &str) -> Vec<i64> {
    let words: Vec<&str> = ["THROTTLE"].into_iter().chain(call.split(' ')).collect();
    let bulk = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let mut stream = TcpStream::connect(gateway.address("resp")).unwrap();
    stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    let bulk: String = bulk.collect();
    let quit = "*1\r\n$4\r\nQUIT\r\n";
    write!(stream, "*{}\r\n{bulk}{quit}", words.len()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply.split("\r\n").filter_map(|line| line.strip_prefix(':')?.parse().ok()).collect()
}

#[test]
fn keys_are_listed_inspected_reset_banned_and_counted_under_one_label() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).tables(RESP).start();
    for left in [2, 1, 0] {
        assert_eq!(throttle(&gateway, "tenant 3 3 3600"), [1, 3, left, 3600, 0]);
    }
    assert_eq!(throttle(&gateway, "tenant 3 3 3600")[0], 0);
    let operator = Operator::of(&gateway);
    for sort in ["nearest", "denied"] {
        let list = operator.json(&["accounts", "--sort", sort]);
        let account = &list["accounts"][0];
        assert_eq!(account["identity"], "throttle:3600s:tenant", "{list}");
        assert_eq!(account["policy"], "throttle");
        assert_eq!(account["quotas"][0]["quota"], "3/h", "the quota that the client gave: {list}");
        assert_eq!(account["quotas"][0]["spent"], 3);
    }
    let found = operator.json(&["inspect", "throttle:3600s:tenant"]);
    assert_eq!(found["accounts"][0]["quotas"][0]["remaining"], 0, "{found}");

    operator.run(&["reset", "throttle:3600s:tenant", "--policy", "throttle", "--reason", "a test"]);
    assert_eq!(throttle(&gateway, "tenant 3 3 3600 3"), [1, 3, 0, 3600, 0]);
    let ban = ["--for", "1h", "--reason", "a test"];
    operator.run(&[&["ban", "throttle:3600s:other"][..], &ban].concat());
    let banned = throttle(&gateway, "other 3 3 3600");
    assert_eq!((banned[0], banned[2], banned[4]), (0, 0, 3600), "{banned:?}");
    operator.run(&["grant", "throttle:3600s:tenant", "2", "--for", "1h", "--reason", "a test"]);
    assert_eq!(throttle(&gateway, "tenant 3 3 3600"), [1, 5, 1, 3600, 0], "two more than three");

    let decisions = |verdict: &str| {
        let label = format!("policy=\"throttle\",plan=\"\",verdict=\"{verdict}\"");
        gateway.metric("slidegate_policy_decisions_total", &label)
    };
    assert_eq!((decisions("allow"), decisions("deny")), (5.0, 1.0));
    let requests = |verdict: &str| {
        let label = format!("listener=\"resp\",verdict=\"{verdict}\"");
        gateway.metric("slidegate_requests_total", &label)
    };
    assert_eq!((requests("allow"), requests("deny"), requests("block")), (5.0, 1.0, 1.0));
    assert!(!gateway.metrics().contains("tenant"), "no label is a client's");
    assert_eq!(gateway.status("/"), 200, "no request falls under the policy");
}

#[test]
fn keys_are_bounded_by_the_store_and_swept_when_they_are_over() {
    let upstream = Upstream::simple();
    let store = "[store]\nkind = \"memory\"\ncapacity = 10";
    let gateway = configure(&upstream).tables(&format!("{RESP}\n{store}")).start();
    // Twenty keys for a second, one after the other: never more than ten accounts.
    for key in 0..20 {
        throttle(&gateway, &format!("brief-{key} 1 1 1"));
        assert!(gateway.metric("slidegate_memory_accounts", "shared") <= 10.0);
    }
    std::thread::sleep(std::time::Duration::from_millis(1100));
    // They are over, and there is room for others.
    for key in 0..9 {
        let call = format!("long-{key} 1 1 3600");
        assert_eq!(throttle(&gateway, &call), [1, 1, 0, 3600, 0]);
        assert_eq!(throttle(&gateway, &call)[0], 0);
    }
    assert!(gateway.metric("slidegate_memory_accounts", "shared") <= 10.0);
}

#[test]
fn gateways_on_one_redis_share_a_key_and_its_reset() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let store = format!("[store]\nkind = \"redis\"\nurl = {:?}\ndeadline = \"2s\"", redis.url());
    let setup = configure(&upstream).tables(RESP).tables(&store);
    let (one, two) = (setup.start(), setup.start());
    // Two at once of four: an account for each window.
    assert_eq!(throttle(&one, "shared 2 4 3600")[..3], [1, 2, 1]);
    assert_eq!(throttle(&two, "shared 2 4 3600")[..3], [1, 2, 0]);
    assert_eq!(throttle(&one, "shared 2 4 3600")[0], 0);
    let operator = Operator::of(&one);
    let reset = |identity: &str, policy: &str| {
        let reset = ["reset", identity, "--policy", policy, "--reason", "a test"];
        operator.json(&reset)["nothing_spent"].clone()
    };
    assert_eq!(reset("throttle:3600s:shared", "throttle"), json!([]));
    assert_eq!(reset("throttle-burst:1800s:shared", "throttle-burst"), json!([]));
    assert_eq!(throttle(&one, "shared 2 4 3600")[..3], [1, 2, 1]);
}
