//! Which accounts an operator sees first, and the details of one.

use serde_json::{Value, json};
use slidegate_testbed::{RedisServer, Upstream};

use crate::configure;
use crate::terminal::{Operator, for_many_clients, passing};

fn identities(list: &Value) -> Vec<&str> {
    let accounts = list["accounts"].as_array().unwrap();
    accounts.iter().map(|account| account["identity"].as_str().unwrap()).collect()
}

#[test]
fn accounts_nearest_their_quota_and_the_most_denied_are_listed() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream).policy("api", "10/h", "").start();
    for (client, requests) in [("10.0.0.1", 9), ("10.0.0.2", 5), ("10.0.0.3", 4)] {
        assert_eq!(passing(&gateway, client, requests), requests);
    }
    assert_eq!((passing(&gateway, "10.0.0.4", 15), passing(&gateway, "10.0.0.5", 12)), (10, 10));
    let operator = Operator::of(&gateway);
    let nearest = operator.json(&["accounts"]);
    let mut first = identities(&nearest);
    first[..2].sort_unstable();
    assert_eq!(first, ["ip:10.0.0.4", "ip:10.0.0.5", "ip:10.0.0.1", "ip:10.0.0.2"]);
    let quota = &nearest["accounts"][2]["quotas"][0];
    assert_eq!(
        (&quota["quota"], &quota["spent"], &quota["remaining"]),
        (&json!("10/h"), &json!(9), &json!(1))
    );
    assert_eq!(nearest["accounts"][2]["used"], 0.9);
    assert_eq!(identities(&operator.json(&["accounts", "--limit", "1"])).len(), 1);

    let denied = operator.json(&["accounts", "--sort", "denied"]);
    assert_eq!(identities(&denied), ["ip:10.0.0.4", "ip:10.0.0.5"]);
    let numbers = |i: usize| {
        (
            denied["accounts"][i]["denials"].clone(),
            denied["accounts"][i]["denials_overcount"].clone(),
        )
    };
    assert_eq!((numbers(0), numbers(1)), ((json!(5), json!(0)), (json!(2), json!(0))));

    operator.run(&["reset", "ip:10.0.0.4", "--reason", "a test"]);
    let nearest = operator.json(&["accounts"]);
    assert_eq!(identities(&nearest)[0], "ip:10.0.0.5", "the list is true now: {nearest}");
    assert!(!identities(&nearest).contains(&"ip:10.0.0.4"));
    let table = operator.run(&["accounts", "--sort", "denied"]);
    assert!(table.starts_with("IDENTITY     POLICY  USED   QUOTA  SPENT"), "{table}");
}

#[test]
fn heavy_hitters_are_found_among_thousands_and_no_label_is_made_of_any() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream).policy("api", "1/h", "").start();
    let mut wire = gateway.wire();
    let mut send = |client: &str| {
        let _ = wire.get("/", &format!("X-Forwarded-For: {client}\r\n"));
    };
    for i in 0..2500_u32 {
        let client = format!("10.1.{}.{}", i / 250, i % 250);
        send(&client);
        send(&client);
        if i % 25 == 0 {
            (0..3).for_each(|_| send("10.2.0.1"));
            (0..2).for_each(|_| send("10.2.0.2"));
        }
    }
    let operator = Operator::of(&gateway);
    let denied = operator.json(&["accounts", "--sort", "denied", "--limit", "100"]);
    let identities = identities(&denied);
    assert_eq!(identities.len(), 100);
    assert_eq!(identities[..2], ["ip:10.2.0.1", "ip:10.2.0.2"], "{denied}");
    let first = &denied["accounts"][0];
    let (most, error) =
        (first["denials"].as_u64().unwrap(), first["denials_overcount"].as_u64().unwrap());
    assert!(most >= 299 && most - error <= 299, "{first}");
    assert!(!gateway.metrics().contains("10.2.0.1"));
}

