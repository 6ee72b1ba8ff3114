//! Questions about one request.

use serde_json::{Value, json};

use super::{DecisionsApi, api, rules};
use crate::store::AnyStore;

#[tokio::test]
async fn what_is_allowed_is_spent_and_reported_to_the_client() {
    let api = api();
    let reply = api.ask(json!({"path": "/api/x?page=2", "client": "203.0.113.7"})).await;
    assert_eq!(
        reply,
        json!({
            "verdict": "allow",
            "degraded": false,
            "standings": [
                {
                    "policy": "api", "identity": "ip:203.0.113.7", "plan": "free",
                    "window_ms": 60_000, "units": 3, "remaining": 2, "reset_after_ms": 60_000,
                    "retry_after_ms": 0, "violated": false, "shadow": false
                },
                {
                    "policy": "api", "identity": "ip:203.0.113.7", "plan": "free",
                    "window_ms": 86_400_000, "units": 50, "remaining": 49,
                    "reset_after_ms": 86_400_000, "retry_after_ms": 0, "violated": false,
                    "shadow": false
                }
            ],
            "headers": reply["headers"]
        })
    );
    assert_eq!(reply["headers"]["x-ratelimit-remaining"], "2");
    assert!(reply["headers"]["ratelimit"].as_str().unwrap().contains(";r=2;t=60"));
    assert_eq!(api.observed(), ["GET /api/x Some(203.0.113.7) 200 Some(true)"]);
}

#[tokio::test]
async fn a_denial_has_the_whole_refusal() {
    let api = api();
    let question = json!({"path": "/api/x", "client": "203.0.113.7"});
    for _ in 0..3 {
        assert_eq!(api.ask(question.clone()).await["verdict"], "allow");
    }
    let reply = api.ask(question).await;
    assert_eq!(reply["verdict"], "deny");
    assert_eq!(reply["reason"], "quota-exceeded");
    assert_eq!(reply["retry_after_ms"], 60_000);
    assert_eq!(reply["status"], 429);
    assert_eq!(reply["headers"]["retry-after"], "60");
    assert_eq!(reply["headers"]["content-type"], "application/problem+json");
    assert!(reply["body"].as_str().unwrap().contains("quota-exceeded"));
    assert_eq!(
        [&reply["standings"][0]["violated"], &reply["standings"][1]["violated"]],
        [true, false]
    );
    let last = api.observed().pop();
    assert_eq!(last.as_deref(), Some("GET /api/x Some(203.0.113.7) 429 Some(false)"));
}

#[tokio::test]
async fn a_caller_can_name_user_and_plan() {
    let api = api();
    let question = json!({"path": "/api/x", "user": "42", "plan": "pro", "cost": 7});
    let reply = api.ask(question).await;
    let standing = &reply["standings"][0];
    assert_eq!(standing["identity"], "user:42");
    assert_eq!(standing["plan"], "pro");
    assert_eq!(standing["remaining"], 23);
}

#[tokio::test]
async fn named_headers_are_believed_only_if_the_caller_vouches_for_them() {
    let api = api();
    let mut question = json!({"path": "/api/x", "user": "42", "headers": {"X-Plan": "pro"}});
    assert_eq!(api.ask(question.clone()).await["standings"][0]["plan"], "free");
    question["trusted"] = json!(true);
    assert_eq!(api.ask(question).await["standings"][0]["plan"], "pro");
}

#[tokio::test]
async fn api_keys_count_and_never_show() {
    let api = api();
    let question = json!({"path": "/api/x", "headers": {"x-api-key": "hunter2"}});
    let got = api.post("/v1/decide", question.to_string()).await;
    let identity = got.json()["standings"][0]["identity"].as_str().unwrap().to_owned();
    assert!(identity.starts_with("api-key:"), "{identity}");
    assert!(!got.text().contains("hunter2"));
}

#[tokio::test]
async fn no_policy_or_an_exemption_is_a_plain_yes() {
    let api = api();
    for path in ["/elsewhere", "/healthz"] {
        let reply = api.ask(json!({"path": path, "client": "203.0.113.7"})).await;
        let plain = json!({"verdict": "allow", "degraded": false, "standings": [], "headers": {}});
        assert_eq!(reply, plain);
    }
}

#[tokio::test]
async fn blocked_and_too_costly_requests_are_blocked() {
    let api = api();
    let blocked = api.ask(json!({"path": "/api/x", "client": "198.51.100.9"})).await;
    assert_eq!((&blocked["verdict"], &blocked["reason"]), (&json!("block"), &json!("blocked")));
    assert_eq!(blocked["status"], 403);
    assert_eq!(blocked.get("retry_after_ms"), None);
    let costly = api.ask(json!({"path": "/export", "client": "203.0.113.7", "cost": 6})).await;
    assert_eq!(
        (&costly["verdict"], &costly["reason"]),
        (&json!("block"), &json!("cost-above-units"))
    );
    assert_eq!(costly["status"], 429);
}

#[tokio::test]
async fn denials_lead_to_a_ban() {
    let api = api();
    let question = json!({"method": "POST", "path": "/login", "client": "203.0.113.7"});
    let mut verdicts = Vec::new();
    for _ in 0..4 {
        let reply = api.ask(question.clone()).await;
        verdicts.push(reply["reason"].as_str().unwrap_or("allow").to_owned());
    }
    assert_eq!(verdicts, ["allow", "quota-exceeded", "quota-exceeded", "banned"]);
    let banned = api.ask(question).await;
    assert_eq!(banned["verdict"], "block");
    assert!(banned["retry_after_ms"].as_u64().unwrap() > 590_000);
}

