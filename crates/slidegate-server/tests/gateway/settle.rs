//! Units that programs hold at one gateway and settle at any.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slidegate_testbed::{Directory, Gateway, GatewayOptions, RedisServer, Upstream, wait_until};

use crate::redis::on_redis;
use crate::{configure, options};

const LISTEN: &str = "listen = \"127.0.0.1:0\"";

fn with_decisions(setup: GatewayOptions) -> GatewayOptions {
    setup.tables(&format!("[decisions]\n{LISTEN}"))
}

fn ask(gateway: &Gateway, question: &Value) -> Value {
    serde_json::from_slice(&gateway.post("/v1/decide", &question.to_string()).body).unwrap()
}

/// The id of units that are held for a user.
fn hold(gateway: &Gateway, user: &str, units: u32) -> Value {
    let answer = ask(gateway, &json!({"user": user, "hold": units}));
    assert_eq!(answer["verdict"], "allow", "{answer}");
    answer["id"].clone()
}

fn settle(gateway: &Gateway, id: &Value, units: u32) -> u16 {
    gateway.post("/v1/settle", &json!({"id": id, "units": units}).to_string()).status()
}

fn refund(gateway: &Gateway, id: &Value) -> u16 {
    gateway.post("/v1/refund", &json!({"id": id}).to_string()).status()
}

/// What is left for a user of every policy but leased ones.
fn left(gateway: &Gateway, user: &str) -> Vec<u64> {
    let peeked = gateway.post("/v1/decide?peek=true", &json!({"user": user}).to_string()).text();
    let peeked: Value = serde_json::from_str(&peeked).unwrap();
    let standings = peeked["standings"].as_array().unwrap().iter();
    let own = standings.filter(|own| own["policy"] != "leased");
    own.map(|own| own["remaining"].as_u64().unwrap()).collect()
}

#[test]
fn what_one_gateway_holds_another_settles_once() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = with_decisions(on_redis(configure(&upstream), &redis.url()));
    // The other does not know the policy.
    let one = setup.clone().policy("tokens", "1000/min", "identity = [\"user\"]").start();
    let two = setup.policy("other", "7/min", "identity = [\"user\"]").start();
    for (user, units, remaining) in
        [("less", 30, 970), ("as-held", 100, 900), ("more", 250, 750), ("none", 0, 1000)]
    {
        let id = hold(&one, user, 100);
        assert_eq!(left(&one, user), [900]);
        assert_eq!(settle(&two, &id, units), 200, "{user}");
        assert_eq!(left(&one, user), [remaining], "{user}");
        for gateway in [&one, &two] {
            assert_eq!((settle(gateway, &id, 7), refund(gateway, &id)), (409, 409), "{user}");
        }
        assert_eq!(left(&one, user), [remaining], "{user}");
    }
    let id = hold(&one, "back", 100);
    assert_eq!(refund(&two, &id), 204);
    assert_eq!(left(&one, "back"), [1000]);

    // What is used beyond the quota closes the account.
    let id = hold(&one, "greedy", 1);
    assert_eq!(settle(&two, &id, 4_000_000), 200);
    let answer = ask(&one, &json!({"user": "greedy"}));
    assert_eq!(answer["verdict"], "deny");
    let wait = answer["retry_after_ms"].as_u64().unwrap();
    assert!((50_000..=60_100).contains(&wait), "closed for one window: {answer}");
}

#[test]
fn of_settlements_at_once_from_all_gateways_one_takes_effect() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = with_decisions(on_redis(configure(&upstream), &redis.url())).policy(
        "tokens",
        "100000/min",
        "identity = [\"user\"]",
    );
    let gateways = [setup.start(), setup.start()];
    let mut expected = 100_000;
    for round in 0..20_u32 {
        let id = &hold(&gateways[0], "ann", 100);
        let settled: Vec<(u32, u16)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8_u32)
                .map(|n| {
                    let gateway = &gateways[n as usize % 2];
                    scope.spawn(move || (n * 50, settle(gateway, id, n * 50)))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let done: Vec<_> = settled.iter().filter(|(_, status)| *status == 200).collect();
        let [(units, _)] = &done[..] else { panic!("{round}: {settled:?}") };
        assert_eq!(settled.iter().filter(|(_, status)| *status == 409).count(), 7, "{settled:?}");
        expected -= u64::from(*units);
        assert_eq!(left(&gateways[1], "ann"), [expected], "{round}: {settled:?}");
    }
}

