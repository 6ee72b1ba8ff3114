//! Questions about accounts.

use serde_json::{Value, json};

use super::{DecisionsApi, api, rules};
use crate::store::AnyStore;

async fn remaining(api: &DecisionsApi, charge: &Value) -> u64 {
    let reply = api.peek(json!({"charges": [charge]})).await;
    reply["standings"][0]["remaining"].as_u64().unwrap()
}

#[tokio::test]
async fn charges_of_a_question_are_spent_all_or_none() {
    let api = api();
    let tenant = json!({"policy": "tenant", "identity": {"kind": "x-tenant", "value": "acme"}});
    let export = json!({"policy": "export", "identity": "user:42", "cost": 2});
    let question = json!({"charges": [export, tenant]});
    let reply = api.ask(question.clone()).await;
    assert_eq!(reply["verdict"], "allow");
    assert_eq!(reply["standings"][1]["identity"], "x-tenant:acme");
    let reply = api.ask(question).await;
    assert_eq!((&reply["verdict"], &reply["retry_after_ms"]), (&json!("deny"), &json!(60_000)));
    assert_eq!(remaining(&api, &export).await, 3);
    assert_eq!(
        api.observed(),
        ["POST /v1/decide None 200 Some(true)", "POST /v1/decide None 429 Some(false)"]
    );
}

#[tokio::test]
async fn a_charge_is_of_the_account_that_requests_spend_from() {
    let api = api();
    api.ask(json!({"path": "/export", "client": "2001:db8::1"})).await;
    for identity in [
        json!("ip:2001:db8::1"),
        json!("ip:2001:db8::/64"),
        json!({"kind": "ip", "value": "2001:db8::9"}),
    ] {
        let charge = json!({"policy": "export", "identity": identity});
        assert_eq!(remaining(&api, &charge).await, 4, "{charge}");
    }
    api.ask(json!({"path": "/api/x", "headers": {"x-api-key": "hunter2"}})).await;
    let key = json!({"policy": "api", "identity": {"kind": "api-key", "value": "hunter2"}});
    assert_eq!(remaining(&api, &key).await, 2);
}

#[tokio::test]
async fn identities_as_a_standing_shows_them_can_be_charged() {
    let api = api();
    for identity in [
        json!({"kind": "api-key", "value": "hunter2"}),
        json!({"kind": "authorization", "value": "Bearer hunter2"}),
        json!({"kind": "user", "value": "with spaces"}),
        json!({"kind": "everyone"}),
        json!("anonymous"),
    ] {
        let charge = json!({"policy": "export", "identity": identity});
        let shown = api.ask(json!({"charges": [charge]})).await["standings"][0]["identity"].take();
        let charge = json!({"policy": "export", "identity": shown});
        assert_eq!(remaining(&api, &charge).await, 4, "{charge}");
    }
}

#[tokio::test]
async fn a_charge_can_name_a_plan() {
    let api = api();
    let charge = json!({"policy": "api", "identity": "user:42", "plan": "pro"});
    assert_eq!(remaining(&api, &charge).await, 30);
}

#[tokio::test]
async fn without_a_store_the_policies_say_what_happens() {
    let api = DecisionsApi::new(rules(), AnyStore::Failing);
    let export = json!({"policy": "export", "identity": "user:42"});
    let login = json!({"policy": "login", "identity": "ip:203.0.113.7"});
    let local = api.ask(json!({"charges": [export]})).await;
    assert_eq!((&local["verdict"], &local["degraded"]), (&json!("allow"), &json!(true)));
    let denied = api.ask(json!({"charges": [export, login]})).await;
    assert_eq!((&denied["verdict"], &denied["status"]), (&json!("unavailable"), &json!(503)));
}
