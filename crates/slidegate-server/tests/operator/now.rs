//! What a server says that it is doing now, against what it was made to do.

use std::collections::HashSet;
use std::time::Instant;

use serde_json::{Value, json};
use slidegate_testbed::{RedisServer, Upstream, Wire, wait_until};

use crate::terminal::{Operator, for_many_clients, passing_at};
use crate::unlimited;

fn now(operator: &Operator) -> Value {
    let (status, now) = operator.ask("GET", "/v1/now", "");
    assert_eq!(status, 200, "{now}");
    now
}

fn series<'n>(now: &'n Value, policy: &str) -> Option<&'n Value> {
    now["policies"].as_array().unwrap().iter().find(|series| series["policy"] == policy)
}

/// All steps of a list together; none if there is no step yet.
fn sum(now: &Value, policy: &str, list: &str) -> u64 {
    let steps = series(now, policy).map(|series| series[list].as_array().unwrap().clone());
    steps.unwrap_or_default().iter().map(|count| count.as_u64().unwrap()).sum()
}

fn sums(now: &Value, policy: &str) -> [u64; 5] {
    ["allowed", "refused", "shadow", "candidate", "failed"].map(|list| sum(now, policy, list))
}

#[test]
fn counts_are_those_of_the_traffic_and_outlive_a_reload() {
    let upstream = Upstream::simple();
    let setup = for_many_clients(&upstream)
        .policy("api", "3/h", "match = { path = \"/\" }")
        .policy("trial", "1/h", "shadow = true")
        .policy("banning", "1/h", "ban = { after = \"1/h\", for = \"1h\" }\nmatch.path = \"/b\"");
    let gateway = setup.start();
    let operator = Operator::of(&gateway);
    assert_eq!(passing_at(&gateway, "/", "10.0.0.1", 5), 3);
    assert_eq!(passing_at(&gateway, "/b", "10.0.0.2", 4), 1);
    let mut found = Value::Null;
    wait_until("the first step", || {
        found = now(&operator);
        sum(&found, "banning", "refused") == 3
    });
    let requests = ["allowed", "refused", "unavailable"].map(|list| {
        let steps = found["requests"][list].as_array().unwrap();
        steps.iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
    });
    assert_eq!(requests, [4, 5, 0], "each once: {found}");
    assert_eq!(sums(&found, "api"), [3, 2, 0, 0, 0], "{found}");
    assert_eq!(
        sums(&found, "banning"),
        [1, 3, 0, 0, 0],
        "a denial, and two of the banned: {found}"
    );
    // Of the requests that were denied, it was asked too; not of those that were banned.
    assert_eq!(sums(&found, "trial")[2], 5, "{found}");
    assert_eq!(found["step_ms"], 5000);
    assert_eq!(
        (&found["store"]["kind"], &found["store"]["state"]),
        (&json!("memory"), &json!("ready"))
    );
    assert!(found["store"]["accounts"].as_u64().unwrap() >= 4, "{found}");
    assert_eq!(found["store"]["capacity"], 1_000_000);
    assert_eq!(found["reload"]["restart_needed"], json!([]));
    let [this] = &found["gateways"].as_array().unwrap()[..] else { panic!("{found}") };
    assert!(this["name"].as_str().unwrap().ends_with(&format!(":{}", gateway.pid())), "{this}");
    assert_eq!((&this["this"], &this["version"]), (&json!(true), &found["version"]));
    let p99_us = found["decision_time"]["p99_us"].as_array().unwrap();
    let p99_us = p99_us.iter().find_map(Value::as_f64).expect("there were decisions");
    assert!(p99_us > 0.0 && p99_us < 10_000_000.0, "{p99_us}");

    let other = setup.timeouts("drain = \"7s\"").policy("late", "9/h", "match.path = \"/late\"");
    gateway.reconfigure(&other.text());
    wait_until("the reload", || {
        found = now(&operator);
        found["reload"]["restart_needed"] == json!(["gateway"])
    });
    assert!(found["reload"]["last"].as_str() > found["started"].as_str(), "{found}");
    wait_until("the next step", || {
        found = now(&operator);
        series(&found, "late").is_some()
    });
    assert_eq!(sums(&found, "api"), [3, 2, 0, 0, 0], "{found}");
    let steps = found["decision_time"]["p50_us"].as_array().unwrap().len();
    for series in found["policies"].as_array().unwrap() {
        for list in ["allowed", "refused", "shadow", "candidate", "failed"] {
            assert_eq!(series[list].as_array().unwrap().len(), steps, "{list} of {series}");
        }
    }
    gateway.reconfigure("[gateway]\nlisten = 7");
    wait_until("the failure", || now(&operator)["reload"]["failures"] == 1);
    gateway.reconfigure(&other.text());
    wait_until("a good reload", || now(&operator)["reload"]["failures"] == 0);
    assert_eq!(
        gateway.metric("slidegate_config_reloads_total", "failed"),
        1.0,
        "the counter stays"
    );
}