#[test]
fn local_policies_are_settled_where_they_decided() {
    let (redis, upstream, directory) = (RedisServer::start(), Upstream::simple(), Directory::new());
    let trail = directory.file("audit.jsonl");
    let cost = "cost = \"request\"";
    let setup = with_decisions(on_redis(configure(&upstream), &redis.url()))
        .policy("shared", "5/min", "identity = [\"user\"]")
        .policy("guard", "1000/min", &format!("identity = [\"user\"]\nscope = \"local\"\n{cost}"))
        .policy("leased", "100/min", "identity = [\"everyone\"]\nconsistency = \"async\"");
    let audit = format!("[audit]\nfile = {trail:?}\nevery_decision = true");
    let (one, two) = (setup.clone().tables(&audit).start(), setup.start());
    let id = hold(&one, "ann", 2);
    assert_eq!((left(&one, "ann"), left(&two, "ann")), (vec![998, 3], vec![1000, 3]));
    assert_eq!(refund(&two, &id), 204, "the shared ones");
    assert_eq!((left(&one, "ann"), left(&two, "ann")), (vec![998, 5], vec![1000, 5]));
    assert_eq!(refund(&two, &id), 409);
    assert_eq!(refund(&one, &id), 204, "the local one");
    assert_eq!((left(&one, "ann"), left(&two, "ann")), (vec![1000, 5], vec![1000, 5]));
    assert_eq!(refund(&one, &id), 409);
    let guard = json!({"charges": [{"policy": "guard", "identity": "user:eve"}], "hold": 4});
    let id = &ask(&one, &guard)["id"];
    let got = two.post("/v1/settle", &json!({"id": id, "units": 1}).to_string());
    assert_eq!(got.status(), 404);
    assert!(got.text().contains("only the gateway that decided can settle it"), "{}", got.text());
    assert_eq!(settle(&one, id, 1), 200);

    // More than the quotas allow, if it were not given back; some of it from leases.
    let charges = json!({"charges": [{"policy": "leased", "identity": "everyone", "cost": 4}, {"policy": "shared", "identity": "user:bob"}], "refundable": true});
    for round in 0..60 {
        let answer = ask(&one, &charges);
        let gateway = if round % 2 == 0 { &one } else { &two };
        assert_eq!(answer["verdict"], "allow", "{round}: {answer}");
        assert_eq!(refund(gateway, &answer["id"]), 204, "{round}");
    }
    let count = |outcome: &str| {
        let label = format!("source=\"api\",outcome=\"{outcome}\"");
        one.metric("slidegate_settlements_total", &label)
    };
    assert_eq!(["done", "repeated", "refused"].map(count), [32.0, 1.0, 0.0]);
    wait_until("the trail", || {
        let text = fs::read_to_string(&trail).unwrap();
        text.contains(
            r#""event":"settlement","source":"api","outcome":"done","units":1,"policies":[{"policy":"guard","identity":"user:eve","held":4}]"#,
        )
    });
}

#[test]
fn a_gateway_that_is_restarted_settles_what_it_held_if_redis_has_the_key() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let in_memory =
        with_decisions(configure(&upstream)).policy("tokens", "1000/min", "identity = [\"user\"]");
    let on_redis = on_redis(in_memory.clone(), &redis.url());
    for (setup, status) in [(&on_redis, 200), (&in_memory, 404)] {
        let gateway = setup.start();
        let id = hold(&gateway, "ann", 100);
        drop(gateway);
        assert_eq!(settle(&setup.start(), &id, 30), status);
    }
    assert_eq!(left(&on_redis.start(), "ann"), [970]);
}

