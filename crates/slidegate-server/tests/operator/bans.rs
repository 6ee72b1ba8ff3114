//! Bans that policies begin: at several gateways on one Redis, and after a restart.

use std::time::{Duration, Instant};

use slidegate_testbed::{Directory, Gateway, GatewayOptions, RedisServer, Upstream, wait_until};

use crate::options;
use crate::terminal::{Operator, WITHIN_A_SECOND, for_many_clients, passes, passing, passing_at};

const CLIENT: &str = "10.0.0.1";
const IDENTITY: &str = "ip:10.0.0.1";
const BAN: &str = "ban = { after = \"3/h\", for = \"1h\" }";

fn on_redis(upstream: &Upstream, redis: &RedisServer) -> GatewayOptions {
    let store = format!("[store]\nkind = \"redis\"\nurl = {:?}\ndeadline = \"2s\"", redis.url());
    // So that only the ban refuses where nothing was spent.
    for_many_clients(upstream)
        .tables(&store)
        .policy("login", "2/h", &format!("match = {{ path = \"/login\" }}\n{BAN}"))
        .policy(
            "guard",
            "2/h",
            &format!("match = {{ path = \"/guard\" }}\nscope = \"local\"\n{BAN}"),
        )
}

/// Is denied until it is banned.
fn get_banned(gateway: &Gateway, path: &str, client: &str) {
    let mut wire = gateway.wire();
    let header = format!("X-Forwarded-For: {client}\r\n");
    wait_until("a ban", || wire.get(path, &header).text().contains("requests were denied"));
}

/// Whether a ban is in force, asked in a way that counts nowhere: requests would begin one.
fn is_banned(gateway: &Gateway, policy: &str, client: &str) -> bool {
    let found = Operator::of(gateway).json(&["inspect", client, "--policy", policy]);
    found["accounts"][0]["banned_for_ms"].is_u64()
}

/// The refusal of a banned client.
fn refusal(gateway: &Gateway, path: &str, client: &str) -> String {
    gateway.get(path, &format!("X-Forwarded-For: {client}\r\n")).text()
}

#[test]
fn a_ban_that_a_policy_begins_holds_at_all_gateways_within_a_second() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis);
    let (one, two) = (setup.start(), setup.start());
    for path in ["/login", "/guard"] {
        get_banned(&one, path, CLIENT);
        let began = Instant::now();
        wait_until("the ban at the other", || is_banned(&two, &path[1..], CLIENT));
        let took = began.elapsed();
        println!("{path}: {took:?}");
        assert!(refusal(&two, path, CLIENT).contains("requests were denied"));
        assert!(took < WITHIN_A_SECOND, "{took:?}");
    }
    assert_eq!(passing_at(&two, "/guard", "10.0.0.2", 3), 2, "no other client is banned");
    assert_eq!(two.metric("slidegate_bans_adopted_total", ""), 2.0);
    assert_eq!(one.metric("slidegate_bans_adopted_total", ""), 0.0, "its own are not adopted");
    assert_eq!(one.metric("slidegate_bans_total", ""), 2.0);
    assert_eq!(two.metric("slidegate_bans_total", ""), 0.0);
    let found = Operator::of(&two).json(&["inspect", IDENTITY, "--policy", "login"]);
    let left_ms = found["accounts"][0]["banned_for_ms"].as_u64().unwrap();
    assert!((3_500_000..=3_601_000).contains(&left_ms), "{left_ms}");

    // One that is started later, and the one where it began after a restart.
    drop(one);
    for late in [setup.start(), setup.start()] {
        for path in ["/login", "/guard"] {
            let refusal = refusal(&late, path, CLIENT);
            assert!(refusal.contains("requests were denied"), "its first request: {refusal}");
        }
        assert!(passes(&late, CLIENT), "where the policies are not for it");
    }
}

#[test]
fn a_ban_ends_at_the_same_time_at_all_gateways() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis).policy(
        "short",
        "2/h",
        "match = { path = \"/short\" }\nscope = \"local\"\nban = { after = \"3/h\", for = \"4s\" }",
    );
    let (one, two) = (setup.start(), setup.start());
    get_banned(&one, "/short", CLIENT);
    let began = Instant::now();
    wait_until("the ban at the other", || is_banned(&two, "short", CLIENT));
    wait_until("its end", || passing_at(&two, "/short", CLIENT, 1) == 1);
    let took = began.elapsed();
    assert!((Duration::from_millis(3500)..Duration::from_secs(8)).contains(&took), "{took:?}");
    let late = setup.start();
    assert_eq!(passing_at(&late, "/short", CLIENT, 1), 1, "it is over for newcomers too");
}