#[test]
fn gateways_on_one_redis_see_each_other_and_say_what_they_do_without_it() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let store = format!("[store]\nkind = \"redis\"\nurl = {:?}", redis.url());
    let setup = for_many_clients(&upstream).tables(&store).policy("api", "100/h", "");
    let (one, two) = (setup.start(), setup.start());
    let (here, there) = (Operator::of(&one), Operator::of(&two));
    let names = |operator: &Operator| {
        let found = now(operator);
        let gateways = found["gateways"].as_array().unwrap().iter();
        gateways.map(|gateway| gateway["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let is_of = |name: &str, pid: u32| name.ends_with(&format!(":{pid}"));
    wait_until("both to be known to both", || names(&here).len() == 2 && names(&there).len() == 2);
    assert!(is_of(&names(&here)[0], one.pid()) && is_of(&names(&here)[1], two.pid()));
    assert!(is_of(&names(&there)[0], two.pid()) && is_of(&names(&there)[1], one.pid()));
    let found = now(&here);
    let store = &found["store"];
    assert_eq!((&store["kind"], &store["breaker"]), (&json!("redis"), &json!("closed")), "{store}");
    assert_eq!(store["url"], format!("127.0.0.1:{}", redis.port()));
    assert_eq!((&store["state"], &store["decided_locally"]), (&json!("ready"), &json!(0)));
    two.signal("TERM");
    assert_eq!(two.wait(), Some(0));
    wait_until("the one that has stopped to be gone", || names(&here).len() == 1);

    redis.kill();
    assert_eq!(passing_at(&one, "/", "10.0.0.1", 20), 20, "counted here");
    let mut found = Value::Null;
    wait_until("the outage to be reported", || {
        found = now(&here);
        found["store"]["state"] == "degraded" && sum(&found, "api", "failed") == 20
    });
    let store = &found["store"];
    assert_eq!(store["breaker"], "open", "{store}");
    let reason = "Redis circuit breaker open; each policy's on_store_error applies";
    assert_eq!(store["reason"], reason);
    assert_eq!(store["decided_locally"], 20, "{store}");
    assert_eq!(here.run(&["health"]), format!("degraded: {reason}\n"));
    let text = here.run(&["top"]);
    assert!(text.contains(&format!("\ndegraded: {reason}\n")), "{text}");
}

#[test]
fn a_thousand_answers_are_made_once_a_second_and_delay_no_request() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    let mut pages: Vec<Wire> = (0..200).map(|_| Wire::connect(gateway.admin())).collect();
    let (began, mut answers) = (Instant::now(), HashSet::new());
    for _ in 0..5 {
        for page in &mut pages {
            page.send("GET /v1/now HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        }
        assert_eq!(gateway.status("/"), 200);
        answers.extend(pages.iter_mut().map(|page| page.response().text()));
    }
    let seconds = began.elapsed().as_secs() as usize;
    assert!(answers.len() <= seconds + 2, "{} answers in {seconds} s", answers.len());
}