#[test]
fn what_a_killed_gateway_held_stays_spent_until_its_window_ends() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = with_decisions(on_redis(configure(&upstream), &redis.url())).policy(
        "tokens",
        "10/3s",
        "identity = [\"user\"]",
    );
    let (killed, other) = (setup.start(), setup.start());
    let began = Instant::now();
    let id = hold(&killed, "ann", 8);
    killed.signal("KILL");
    assert_eq!(killed.wait(), None, "a signal ended it");
    let mut spent = left(&other, "ann");
    assert_eq!(spent, [2]);
    while spent == [2] {
        thread::sleep(Duration::from_millis(20));
        spent = left(&other, "ann");
    }
    assert!(began.elapsed() >= Duration::from_millis(2900), "{:?}", began.elapsed());
    assert_eq!(spent, [10]);
    assert_eq!(settle(&other, &id, 3), 200, "its id is good for as long as any");
    assert_eq!(left(&other, "ann"), [10], "what has left the window is not given back again");
}

#[test]
fn an_id_expires_and_another_deployment_does_not_know_it() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(configure(&upstream), &redis.url())
        .tables(&format!("[decisions]\n{LISTEN}\nsettle_within = \"1s\""))
        .policy("tokens", "1000/min", "identity = [\"user\"]");
    let in_namespace = |name: &str| options().argument("--namespace").argument(name);
    let (shop, blog) =
        (setup.start_with(in_namespace("shop")), setup.start_with(in_namespace("blog")));
    let id = hold(&shop, "ann", 100);
    assert_eq!(settle(&blog, &id, 0), 404);
    thread::sleep(Duration::from_millis(1100));
    let got = shop.post("/v1/settle", &json!({"id": id, "units": 0}).to_string());
    assert_eq!(got.status(), 404);
    assert!(got.text().contains("older than decisions.settle_within allows"), "{}", got.text());
    assert_eq!(left(&shop, "ann"), [900]);
}

#[test]
fn without_redis_a_settlement_is_tried_again_with_the_same_id() {
    let (redis, upstream) = (RedisServer::options().appendonly().start(), Upstream::simple());
    let setup = with_decisions(on_redis(configure(&upstream), &redis.url())).policy(
        "tokens",
        "1000/min",
        "identity = [\"user\"]",
    );
    let (one, two) = (setup.start(), setup.start());
    let (id, more) = (hold(&one, "ann", 100), hold(&one, "bob", 100));
    redis.kill();
    for gateway in [&one, &two] {
        for (id, units) in [(&id, 30), (&more, 250)] {
            let got = gateway.post("/v1/settle", &json!({"id": id, "units": units}).to_string());
            assert_eq!(got.status(), 503);
            assert!(got.text().contains("try again with the same id"), "{}", got.text());
        }
        let failed = "source=\"api\",outcome=\"failed\"";
        assert_eq!(gateway.metric("slidegate_settlements_total", failed), 2.0);
    }
    // What is decided without Redis is in the process that decided, until it is replayed.
    let degraded = hold(&one, "joe", 100);
    assert_eq!(settle(&two, &degraded, 30), 404);
    assert_eq!(settle(&one, &degraded, 30), 200);
    assert_eq!(settle(&one, &degraded, 0), 409);
    // One that has no key yet cannot know whether an id is good.
    let late = setup.start();
    let got = late.post("/v1/settle", &json!({"id": id, "units": 30}).to_string());
    assert_eq!(got.status(), 503);
    assert!(got.text().contains("not read from Redis yet: try again"), "{}", got.text());
    redis.restart();
    wait_until("it to be settled", || settle(&late, &id, 30) == 200);
    wait_until("the others to know", || settle(&one, &id, 30) == 409);
    wait_until("the others to know", || settle(&two, &id, 30) == 409);
    wait_until("Redis to decide again", || left(&two, "ann") == [970]);
    assert_eq!([&one, &two].map(|gateway| settle(gateway, &more, 250)), [200, 409]);
    assert_eq!(left(&two, "bob"), [750]);
    wait_until("the replay", || left(&two, "joe") == [970]);
    assert_eq!(settle(&one, &degraded, 0), 409, "it was settled before the replay");
    assert_eq!(left(&two, "joe"), [970]);
}

