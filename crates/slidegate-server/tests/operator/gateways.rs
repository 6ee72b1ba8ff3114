//! Several gateways on one Redis: an operator's change at one applies at all.

use std::time::{Duration, Instant};

use slidegate_testbed::{
    CommandCounts, Gateway, GatewayOptions, ManualTime, RedisServer, Upstream, wait_until,
};

use crate::terminal::{Operator, WITHIN_A_SECOND, for_many_clients, passes, passing_at};

const CLIENT: &str = "10.0.0.1";
const IDENTITY: &str = "ip:10.0.0.1";

fn on_redis(upstream: &Upstream, redis: &RedisServer) -> GatewayOptions {
    let store = format!("[store]\nkind = \"redis\"\nurl = {:?}\ndeadline = \"2s\"", redis.url());
    for_many_clients(upstream).tables(&store)
}

/// Waits, and fails if that took much longer than a second.
fn soon(what: &str, began: Instant, condition: impl FnMut() -> bool) {
    wait_until(what, condition);
    let took = began.elapsed();
    println!("{what}: {took:?}");
    assert!(took < WITHIN_A_SECOND, "{what}: {took:?}");
}

#[test]
fn an_override_given_to_one_gateway_holds_at_the_other_within_a_second() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis)
        .policy("api", "10000/h", "match = { path = \"/\" }")
        .policy("small", "2/h", "match = { path = \"/small\" }");
    let (one, two) = (setup.start(), setup.start());
    let (here, there) = (Operator::of(&one), Operator::of(&two));

    here.run(&["ban", IDENTITY, "--for", "1h", "--reason", "a test"]);
    let began = Instant::now();
    assert!(!passes(&one, CLIENT), "at once where it was given");
    soon("the ban at the other", began, || !passes(&two, CLIENT));
    let [ban] = &there.overrides()[..] else { panic!("one override") };
    assert_eq!(here.overrides()[..], there.overrides()[..]);

    there.run(&["lift", ban, "--reason", "over"]);
    let began = Instant::now();
    assert!(passes(&two, CLIENT), "at once where it was given");
    soon("the lift at the first", began, || passes(&one, CLIENT));

    let small = |gateway: &Gateway| passing_at(gateway, "/small", CLIENT, 9);
    assert_eq!(small(&one) + small(&two), 2);
    here.run(&["grant", IDENTITY, "3", "--policy", "small", "--for", "1h", "--reason", "a test"]);
    let began = Instant::now();
    let mut passed = 0;
    soon("the grant at the other", began, || {
        passed += small(&two);
        passed > 0
    });
    assert_eq!(passed + small(&one), 3, "three more, at both together");

    there.run(&["exempt", "10.0.0.2", "--for", "1h", "--reason", "a test"]);
    let began = Instant::now();
    soon("the exemption at the first", began, || passing_at(&one, "/small", "10.0.0.2", 9) == 9);
}

#[test]
fn a_reset_is_done_at_all_gateways_also_in_what_each_has_by_itself() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis)
        .policy("guard", "3/h", "scope = \"local\"\nmatch = { path = \"/guard\" }")
        .policy("warm", "4/h", "match = { path = \"/warm\" }")
        .policy(
            "api",
            "2/h",
            "match = { path = \"/api\" }\nban = { after = \"2/h\", for = \"1h\" }",
        );
    let (one, two) = (setup.start(), setup.start());
    assert_eq!(passing_at(&one, "/guard", CLIENT, 5), 3);
    assert_eq!(passing_at(&two, "/guard", CLIENT, 5), 3, "each has its own");
    assert_eq!(passing_at(&two, "/api", CLIENT, 6), 2, "and then a ban of its own");
    assert_eq!(passing_at(&two, "/warm", CLIENT, 6), 4);
    let found = Operator::of(&two).json(&["inspect", IDENTITY, "--policy", "api"]);
    assert!(found["accounts"][0]["banned_for_ms"].as_u64().unwrap() > 3_000_000, "{found}");

    // What was spent so shortly before that it may have been after is held.
    std::thread::sleep(Duration::from_secs(1));
    Operator::of(&one).run(&["reset", IDENTITY, "--reason", "a test"]);
    let began = Instant::now();
    assert_eq!(passing_at(&one, "/guard", CLIENT, 5), 3, "at once where it was given");
    let mut passed = 0;
    soon("the reset at the other", began, || {
        passed += passing_at(&two, "/guard", CLIENT, 1);
        passed == 1
    });
    assert_eq!(passing_at(&two, "/guard", CLIENT, 5), 2, "once, and not again and again");
    soon("the end of its ban", began, || passing_at(&two, "/api", CLIENT, 1) == 1);
    redis.kill();
    assert_eq!(passing_at(&two, "/warm", CLIENT, 6), 4, "also in what it knows without Redis");
}

