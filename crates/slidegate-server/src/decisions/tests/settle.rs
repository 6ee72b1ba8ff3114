//! Settling what a decision held, giving it back, and recording what was used already.

use std::time::Duration;

use serde_json::{Value, json};
use slidegate::{ManualClock, MemoryStore, Policies, Policy, Quota, Scope, Source};

use super::{DecisionsApi, Got, api, rules};
use crate::store::AnyStore;

async fn refund(api: &DecisionsApi, id: &Value) -> Got {
    api.post("/v1/refund", json!({"id": id}).to_string()).await
}

async fn settle(api: &DecisionsApi, id: &Value, units: u32) -> Got {
    api.post("/v1/settle", json!({"id": id, "units": units}).to_string()).await
}

/// What is left of each quota that a question is about.
async fn left(api: &DecisionsApi, question: &Value) -> Vec<u64> {
    let reply = api.peek(question.clone()).await;
    let standings = reply["standings"].as_array().unwrap().iter();
    standings.map(|standing| standing["remaining"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn all_that_a_decision_spent_is_given_back_once() {
    let api = api();
    let charges = json!([
        {"policy": "export", "identity": "user:42", "cost": 2},
        {"policy": "api", "identity": "user:42", "plan": "pro", "cost": 3}
    ]);
    for (question, full) in [
        (json!({"path": "/api/x", "user": "1", "cost": 2, "refundable": true}), vec![3, 50]),
        (json!({"path": "/export", "client": "203.0.113.7", "refundable": true}), vec![5, 1]),
        (json!({"charges": charges, "refundable": true}), vec![5, 30, 500]),
    ] {
        let id = api.ask(question.clone()).await["id"].take();
        assert_ne!(left(&api, &question).await, full);
        let got = refund(&api, &id).await;
        assert_eq!((got.status.as_u16(), got.text()), (204, ""));
        assert_eq!(left(&api, &question).await, full, "{question}");
        // Others spend meanwhile, at the same instant, and keep what they have.
        api.ask(question.clone()).await;
        let others = left(&api, &question).await;
        for got in [refund(&api, &id).await, settle(&api, &id, 0).await, settle(&api, &id, 3).await]
        {
            assert_eq!(got.status, 409);
            assert!(got.text().contains("it was settled before, and nothing is changed"));
        }
        assert_eq!(left(&api, &question).await, others, "{question}");
        let observed = api.observed();
        let count = |start: &str| observed.iter().filter(|line| line.starts_with(start)).count();
        let counts = (count("settle api Done"), count("settle api Repeated"));
        assert_eq!(counts, (1, 3), "{observed:?}");
    }
}

#[tokio::test]
async fn what_was_held_turns_out_to_cost_less_or_more() {
    let question = json!({"path": "/api/x", "user": "1", "plan": "pro", "hold": 10});
    for (units, remaining) in [(10, [20, 490]), (4, [26, 496]), (25, [5, 475]), (0, [30, 500])] {
        let api = api();
        let answer = api.ask(question.clone()).await;
        assert_eq!(left(&api, &question).await, [20, 490]);
        let got = settle(&api, &answer["id"], units).await;
        assert_eq!((got.status.as_u16(), got.text()), (200, r#"{"settled":true}"#));
        assert_eq!(left(&api, &question).await, remaining, "{units}");
        let line = format!("settle api Done 1 {units}");
        assert!(api.observed().contains(&line));
    }
}

#[tokio::test]
async fn a_cost_above_the_quota_closes_the_account_for_one_window() {
    let store_clock = ManualClock::default();
    let store = MemoryStore::builder().clock(store_clock.clone()).build();
    let api = DecisionsApi::new(rules(), store);
    let question = json!({"path": "/export", "client": "203.0.113.7", "hold": 1});
    let id = api.ask(question.clone()).await["id"].take();
    store_clock.advance(Duration::from_secs(10));
    assert_eq!(settle(&api, &id, u32::MAX).await.status, 200);
    let verdict = async || api.peek(question.clone()).await["verdict"].take();
    assert_eq!(verdict().await, "deny");
    store_clock.advance(Duration::from_millis(59_999));
    assert_eq!(verdict().await, "deny", "nothing but the newest units counts");
    store_clock.advance(Duration::from_millis(1));
    assert_eq!(verdict().await, "allow");
}

#[tokio::test]
async fn a_hold_is_for_charges_without_a_cost() {
    let api = api();
    let question = json!({"hold": 4, "charges": [
        {"policy": "export", "identity": "user:42"},
        {"policy": "api", "identity": "user:42", "plan": "pro", "cost": 1}
    ]});
    let id = api.ask(question.clone()).await["id"].take();
    assert_eq!(left(&api, &question).await, [1, 29, 499]);
    assert_eq!(settle(&api, &id, 2).await.status, 200);
    assert_eq!(left(&api, &question).await, [3, 29, 499], "a cost that was known stays");

    let mut question = question;
    question["hold"] = json!(3);
    let id = api.ask(question.clone()).await["id"].take();
    assert_eq!(left(&api, &question).await, [0, 28, 498]);
    assert_eq!(refund(&api, &id).await.status, 204);
    assert_eq!(left(&api, &question).await, [3, 29, 499], "nothing was done for it");
    question["hold"] = json!(6);
    assert_eq!(api.ask(question).await["reason"], "cost-above-units");
}

#[tokio::test]
async fn a_policy_with_a_fixed_cost_keeps_it_unless_all_is_given_back() {
    let per = |name: &str, units| Policy::new(name).identity([Source::User]).quota(units);
    let policies = Policies::builder()
        .policy(per("requests", Quota::per_minute(10)).cost(1))
        .policy(per("guard", Quota::per_minute(20)).scope(Scope::Local))
        .policy(per("tokens", Quota::per_minute(1000)))
        .build();
    let mut limiter = rules();
    limiter.policies = policies.unwrap();
    let api = DecisionsApi::new(limiter, MemoryStore::new());
    let question = json!({"user": "1", "hold": 500});
    let id = api.ask(question.clone()).await["id"].take();
    assert_eq!(left(&api, &question).await, [19, 9, 500]);
    assert_eq!(settle(&api, &id, 137).await.status, 200);
    assert_eq!(left(&api, &question).await, [19, 9, 863]);
    let id = api.ask(question.clone()).await["id"].take();
    assert_eq!(settle(&api, &id, 0).await.status, 200);
    assert_eq!(left(&api, &question).await, [19, 9, 863]);
}

#[tokio::test]
async fn only_what_was_spent_on_a_question_that_wants_it_has_an_id() {
    let api = api();
    let with_id = async |question: Value| api.ask(question).await.get("id").is_some();
    for (client, member, value) in
        [("203.0.113.7", "refundable", json!(true)), ("203.0.113.8", "hold", json!(1))]
    {
        let mut question = json!({"method": "POST", "path": "/login", "client": client});
        question[member] = value;
        assert!(api.peek(question.clone()).await.get("id").is_none(), "nothing was spent");
        assert!(with_id(question.clone()).await);
        assert!(!with_id(question).await, "it is denied");
    }
    assert!(!with_id(json!({"path": "/healthz", "refundable": true})).await, "it is exempt");
    assert!(!with_id(json!({"path": "/healthz", "hold": 2})).await, "it is exempt");
    for refundable in [json!(false), Value::Null] {
        let question = json!({"path": "/export", "refundable": refundable, "hold": null});
        assert!(!with_id(question).await);
    }
    assert!(!with_id(json!({"path": "/export"})).await);
    let api = DecisionsApi::new(rules(), AnyStore::Failing);
    let got = api.ask(json!({"path": "/export", "refundable": true})).await;
    assert_eq!(refund(&api, &got["id"]).await.status, 204, "what was counted here instead");
}

#[tokio::test]
async fn each_of_several_questions_has_its_own_id() {
    let api = api();
    let question = json!({"path": "/export", "client": "203.0.113.7", "refundable": true});
    let replies = api.ask(json!([question, question, {"path": "/export"}])).await;
    assert_ne!(replies[0]["id"], replies[1]["id"]);
    assert_eq!(replies[2].get("id"), None);
    assert_eq!(refund(&api, &replies[1]["id"]).await.status, 204);
    assert_eq!(left(&api, &question).await[0], 4);
    assert_eq!(refund(&api, &replies[0]["id"]).await.status, 204);
    assert_eq!(left(&api, &question).await[0], 5);
}

#[tokio::test]
async fn an_id_expires() {
    let api = api();
    let question = json!({"path": "/export", "client": "203.0.113.7", "hold": 1});
    let ids = api.ask(json!([question, question])).await;
    api.time.advance(Duration::from_millis(59_999));
    assert_eq!(settle(&api, &ids[0]["id"], 1).await.status, 200);
    api.time.advance(Duration::from_millis(1));
    let got = settle(&api, &ids[1]["id"], 0).await;
    assert_eq!(got.status, 404);
    assert!(got.text().contains("older than decisions.settle_within allows"), "{}", got.text());
    assert_eq!(settle(&api, &ids[0]["id"], 1).await.status, 404, "settled and expired");
    assert_eq!(left(&api, &question).await[0], 3);
}

#[tokio::test]
async fn an_id_with_any_byte_changed_is_none() {
    let api = api();
    let question = json!({"path": "/export", "client": "203.0.113.7", "hold": 2});
    let answer = api.ask(question.clone()).await;
    let id = answer["id"].as_str().unwrap();
    assert!(id.len() < 200 && !id.contains(['+', '/', '=']), "{id}");
    assert!(!id.contains("export") && !id.contains("203"), "{id}");
    let refused = async |wrong: String| {
        let got = settle(&api, &json!(wrong), 0).await;
        assert_eq!(got.status, 404, "{wrong}: {}", got.text());
    };
    for at in 0..id.len() {
        for other in ["A", "_", "é", " "] {
            let wrong = format!("{}{other}{}", &id[..at], &id[at + 1..]);
            if wrong != id {
                refused(wrong).await;
            }
        }
        refused(id[..at].to_owned()).await;
        refused(id[at + 1..].to_owned()).await;
    }
    refused(format!("{id}A")).await;
    refused(format!("{id}=")).await;
    assert_eq!(left(&api, &question).await[0], 3);
    assert_eq!(settle(&api, &answer["id"], 0).await.status, 200);
}

/// Without Redis each process has a key of its own, and so has each deployment with it.
#[tokio::test]
async fn an_id_of_another_process_is_none() {
    let (one, two) = (api(), api());
    let question = json!({"path": "/export", "client": "203.0.113.7", "hold": 1});
    let id = one.ask(question.clone()).await["id"].take();
    two.ask(question.clone()).await;
    let got = settle(&two, &id, 0).await;
    assert_eq!(got.status, 404);
    assert!(got.text().contains("no gateway on the same Redis"), "{}", got.text());
    assert_eq!(left(&two, &question).await[0], 4);
    assert_eq!(settle(&one, &id, 0).await.status, 200);
}

#[tokio::test]
async fn what_was_held_is_settled_whatever_became_of_its_policy() {
    let api = api();
    let question = json!({"path": "/export", "client": "203.0.113.7", "hold": 3});
    let charge = json!({"charges": [{"policy": "export", "identity": "ip:203.0.113.7"}]});
    let id = api.ask(question).await["id"].take();
    let live = &api.service.decisions.live;
    let build = |policy: Policy| {
        let mut limiter = rules();
        limiter.policies = Policies::builder().policy(policy).build().unwrap();
        limiter
    };
    live.replace(build(Policy::new("renamed").path("/export").quota(Quota::per_minute(5))));
    assert_eq!(settle(&api, &id, 1).await.status, 200, "by the quotas of then");
    live.replace(rules());
    assert_eq!(left(&api, &charge).await, [4]);

    let id = api.ask(json!({"path": "/export", "client": "203.0.113.7", "hold": 4})).await;
    live.replace(build(Policy::new("export").path("/export").quota(Quota::per_minute(2))));
    assert_eq!(settle(&api, &id["id"], 0).await.status, 200, "by the quotas of now");
    live.replace(rules());
    assert_eq!(left(&api, &charge).await, [4]);
}

#[tokio::test]
async fn a_mistake_is_named_and_nothing_is_settled() {
    let api = api();
    let question = json!({"path": "/export", "client": "203.0.113.7", "refundable": true});
    let id = api.ask(question.clone()).await["id"].take();
    let long = format!("{{\"id\": \"{}\"}}", "0".repeat(70_000));
    for (path, body, status, part) in [
        ("/v1/refund", "", 400, "incomplete JSON"),
        ("/v1/refund", "7", 400, "integer `7`, expected an object"),
        ("/v1/refund", "{}", 400, "missing field `id`"),
        ("/v1/refund", r#"{"id": 7}"#, 400, "id: invalid type: integer `7`, expected a string"),
        ("/v1/refund", r#"{"id": null}"#, 400, "expected a string"),
        ("/v1/refund", r#"{"id": "0", "units": 1}"#, 400, "unknown field `units`, expected `id`"),
        ("/v1/refund", &json!([id]).to_string(), 400, "expected an object, not a list"),
        ("/v1/refund", r#"{"id": ""}"#, 404, "there is nothing to settle by this id"),
        ("/v1/refund", r#"{"id": "0-0"}"#, 404, "no gateway on the same Redis"),
        ("/v1/refund", &*long, 413, "more than 65536 bytes"),
        ("/v1/settle", r#"{"id": "0"}"#, 400, "missing field `units`"),
        ("/v1/settle", r#"{"units": 1}"#, 400, "missing field `id`"),
        ("/v1/settle", r#"{"id": "0", "units": -1}"#, 400, "units: invalid value: integer `-1`"),
        ("/v1/settle", r#"{"id": "0", "units": 4294967296}"#, 400, "units: invalid value"),
        ("/v1/settle", r#"{"id": "0", "units": 1.5}"#, 400, "units: invalid type"),
        ("/v1/settle", r#"{"id": "0", "units": null}"#, 400, "units: invalid type"),
        ("/v1/settle", r#"{"id": "0", "units": 1, "cost": 1}"#, 400, "unknown field `cost`"),
        ("/v1/settle", r#"{"id": "0", "units": 1}"#, 404, "there is nothing to settle"),
        ("/v1/record", "{}", 400, "missing field `charges`"),
        ("/v1/record", r#"{"charges": []}"#, 400, "charges: expected at least one charge"),
        ("/v1/record", r#"{"charges": [], "hold": 1}"#, 400, "unknown field `hold`"),
        (
            "/v1/record",
            r#"{"charges": [{"policy": "no", "identity": "everyone"}]}"#,
            400,
            "charges[0].policy: there is no policy",
        ),
        (
            "/v1/record",
            r#"{"charges": [{"policy": "api", "identity": "everyone", "cost": 0}]}"#,
            400,
            "charges[0].cost",
        ),
    ] {
        let got = api.post(path, body.to_owned()).await;
        assert_eq!(got.status.as_u16(), status, "{path} {body}: {}", got.text());
        assert!(got.text().contains(part), "{path} {body}: {}", got.text());
    }
    assert_eq!(left(&api, &question).await[0], 4);
    assert_eq!(refund(&api, &id).await.status, 204);
}

#[tokio::test]
async fn what_is_recorded_is_written_down_whether_it_fits_or_not() {
    let api = api();
    let charge = |cost: u32| {
        json!({"charges": [
            {"policy": "export", "identity": "user:42", "cost": cost},
            {"policy": "api", "identity": "user:42", "plan": "pro"}
        ]})
    };
    let record = async |cost: u32| api.post("/v1/record", charge(cost).to_string()).await.json();
    let answer = record(4).await;
    assert_eq!((&answer["verdict"], answer.get("status")), (&json!("allow"), None));
    assert_eq!(left(&api, &charge(1)).await, [1, 29, 499]);
    let answer = record(4).await;
    assert_eq!((&answer["verdict"], &answer["status"]), (&json!("deny"), &json!(429)), "{answer}");
    assert_eq!(left(&api, &charge(1)).await, [0, 28, 498], "both are written down");
    let answer = record(4_000_000).await;
    assert_eq!(answer["verdict"], "deny");
    assert_eq!(answer["retry_after_ms"], 60_000, "closed for one window");
    assert_eq!(api.ask(charge(1)).await["verdict"], "deny");
    let observed = api.observed();
    assert!(observed.contains(&"POST /v1/record None 200 Some(true)".to_owned()), "{observed:?}");
}