#[test]
fn an_id_is_the_same_for_redis_clients_and_for_programs() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = with_decisions(on_redis(configure(&upstream), &redis.url()))
        .tables(&format!("[resp]\n{LISTEN}"))
        .policy("tokens", "1000/min", "identity = [\"user\"]");
    let (one, two) = (setup.start(), setup.start());
    let command = |gateway: &Gateway, words: &[&str]| -> Vec<String> {
        let mut stream = BufReader::new(TcpStream::connect(gateway.address("resp")).unwrap());
        let mut sent = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| sent += &format!("${}\r\n{word}\r\n", word.len()));
        stream.get_mut().write_all(format!("{sent}*1\r\n$4\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut lines: Vec<String> = stream.lines().map(Result::unwrap).collect();
        assert_eq!(lines.pop().unwrap(), "+OK");
        lines
    };
    let reply = command(&one, &["SLIDEGATE.HOLD", "tokens", "user:ann", "UNITS", "100"]);
    let id = json!(reply.last().unwrap());
    assert_eq!(settle(&two, &id, 30), 200, "{reply:?}");
    assert_eq!(left(&one, "ann"), [970]);
    let id = hold(&two, "ann", 70);
    assert_eq!(command(&one, &["SLIDEGATE.SETTLE", id.as_str().unwrap(), "100"]), [":1"]);
    assert_eq!(command(&two, &["SLIDEGATE.SETTLE", id.as_str().unwrap(), "100"]), [":0"]);
    assert_eq!(left(&one, "ann"), [870]);
    let done = "source=\"resp\",outcome=\"done\"";
    assert_eq!(one.metric("slidegate_settlements_total", done), 1.0);
}

#[test]
fn what_was_used_is_recorded_for_all_gateways() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = with_decisions(on_redis(configure(&upstream), &redis.url())).policy(
        "tokens",
        "1000/min",
        "identity = [\"user\"]",
    );
    let (one, two) = (setup.start(), setup.start());
    let record = |gateway: &Gateway, units: u32| -> Value {
        let charge = json!({"policy": "tokens", "identity": "user:ann", "cost": units});
        let got = gateway.post("/v1/record", &json!({"charges": [charge]}).to_string());
        serde_json::from_slice(&got.body).unwrap()
    };
    // The sequence that a limiter without records gets wrong: 900 spent, then 600, 600 and 5000.
    assert_eq!(record(&one, 900)["verdict"], "allow");
    assert_eq!(left(&two, "ann"), [100]);
    for units in [600, 600, 5000] {
        let answer = record(&two, units);
        assert_eq!(answer["verdict"], "deny", "{answer}");
        assert_eq!(ask(&one, &json!({"user": "ann"}))["verdict"], "deny");
    }
}

#[test]
fn an_id_is_settled_once_whatever_costs_a_second_call_brings() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let gateway = with_decisions(on_redis(configure(&upstream), &redis.url()))
        .policy("requests", "60/min", "identity = [\"user\"]\ncost = 1")
        .policy("tokens", "10000/min", "identity = [\"user\"]")
        .start();
    type Settle = fn(&Gateway, &Value) -> u16;
    let calls: [(&str, Settle, [u64; 2]); 3] = [
        ("refunded", |gateway, id| refund(gateway, id), [60, 10_000]),
        ("one", |gateway, id| settle(gateway, id, 1), [59, 9999]),
        ("many", |gateway, id| settle(gateway, id, 900), [59, 9100]),
    ];
    for (user, first, remaining) in calls {
        let id = hold(&gateway, user, 500);
        assert!(first(&gateway, &id) < 300);
        assert_eq!(left(&gateway, user), remaining, "{user}");
        for units in [0, 1, 500, 900] {
            assert_eq!(settle(&gateway, &id, units), 409, "{user}, then {units}");
        }
        assert_eq!(refund(&gateway, &id), 409, "{user}");
        assert_eq!(left(&gateway, user), remaining, "{user}");
    }
}
