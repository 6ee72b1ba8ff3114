//! Several questions at once.

use serde_json::{Value, json};

use super::api;
use crate::decisions::question::MAX_QUESTIONS;

fn verdicts(replies: &Value) -> Vec<&str> {
    replies.as_array().unwrap().iter().map(|reply| reply["verdict"].as_str().unwrap()).collect()
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
