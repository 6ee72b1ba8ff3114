//! Several questions at once.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use http::HeaderName;
use serde_json::{Value, json};
use slidegate::limit::SystemClock;
use slidegate::policy::{KeyHash, PoliciesBuilder, UnknownKeys};
use slidegate::{Gate, MemoryStore, Policies, Policy, Quota, Scope, Source};
use slidegate_testbed::Upstream;
use slidegate_testbed::http1::response;
use slidegate_tower::{ClientAddress, Responder};

use super::{DecisionsApi, api};
use crate::config::{CustomersConfig, KeySourceConfig, KeySourceKind, LimiterConfig};
use crate::customers;
use crate::decisions::question::{MAX_QUESTIONS, Question};
use crate::live_config::LiveConfig;

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

/// The endpoint under these policies, with keys of a service that knows each as its own customer's.
fn api_with_keys(policies: PoliciesBuilder, service: &Upstream) -> DecisionsApi {
    let hour = Duration::from_secs(3600);
    let kind = KeySourceKind::Http { fresh: hour, stale: hour, unknown: hour, token: None };
    let key_source = KeySourceConfig {
        url: format!("{}/{{digest}}", service.url()),
        hash: KeyHash::Sha256,
        kind,
        refuses_on_error: true,
        authorities: None,
    };
    let config = CustomersConfig { key_source: Some(key_source), issuers: Vec::new() };
    let customers = customers::open(&config, Arc::new(SystemClock::new())).unwrap();
    let policies = policies.unknown_keys(UnknownKeys::Refuse).build().unwrap();
    let gate = Gate::new(policies, MemoryStore::new().into());
    let (responder, clients) = (Responder::new(), ClientAddress::default());
    let live = LiveConfig::new(gate, responder, clients, None, Some(Arc::new(customers)));
    DecisionsApi::of(Arc::new(live), None)
}

/// What the service answers about a key.
fn own_customer(target: &str) -> Vec<u8> {
    let body = json!({"customer": target}).to_string();
    response("200 OK", "Content-Type: application/json\r\n", &body).into_bytes()
}

/// So long that of a hundred look-ups at once, the last would wait for a place beyond their deadline of 200 ms.
#[expect(clippy::disallowed_methods, reason = "a service in a thread lives by the real clock")]
fn take_a_while() {
    thread::sleep(Duration::from_millis(60));
}

fn with_key(key: &str, client: Option<&str>) -> Value {
    json!({"path": "/", "client": client, "headers": {"x-api-key": key}})
}

#[tokio::test]
async fn a_long_list_of_new_keys_finds_a_place_for_each_look_up() {
    let service = Upstream::answering(|request| {
        take_a_while();
        own_customer(request.target())
    });
    let by_key = Policy::new("api").identity([Source::ApiKey]).quota("1/min");
    let api = api_with_keys(Policies::builder().policy(by_key), &service);
    // A busy machine may exceed the deadline of a look-up.
    for attempt in 0..5 {
        let keys = (0..MAX_QUESTIONS).map(|n| with_key(&format!("{attempt}-{n}"), None));
        let replies = api.ask(Value::Array(keys.collect())).await;
        if verdicts(&replies) == vec!["allow"; MAX_QUESTIONS] {
            return;
        }
    }
    panic!("some look-ups had no place");
}

#[tokio::test]
async fn an_address_that_earlier_questions_left_without_room_has_no_keys_looked_up() {
    let service = Upstream::answering(|request| own_customer(request.target()));
    let policies = Policies::builder()
        .policy(Policy::new("flood").scope(Scope::Local).identity([Source::ip()]).quota("2/min"))
        .policy(Policy::new("api").identity([Source::ApiKey]).quota("10/min"));
    let api = api_with_keys(policies, &service);
    let keys = (0..10).map(|n| with_key(&format!("k{n}"), Some("203.0.113.7")));
    let replies = api.ask(Value::Array(keys.collect())).await;
    assert_eq!(verdicts(&replies)[2..], ["deny"; 8]);
    assert_eq!(service.received().len(), 2);
}

#[tokio::test]
async fn keys_of_one_customer_spend_in_the_order_of_the_list() {
    let service = Upstream::answering(|_| own_customer("acme"));
    let by_key = Policy::new("api").identity([Source::ApiKey]).quota("2/min");
    let api = api_with_keys(Policies::builder().policy(by_key), &service);
    let keys = ["a", "b", "c"].map(|key| with_key(key, None));
    // A busy machine may exceed the deadline of a look-up.
    while verdicts(&api.peek(json!(keys)).await) != ["allow"; 3] {}
    assert_eq!(verdicts(&api.ask(json!(keys)).await), ["allow", "allow", "deny"]);
}

#[tokio::test]
async fn a_policy_that_is_removed_in_the_meantime_costs_only_its_own_answer() {
    let live = Arc::new(OnceLock::<Arc<LiveConfig>>::new());
    let reloaded = live.clone();
    let by_key = || Policy::new("api").identity([Source::ApiKey]).quota("2/min");
    let service = Upstream::answering(move |request| {
        let policies = Policies::builder().unknown_keys(UnknownKeys::Refuse).policy(by_key());
        reloaded.get().unwrap().gate().replace_policies(policies.build().unwrap());
        own_customer(request.target())
    });
    let policies = Policies::builder().policy(by_key()).policy(Policy::new("mail").quota("2/min"));
    let api = api_with_keys(policies, &service);
    live.set(api.service.decisions.live.clone()).unwrap();
    let mail = json!({"charges": [{"policy": "mail", "identity": "user:42"}]});
    let replies = api.ask(json!([with_key("a", None), mail, with_key("b", None)])).await;
    assert_eq!((verdicts(&replies).len(), verdicts(&replies)[1]), (3, "block"));
    for key in [&replies[0], &replies[2]] {
        // A busy machine may exceed the deadline of a look-up.
        assert_ne!(key["reason"], "bad-request", "{key}");
    }
    assert_eq!(
        (&replies[1]["reason"], &replies[1]["status"]),
        (&json!("bad-request"), &json!(400))
    );
    assert!(replies[1]["body"].as_str().unwrap().contains("mail"), "{replies}");
}
