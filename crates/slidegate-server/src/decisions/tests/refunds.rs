//! Giving back what a decision spent.

use serde_json::{Value, json};

use super::{DecisionsApi, Got, api, rules};
use crate::store::AnyStore;

async fn refund(api: &DecisionsApi, id: &Value) -> Got {
    api.post("/v1/refund", json!({"id": id}).to_string()).await
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
        let got = refund(&api, &id).await;
        assert_eq!(got.status, 404);
        assert!(got.text().contains("it was refunded already, is older than 60 s or than 100000"));
        assert_eq!(left(&api, &question).await, others, "{question}");
        let observed = api.observed();
        assert!(observed.contains(&"refund Refused 0".to_owned()), "{observed:?}");
        assert_eq!(observed.iter().filter(|line| line.starts_with("refund Done")).count(), 1);
    }
}

#[tokio::test]
async fn only_what_was_spent_on_a_refundable_question_has_an_id() {
    let api = api();
    let with_id = async |question: Value| api.ask(question).await.get("id").is_some();
    let login = json!({"method": "POST", "path": "/login", "client": "203.0.113.7"});
    let mut refundable = login.clone();
    refundable["refundable"] = json!(true);
    assert!(api.peek(refundable.clone()).await.get("id").is_none(), "nothing was spent");
    assert!(with_id(refundable.clone()).await);
    assert!(!with_id(refundable).await, "it is denied");
    assert!(!with_id(json!({"path": "/healthz", "refundable": true})).await, "it is exempt");
    for refundable in [json!(false), Value::Null] {
        assert!(!with_id(json!({"path": "/export", "refundable": refundable})).await);
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
async fn a_mistake_is_named_and_nothing_is_given_back() {
    let api = api();
    let question = json!({"path": "/export", "client": "203.0.113.7", "refundable": true});
    let id = api.ask(question.clone()).await["id"].take();
    let long = format!("{{\"id\": \"{}\"}}", "0".repeat(2000));
    for (body, status, part) in [
        ("", 400, "incomplete JSON"),
        ("7", 400, "integer `7`, expected an object"),
        ("{}", 400, "missing field `id`"),
        (r#"{"id": 7}"#, 400, "id: invalid type: integer `7`, expected a string"),
        (r#"{"id": null}"#, 400, "expected a string"),
        (r#"{"id": "0-0", "cost": 1}"#, 400, "unknown field `cost`, expected `id`"),
        (&json!([id]).to_string(), 400, "expected an object, not a list"),
        (r#"{"id": ""}"#, 404, "there is no decision of this id"),
        (r#"{"id": "0-0"}"#, 404, "another gateway made it"),
        (&*long, 413, "more than 1024 bytes"),
    ] {
        let got = api.post("/v1/refund", body.to_owned()).await;
        assert_eq!(got.status.as_u16(), status, "{body}");
        assert!(got.text().contains(part), "{body}: {}", got.text());
    }
    assert_eq!(left(&api, &question).await[0], 4);
    assert_eq!(refund(&api, &id).await.status, 204);
}