#[test]
fn a_reset_at_one_gateway_lifts_the_ban_at_all_and_for_those_that_start_later() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis);
    let (one, two) = (setup.start(), setup.start());
    get_banned(&one, "/login", CLIENT);
    get_banned(&one, "/guard", CLIENT);
    get_banned(&one, "/guard", "10.0.0.2");
    let other = "10.0.0.2";
    wait_until("the bans at the other", || {
        is_banned(&two, "login", CLIENT) && is_banned(&two, "guard", other)
    });
    std::thread::sleep(Duration::from_secs(1));
    Operator::of(&two).run(&["reset", IDENTITY, "--reason", "a test"]);
    assert!(!is_banned(&two, "login", CLIENT), "at once where it was given");
    wait_until("the lift at the first", || !is_banned(&one, "login", CLIENT));
    // Long enough that what was read late would have been.
    std::thread::sleep(Duration::from_secs(1));
    let late = setup.start();
    for gateway in [&one, &two, &late] {
        assert!(!is_banned(gateway, "login", CLIENT) && !is_banned(gateway, "guard", CLIENT));
        assert!(is_banned(gateway, "guard", other), "no other identity's");
    }
    // It can be banned again, everywhere.
    get_banned(&late, "/guard", CLIENT);
    wait_until("the new ban", || {
        is_banned(&one, "guard", CLIENT) && is_banned(&two, "guard", CLIENT)
    });
}

#[test]
fn a_ban_that_begins_while_redis_is_gone_is_shared_when_it_is_back() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis);
    let (one, two) = (setup.start(), setup.start());
    get_banned(&one, "/guard", "10.0.0.9");
    wait_until("the first ban at the other", || is_banned(&two, "guard", "10.0.0.9"));
    redis.kill();
    get_banned(&one, "/guard", CLIENT);
    wait_until("the log", || one.output().contains("cannot exchange with other gateways"));
    assert!(is_banned(&one, "guard", CLIENT) && is_banned(&two, "guard", "10.0.0.9"));
    assert!(!is_banned(&two, "guard", CLIENT), "Redis is down");
    // It comes back empty, and gets again what it has lost.
    redis.restart();
    wait_until("the ban at the other", || is_banned(&two, "guard", CLIENT));
    wait_until("the log again", || {
        one.output().contains("exchanging with other gateways through Redis again")
    });
    wait_until("a newcomer that knows both", || {
        let late = setup.start();
        is_banned(&late, "guard", CLIENT) && is_banned(&late, "guard", "10.0.0.9")
    });
}

#[test]
fn many_bans_at_once_are_all_shared() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis).policy(
        "strict",
        "1/h",
        "match = { path = \"/strict\" }\nscope = \"local\"\nban = { after = \"1/h\", for = \"1h\" }",
    );
    let (one, two) = (setup.start(), setup.start());
    let mut wire = one.wire();
    for client in 0..1200 {
        let header = format!("X-Forwarded-For: 10.1.{}.{}\r\n", client / 250, client % 250);
        wire.get("/strict", &header);
        assert_eq!(wire.get("/strict", &header).status(), 429);
    }
    assert_eq!(one.metric("slidegate_bans_total", ""), 1200.0);
    wait_until("all of them at the other", || {
        two.metric("slidegate_bans_adopted_total", "") == 1200.0
    });
    let late = setup.start();
    assert_eq!(late.metric("slidegate_bans_adopted_total", ""), 1200.0, "in several readings");
    assert_eq!(one.metric("slidegate_bans_not_shared_total", ""), 0.0);
}

#[test]
fn without_redis_the_snapshot_keeps_bans() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("accounts");
    let setup = for_many_clients(&upstream)
        .policy("guard", "2/h", &format!("scope = \"local\"\n{BAN}"))
        .tables(&format!("[store]\nsnapshot = {{ file = {file:?} }}"));
    let first = setup.start();
    get_banned(&first, "/", CLIENT);
    assert!(passes(&first, "10.0.0.2"));
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0), "{}", first.output());
    let second = setup.start();
    assert!(is_banned(&second, "guard", CLIENT));
    assert_eq!(passing(&second, "10.0.0.2", 3), 1);
    Operator::of(&second).run(&["reset", IDENTITY, "--reason", "a test"]);
    second.signal("TERM");
    assert_eq!(second.wait(), Some(0), "{}", second.output());
    let third = setup.start();
    assert!(!is_banned(&third, "guard", CLIENT), "it was lifted");

    drop(third);
    let bans = directory.file("accounts.bans");
    std::fs::write(&bans, "half a fi").unwrap();
    let failed = options().configuration(&setup.text()).spawn();
    assert_eq!(failed.wait(), Some(1), "{}", failed.output());
    assert!(failed.output().contains("accounts.bans; move the file away"), "{}", failed.output());
}

#[test]
fn an_operators_ban_says_that_the_operator_suspended_access() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream).policy("api", "1000/h", BAN).start();
    Operator::of(&gateway).run(&["ban", IDENTITY, "--for", "1h", "--reason", "a test"]);
    let answer = gateway.get("/", &format!("X-Forwarded-For: {CLIENT}\r\n"));
    assert_eq!(answer.problem(), 403);
    let text = answer.text();
    assert!(text.contains("Access was suspended by the operator."), "{text}");
    for claim in ["denied", "Too", "abnormal", "quota"] {
        assert!(!text.contains(claim), "{text}");
    }
    let retry_after: u64 = answer.value("retry-after").unwrap().parse().unwrap();
    assert!((3590..=3600).contains(&retry_after), "{retry_after}");
    assert_eq!(gateway.metric("slidegate_blocks_total", "reason=\"suspended\""), 1.0);
}