#[tokio::test]
async fn a_shadow_policy_is_reported_and_denies_nothing() {
    let api = api();
    let question = json!({"path": "/export", "client": "203.0.113.7", "cost": 1});
    api.ask(question.clone()).await;
    let reply = api.ask(question).await;
    assert_eq!(reply["verdict"], "allow");
    let watch = &reply["standings"][1];
    assert_eq!((&watch["shadow"], &watch["violated"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn without_a_store_each_policy_says_what_happens() {
    let api = DecisionsApi::new(rules(), AnyStore::Failing);
    let local = api.ask(json!({"path": "/api/x", "client": "203.0.113.7"})).await;
    assert_eq!((&local["verdict"], &local["degraded"]), (&json!("allow"), &json!(true)));

    let question = json!({"method": "POST", "path": "/login", "client": "203.0.113.7"});
    let got = api.post("/v1/decide", question.to_string()).await;
    let denied = got.json();
    assert_eq!(denied["verdict"], "unavailable");
    assert_eq!(denied["reason"], "store-unavailable");
    assert_eq!((&denied["status"], &denied["retry_after_ms"]), (&json!(503), &json!(1000)));
    assert!(!got.text().contains("hunter2"), "{}", got.text());
    assert_eq!(api.observed()[1], "POST /login Some(203.0.113.7) 503 None");
}

#[tokio::test]
async fn peeking_spends_nothing_and_is_not_counted() {
    let api = api();
    let question = json!({"path": "/api/x", "client": "203.0.113.7"});
    for _ in 0..5 {
        let reply = api.peek(question.clone()).await;
        assert_eq!(reply["verdict"], "allow");
        assert_eq!(reply["standings"][0]["remaining"], 3);
    }
    assert_eq!(api.observed(), [""; 0]);
    assert_eq!(api.ask(question).await["standings"][0]["remaining"], 2);
}

#[tokio::test]
async fn a_grpc_call_is_refused_the_grpc_way() {
    let api = api();
    let question = json!({
        "path": "/api/x", "client": "203.0.113.7", "headers": {"content-type": "application/grpc"}
    });
    for _ in 0..3 {
        api.ask(question.clone()).await;
    }
    let reply = api.ask(question).await;
    assert_eq!((&reply["verdict"], &reply["status"]), (&json!("deny"), &json!(200)));
    assert_eq!(reply["headers"]["grpc-status"], "8");
}

#[tokio::test]
async fn no_detour_gets_around_a_policy() {
    let api = api();
    let ask = |path| api.ask(json!({"method": "POST", "path": path, "client": "203.0.113.7"}));
    assert_eq!(ask("/login").await["verdict"], "allow");
    for path in ["//login", "/%6cogin?next=/", "/api/../login"] {
        assert_ne!(ask(path).await["verdict"], "allow", "{path}");
    }
}

#[tokio::test]
async fn a_method_in_another_case_is_refused() {
    let api = api();
    for method in ["post", "Post", "pOST", "get", "delete", "options"] {
        let question = json!({"method": method, "path": "/login", "client": "203.0.113.7"});
        let got = api.post("/v1/decide", question.to_string()).await;
        assert_eq!(got.status, 400, "{method}");
        let reply = got.json();
        assert_eq!((&reply["verdict"], &reply["status"]), (&json!("block"), &json!(400)));
        assert_eq!(reply["reason"], "bad-request");
        assert!(reply["body"].as_str().unwrap().contains("only in case"), "{reply}");
        let line = format!("{method} /login Some(203.0.113.7) 400 None");
        assert_eq!(api.observed(), [line]);
        // The others of a list are decided.
        let got = api.post("/v1/decide?peek=true", json!([{}, question]).to_string()).await;
        assert_eq!((got.status.as_u16(), &got.json()[0]["verdict"]), (200, &json!("allow")));
        assert_eq!(got.json()[1], reply);
    }
    // An unknown method has no known spelling in another case.
    let question = json!({"method": "BREW", "path": "/export", "client": "203.0.113.7"});
    assert_eq!(api.ask(question).await["standings"][0]["policy"], "export");
}

#[tokio::test]
async fn one_credential_is_one_account_and_two_are_none() {
    let api = api();
    let ask = |key: Value| json!({"path": "/api/x", "headers": {"x-api-key": key}});
    for (key, remaining) in [("k", 2), ("k ", 1), ("\tk", 0)] {
        let reply = api.ask(ask(json!(key))).await;
        assert_eq!(reply["standings"][0]["remaining"], remaining, "{key:?}");
    }
    for question in
        [ask(json!(["k", "l"])), json!({"headers": {"x-api-key": "k", "X-API-KEY": "l"}})]
    {
        let got = api.post("/v1/decide", question.to_string()).await;
        assert_eq!((got.status.as_u16(), &got.json()["reason"]), (400, &json!("bad-request")));
        assert!(got.text().contains("x-api-key"), "{}", got.text());
    }
    let tenants = json!({"headers": {"x-tenant": ["a", "b"]}, "path": "/tenant", "trusted": true});
    assert_eq!(api.post("/v1/decide", tenants.to_string()).await.status, 400);
}