#[test]
fn what_is_spent_after_a_reset_counts_whether_or_not_the_others_have_heard_of_it() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis)
        .policy("guard", "1/h", "scope = \"local\"\nmatch = { path = \"/guard\" }")
        .policy("api", "5/h", "match = { path = \"/api\" }");
    let (one, two) = (setup.start(), setup.start());
    assert_eq!(passing_at(&two, "/guard", CLIENT, 2), 1);
    assert_eq!(passing_at(&two, "/api", CLIENT, 9), 5);

    Operator::of(&one).run(&["reset", IDENTITY, "--reason", "a test"]);
    let mut passed = passing_at(&one, "/api", CLIENT, 2);
    assert_eq!(passed, 2, "at once where it was given");
    wait_until("the reset at the other", || {
        passed += passing_at(&two, "/api", CLIENT, 1);
        passing_at(&two, "/guard", CLIENT, 1) == 1
    });
    passed += passing_at(&two, "/api", CLIENT, 9) + passing_at(&one, "/api", CLIENT, 9);
    assert_eq!(passed, 5, "no more than the quota, at both together");
}

#[test]
fn while_redis_is_gone_overrides_stay_and_new_ones_are_refused_until_it_is_back() {
    let (redis, upstream) = (RedisServer::options().appendonly().start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis).policy("api", "1000/h", "");
    let (one, two) = (setup.start(), setup.start());
    Operator::of(&one).run(&["ban", IDENTITY, "--for", "1h", "--reason", "a test"]);
    wait_until("the ban at the other", || !passes(&two, CLIENT));
    redis.kill();
    let operator = Operator::of(&two);
    wait_until("it to be noticed", || operator.json(&["overrides"])["stale"] == true);
    assert!(operator.run(&["overrides"]).contains("Redis cannot be read"));
    let logged = |gateway: &Gateway, text: &str| gateway.output().matches(text).count();
    let lost =
        "cannot exchange with other gateways through Redis; overrides last read stay in force";
    wait_until("the log", || logged(&two, lost) > 0);
    for gateway in [&one, &two] {
        assert!(!passes(gateway, CLIENT), "what was last known holds");
        assert!(passes(gateway, "10.0.0.2"), "and nothing else");
    }
    let ban = "{\"for\":\"1h\",\"reason\":\"a test\"}";
    let (status, problem) = operator.ask("POST", "/v1/accounts/ip:10.0.0.2/ban", ban);
    assert_eq!(status, 503, "{problem}");
    assert!(problem["detail"].as_str().unwrap().starts_with("cannot write to Redis"), "{problem}");
    let reset = "{\"reason\":\"x\"}";
    let (status, also) = operator.ask("POST", "/v1/accounts/ip:10.0.0.2/reset", reset);
    assert_eq!(status, 503);
    for problem in [&problem, &also] {
        let detail = problem["detail"].as_str().unwrap();
        let times = detail.matches("os error").count();
        assert!(times <= 1, "each cause is printed once: {detail}");
    }
    assert!(passes(&two, "10.0.0.2"));
    assert!(two.metric("slidegate_operator_actions_total", "outcome=\"failed\"") >= 2.0);
    // A gateway that begins without Redis begins without overrides, and has them when it is back.
    let late = setup.start();
    assert!(passes(&late, CLIENT));

    redis.restart();
    wait_until("it to be read again", || operator.json(&["overrides"])["stale"].is_null());
    wait_until("the late one to know", || !passes(&late, CLIENT));
    for gateway in [&one, &two] {
        assert!(!passes(gateway, CLIENT), "Redis has kept it");
    }
    operator.run(&["ban", "10.0.0.2", "--for", "1h", "--reason", "again"]);
    wait_until("the new one at the first", || !passes(&one, "10.0.0.2"));
    let back = "exchanging with other gateways through Redis again";
    assert_eq!(
        (logged(&two, lost), logged(&two, back)),
        (1, 1),
        "one outage, for all that is shared"
    );
}

#[test]
fn an_idle_gateway_makes_four_calls_a_second() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let gateway = on_redis(&upstream, &redis).policy("api", "9/h", "").start();
    let (before, began) = (CommandCounts::of([&redis]), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let (counts, took) = (CommandCounts::of([&redis]).since(&before), began.elapsed());
    // INFO, every ten seconds, is not among them.
    let commands = ["eval", "evalsha", "script|load", "ping"];
    let calls: u64 = commands.map(|command| counts.calls(command)).iter().sum();
    println!("{calls} calls in {took:?}: {counts:?}");
    assert!(counts.calls("hset") >= 2, "a heartbeat is among them: {counts:?}");
    let most = took.as_millis().div_ceil(250) as u64 + 1;
    assert!((1..=most).contains(&calls), "{calls} calls in {took:?}: {counts:?}");
    drop(gateway);
}

