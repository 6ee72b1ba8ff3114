//! Several questions at once.

use std::num::NonZeroU32;

use http::HeaderName;
use serde_json::{Value, json};
use slidegate::{MemoryStore, Policies, Policy, Quota, Source};
use slidegate_tower::{ClientAddress, Responder};

use super::{DecisionsApi, api};
use crate::config::LimiterConfig;
use crate::decisions::question::{MAX_QUESTIONS, Question};

fn verdicts(replies: &Value) -> Vec<&str> {
    replies.as_array().unwrap().iter().map(|reply| reply["verdict"].as_str().unwrap()).collect()
}

/// How many of these questions, from the first on, are decided together.
fn independent(api: &DecisionsApi, questions: &Value) -> usize {
    let decisions = &api.service.decisions;
    let body = questions.to_string();
    let questions = Question::read(body.as_bytes(), &decisions.live.gate().policies()).unwrap();
    let asked: Vec<_> = questions.iter().map(|question| (question, None)).collect();
    decisions.count_independent(&asked)
}

#[tokio::test]
async fn several_questions_are_answered_in_order_and_apart() {
    let api = api();
    let login = json!({"method": "POST", "path": "/login", "client": "203.0.113.7"});
    let export = json!({"charges": [{"policy": "export", "identity": "user:42", "cost": 5}]});
    let replies = api.ask(json!([login, export, login, export, {"path": "/elsewhere"}])).await;
    assert_eq!(verdicts(&replies), ["allow", "allow", "deny", "deny", "allow"]);
    assert_eq!(api.observed().len(), 5);
}

#[tokio::test]
async fn peeking_at_several_spends_nothing() {
    let api = api();
    let login = json!({"method": "POST", "path": "/login", "client": "203.0.113.7"});
    let replies = api.peek(json!([login, login])).await;
    assert_eq!(verdicts(&replies), ["allow", "allow"]);
}

#[tokio::test]
async fn a_list_of_questions_can_be_empty_and_not_too_long() {
    let api = api();
    assert_eq!(api.ask(json!([])).await, json!([]));
    let many = |count| Value::Array(vec![json!({}); count]).to_string();
    assert_eq!(api.post("/v1/decide", many(MAX_QUESTIONS)).await.status, 200);
    assert_eq!(api.post("/v1/decide", many(MAX_QUESTIONS + 1)).await.status, 400);
}

#[tokio::test]
async fn a_wrong_question_in_a_list_spends_nothing_of_the_others() {
    let api = api();
    let login = json!({"method": "POST", "path": "/login", "client": "203.0.113.7"});
    let unknown = json!({"charges": [{"policy": "logon", "identity": "user:42"}]});
    let got = api.post("/v1/decide", json!([login, unknown]).to_string()).await;
    assert_eq!(got.status, 400);
    assert_eq!(got.json()["problems"][0]["member"], "[1].charges[0].policy");
    assert_eq!(api.ask(login).await["verdict"], "allow");
}

#[tokio::test]
async fn identities_that_were_not_admitted_share_the_account_that_counts_instead() {
    let device = Source::Header(HeaderName::from_static("x-device"));
    let policies = Policies::builder()
        .identities_per_address(NonZeroU32::MIN)
        .policy(Policy::new("api").identity([device, Source::User]).quota(Quota::per_minute(1)))
        .build()
        .unwrap();
    let config = LimiterConfig::new(policies, Responder::new(), ClientAddress::default());
    let api = DecisionsApi::new(config, MemoryStore::new());
    let question = |device: &str, client: &str| json!({"client": client, "user": "42", "headers": {"x-device": device}, "trusted": true});
    let admitted = json!([question("a", "203.0.113.7"), question("b", "203.0.113.8")]);
    assert_eq!(verdicts(&api.ask(admitted).await), ["allow", "allow"]);
    // Both count as the user.
    let others = json!([question("c", "203.0.113.7"), question("d", "203.0.113.8")]);
    assert_eq!(independent(&api, &others), 1);
    assert_eq!(verdicts(&api.ask(others).await), ["allow", "deny"]);
}

#[tokio::test]
async fn questions_without_anything_in_common_are_decided_together() {
    let api = api();
    let of = |path: &str, user: &str, client: &str| json!({"path": path, "user": user, "client": client});
    let key = |key: &str, client: &str| json!({"path": "/api/x", "client": client, "headers": {"x-api-key": key}});
    let charge = |policy: &str, identity: &str| json!({"charges": [{"policy": policy, "identity": identity}]});
    for (questions, together) in [
        (json!([of("/api/x", "1", "203.0.113.7"), of("/api/x", "2", "203.0.113.7")]), 2),
        (json!([of("/api/x", "1", "203.0.113.7"), of("/api/x", "1", "203.0.113.8")]), 1),
        (json!([of("/api/x", "1", "203.0.113.7"), of("/export", "1", "203.0.113.7")]), 2),
        (json!([of("/api/x", "1", "203.0.113.7"), charge("api", "user:1")]), 1),
        (json!([charge("api", "user:1"), charge("export", "user:1")]), 2),
        // They count towards one address.
        (json!([key("a", "203.0.113.7"), key("b", "203.0.113.7")]), 1),
        (json!([key("a", "203.0.113.7"), key("b", "203.0.113.8")]), 2),
        (json!([key("a", "203.0.113.7"), key("a", "203.0.113.8")]), 1),
        (json!([key("a", "203.0.113.7"), charge("api", "ip:203.0.113.7")]), 1),
    ] {
        assert_eq!(independent(&api, &questions), together, "{questions}");
    }
}