#[test]
fn one_identity_is_shown_under_every_policy_that_counts_it_with_its_plan() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .tables("[plans.free]\nquotas = [\"4/h\", \"100/day\"]\n[plans.pro]\nquotas = [\"9/h\"]")
        .tables("[[api_key]]\nkey = \"sk-pro\"\nplan = \"pro\"")
        .policy("api", "", "identity = [\"api-key\", \"ip\"]\nplan = { default = \"free\" }")
        .policy("login", "3/h", "match = { path = \"/login\" }")
        .policy("tenant", "3/h", "identity = [\"user\"]\nmatch = { path = \"/tenant\" }")
        .start();
    for _ in 0..2 {
        gateway.get("/login", "");
        gateway.get("/", "X-API-Key: sk-pro\r\n");
    }
    let operator = Operator::of(&gateway);
    let found = operator.json(&["inspect", "127.0.0.1"]);
    let [api, login] = &found["accounts"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&api["policy"], &api["plan"]), (&json!("api"), &json!("free")));
    assert_eq!(
        (&api["quotas"][0]["remaining"], &api["quotas"][1]["remaining"]),
        (&json!(2), &json!(98))
    );
    assert_eq!((&login["policy"], &login["quotas"][0]["spent"]), (&json!("login"), &json!(2)));
    assert_eq!(found["overrides"], json!([]));

    let pro = operator.json(&["inspect", "ip:127.0.0.1", "--policy", "api", "--plan", "pro"]);
    assert_eq!(pro["accounts"][0]["quotas"][0]["quota"], "9/h");
    let key = operator.run_with("sk-pro\n", &["inspect", "api-key:-"]);
    assert!(key.contains("api     pro   9/h    2      7"), "{key}");
    assert!(!key.contains("sk-pro"), "{key}");
    let unknown = operator.run(&["inspect", "x-tenant:acme"]);
    assert!(unknown.contains("no policy counts such an identity"), "{unknown}");
    let untouched = operator.json(&["inspect", "user:42"]);
    assert_eq!(untouched["accounts"][0]["policy"], "tenant");
    assert_eq!(untouched["accounts"][0]["used"], 0.0);
    assert_eq!(gateway.status("/"), 200, "looking costs nothing");
}

#[test]
fn accounts_that_a_candidate_would_deny_are_listed_and_none_is_denied() {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let keys = "candidate = { quotas = ['3/h', '4/day'] }";
    let in_memory = for_many_clients(&upstream).policy("api", "10/h", keys);
    let store = format!("[store]\nurl = {:?}\ndeadline = \"2s\"", redis.url());
    for setup in [in_memory.clone(), in_memory.tables(&store)] {
        let gateway = setup.start();
        for (client, requests) in [("10.0.0.1", 6), ("10.0.0.2", 4), ("10.0.0.3", 3)] {
            assert_eq!(passing(&gateway, client, requests), requests);
        }
        assert_eq!(passing(&gateway, "10.0.0.4", 12), 10);
        assert_eq!(gateway.metric("slidegate_candidate_denials_total", "policy=\"api\""), 11.0);
        let response = gateway.get("/", "X-Forwarded-For: 10.0.0.9\r\n");
        assert_eq!(response.value("x-ratelimit-limit").as_deref(), Some("10"), "what is in force");

        let operator = Operator::of(&gateway);
        let hit = operator.json(&["accounts", "--sort", "candidate"]);
        assert_eq!(identities(&hit), ["ip:10.0.0.4", "ip:10.0.0.1", "ip:10.0.0.2"]);
        assert_eq!(hit["accounts"][0]["denials"], 7, "and the two that were denied are not new");
        let expected = json!([
            {"quota": "3/h", "units": 3, "remaining": 0, "violated": true},
            {"quota": "4/day", "units": 4, "remaining": 0, "violated": true},
        ]);
        assert_eq!(hit["accounts"][2]["candidate"], expected);
        let table = operator.run(&["accounts", "--sort", "candidate"]);
        assert!(table.contains("WOULD BE DENIED"), "{table}");
        let inspected = operator.run(&["inspect", "ip:10.0.0.3"]);
        assert!(inspected.contains("candidate 0 left of 3/h, candidate 1 left of 4/day"));
    }
}