#[test]
fn a_gateway_that_is_started_again_has_the_overrides_before_its_first_request() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis).policy("api", "1000/h", "");
    let first = setup.start();
    Operator::of(&first).run(&["ban", IDENTITY, "--for", "1h", "--reason", "a test"]);
    Operator::of(&first).run(&["reset", "ip:10.0.0.3", "--reason", "in Redis for a while"]);
    drop(first);
    let second: Gateway = setup.start();
    assert!(!passes(&second, CLIENT));
    assert_eq!(Operator::of(&second).overrides().len(), 1);
}

#[test]
fn overrides_go_by_redis_clock_however_far_off_those_of_the_gateways_are() {
    // It stands still in January 2026, months before the gateways' clocks.
    let time = ManualTime::new();
    let (redis, upstream) = (RedisServer::options().time(&time).start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis).policy("api", "1000/h", "");
    let (one, two) = (setup.start(), setup.start());
    let operator = Operator::of(&one);
    let taken = operator.json(&["ban", IDENTITY, "--for", "1h", "--reason", "a test"]);
    let until = taken["override"]["until"].as_str().unwrap();
    assert!(until.starts_with("2026-01-01T01:0"), "{until}");
    wait_until("the ban at the other", || !passes(&two, CLIENT));
    let arguments = ["ban", "10.0.0.2", "--until", "2026-01-01T06:00:00Z", "--reason", "a test"];
    operator.run(&arguments);
    wait_until("the other ban at the other", || !passes(&two, "10.0.0.2"));
    let past = ["ban", "10.0.0.3", "--until", "2025-12-31T00:00:00Z", "--reason", "a test"];
    assert!(operator.fail(&past).contains("that time is over; it is 2026-01-01T00:0"));
    operator.run(&["ban", "10.0.0.4", "--for", "8s", "--reason", "a test"]);
    wait_until("the short one at the other", || !passes(&two, "10.0.0.4"));
    wait_until("its end", || passes(&two, "10.0.0.4"));
}

#[test]
fn a_redis_that_has_lost_everything_gets_the_overrides_again_but_not_the_lifted_ones() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(&upstream, &redis).policy("api", "10000/h", "");
    let (one, two) = (setup.start(), setup.start());
    let operator = Operator::of(&one);
    operator.run(&["ban", IDENTITY, "--for", "1h", "--reason", "a test"]);
    let other = operator.json(&["ban", "10.0.0.2", "--for", "1h", "--reason", "a test"]);
    wait_until("both at the other", || !passes(&two, CLIENT) && !passes(&two, "10.0.0.2"));
    operator.run(&["lift", other["override"]["id"].as_str().unwrap(), "--reason", "over"]);
    wait_until("the lift at the other", || passes(&two, "10.0.0.2"));
    redis.kill();
    redis.restart();
    let key = "slidegate:shared:{gateways}:entries";
    assert_eq!(redis.command(&["EXISTS", key]).integer(), 0, "it has forgotten");
    wait_until("the heartbeat", || redis.command(&["EXISTS", key]).integer() == 1);
    let late = setup.start();
    for gateway in [&one, &two, &late] {
        assert!(!passes(gateway, CLIENT) && passes(gateway, "10.0.0.2"));
        assert_eq!(Operator::of(gateway).overrides().len(), 1);
    }
    assert!(Operator::of(&late).run(&["overrides"]).contains("a test"));
}

#[test]
fn gateways_that_do_not_agree_on_a_policy_and_an_evicting_redis_are_degraded() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup =
        |quota| on_redis(&upstream, &redis).policy("api", quota, "").policy("same", "9/h", "");
    let one = setup("5/h").start();
    wait_until("the first to be ready", || {
        one.admin_page("/readyz").text().contains("\"degraded\":false")
    });
    let two = setup("8/h").start();
    let reason = "another gateway on this Redis defines api in another way";
    for gateway in [&one, &two] {
        wait_until("both to say so", || gateway.admin_page("/readyz").text().contains(reason));
        assert_eq!(gateway.metric("slidegate_policy_conflicts", ""), 1.0);
        let warned = gateway.output().matches("has a policy of this name").count();
        assert_eq!(warned, 1, "once, and not of the policy that is the same");
    }
    let now = Operator::of(&one).run(&["top"]);
    assert!(now.contains(reason), "{now}");
    drop(two);
    wait_until("the first to be alone", || {
        one.admin_page("/readyz").text().contains("\"degraded\":false")
    });
    drop(one);

    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).expect_ok();
    let gateway = setup("5/h").start();
    wait_until("the gateway to say so", || {
        gateway.admin_page("/readyz").text().contains("maxmemory-policy allkeys-lru")
    });
    assert_eq!(gateway.metric("slidegate_redis_evicts", ""), 1.0);
    assert_eq!(gateway.metric("slidegate_redis_evicted_keys_total", ""), 0.0);
}
