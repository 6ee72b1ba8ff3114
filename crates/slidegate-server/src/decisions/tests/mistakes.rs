//! Questions that cannot be answered.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use super::api;
use crate::decisions::question::MAX_BYTES;

/// Each question, its first mistake, and a part of the error.
#[tokio::test]
async fn a_questions_first_mistake_is_named() {
    let api = api();
    let charge = |charge: Value| json!({"charges": [charge]});
    let table = [
        (json!(7), "", "integer `7`, expected an object"),
        (json!("GET /"), "", "string \"GET /\", expected an object"),
        (json!({"methode": "GET"}), "methode", "unknown field `methode`, expected one of `method`"),
        (json!({"method": "G T"}), "method", "expected a method such as GET, not \"G T\""),
        (json!({"method": 1}), "method", "integer `1`, expected a string"),
        (json!({"path": ["/"]}), "path", "sequence, expected a string"),
        (json!({"client": "localhost"}), "client", "invalid IP address"),
        (json!({"client": 7}), "client", "integer `7`, expected IP address"),
        (json!({"user": 42}), "user", "integer `42`, expected a string"),
        (json!({"plan": {}}), "plan", "map, expected a string"),
        (json!({"cost": 0}), "cost", "integer `0`, expected a nonzero u32"),
        (json!({"cost": -1}), "cost", "integer `-1`"),
        (json!({"cost": 1.5}), "cost", "floating point `1.5`"),
        (json!({"cost": 4_294_967_296_u64}), "cost", "integer `4294967296`"),
        (json!({"cost": "1"}), "cost", "string \"1\""),
        (json!({"trusted": "yes"}), "trusted", "string \"yes\", expected a boolean"),
        (json!({"refundable": 1}), "refundable", "integer `1`, expected a boolean"),
        (json!({"hold": 0}), "hold", "integer `0`, expected a nonzero u32"),
        (json!({"hold": 2, "cost": 1}), "hold", "not together with cost"),
        (
            json!({"hold": 2, "charges": [{"policy": "api", "identity": "user:1", "cost": 1}]}),
            "hold",
            "expected a charge without a cost",
        ),
        (json!({"headers": []}), "headers", "sequence, expected an object of headers"),
        (json!({"headers": {"a b": "c"}}), "headers", "\"a b\" is not a header's name"),
        (json!({"headers": {"x-a": 7}}), "headers", "expected a value of x-a"),
        (json!({"headers": {"x-a": ["b", "c\n"]}}), "headers", "expected a value of x-a"),
        (json!([{}, {"client": "x"}]), "[1].client", "invalid IP address"),
        (json!([{}, 7]), "[1]", "integer `7`, expected an object"),
        (json!({"charges": 7}), "charges", "integer `7`, expected a list of at most 16"),
        (json!({"charges": []}), "charges", "expected at least one charge"),
        (charge(json!(7)), "charges[0]", "integer `7`, expected an object"),
        (charge(json!({"identity": "user:42"})), "charges[0]", "missing field `policy`"),
        (charge(json!({"policy": "api"})), "charges[0]", "missing field `identity`"),
        (charge(json!({"policy": 7})), "charges[0].policy", "integer `7`, expected a string"),
        (charge(json!({"identity": 7})), "charges[0].identity", "expected an identity such as"),
        (charge(json!({"plan": 7})), "charges[0].plan", "expected a string"),
        (charge(json!({"cost": 0})), "charges[0].cost", "expected a nonzero u32"),
        (charge(json!({"who": 7})), "charges[0].who", "unknown field `who`, expected one of"),
        (
            json!({"charges": [{"policy": "api", "identity": "user:42"}], "path": "/"}),
            "charges",
            "not together with members that describe a request",
        ),
        (
            charge(json!({"policy": "nope", "identity": "user:42"})),
            "charges[0].policy",
            "there is no policy \"nope\"",
        ),
        (
            json!({"charges": [
                {"policy": "api", "identity": "user:42"}, {"policy": "api", "identity": "user:43"}
            ]}),
            "charges[1].policy",
            "charged twice",
        ),
    ];
    for (question, member, part) in table {
        let got = api.post("/v1/decide", question.to_string()).await;
        assert_eq!(got.status, 400, "{question}");
        assert_eq!(got.header("content-type"), Some("application/problem+json"));
        let problems = got.json()["problems"].as_array().unwrap().clone();
        assert_eq!(problems.len(), 1, "{question}: {}", got.text());
        assert_eq!(problems[0]["member"].as_str().unwrap_or_default(), member, "{}", got.text());
        assert!(problems[0]["problem"].as_str().unwrap().contains(part), "{}", got.text());
    }
    assert_eq!(api.observed(), [""; 0]);
}

#[tokio::test]
async fn invalid_identities_are_mistakes() {
    let api = api();
    for (identity, part) in [
        (json!("nobody"), "expected kind:value"),
        (json!("user:"), "expected kind:value"),
        (json!("ip:localhost"), "expected an IP address"),
        (json!("api-key:hunter2"), "expected the digest of the secret"),
        (json!("authorization:Bearer hunter2"), "expected the digest of the secret"),
        (json!("x-api-key:hunter2"), "expected the digest of the secret"),
        (json!("apikey {hunter2}"), "expected kind:value"),
        (json!({"kind": "user"}), "a value that is not empty"),
        (json!({"value": "hunter2"}), "missing"),
        (json!({"kind": "ip", "value": "hunter2"}), "expected an IP address"),
        (json!({"kind": "two words", "value": "hunter2"}), "expected as kind"),
        (json!({"kind": 7, "value": "hunter2"}), "expected a string"),
        (json!({"kind": "user", "value": "hunter2", "x": 1}), "unknown field"),
        (json!({"kind": "api-key", "value": {"hunter2": 1}}), "expected a string"),
    ] {
        let question = json!({"charges": [{"policy": "export", "identity": identity}]});
        let got = api.post("/v1/decide", question.to_string()).await;
        assert_eq!(got.status, 400, "{question}");
        assert!(got.text().contains(part), "{question}: {}", got.text());
        assert!(!got.text().contains("hunter2"), "{}", got.text());
    }
}

#[tokio::test]
async fn text_that_is_no_json_is_not_repeated() {
    let api = api();
    for (body, part) in [
        ("", "incomplete JSON, at line 1 column 0"),
        ("{\"user\": \"hunter2\"", "incomplete JSON"),
        ("{\"user\": hunter2}", "not JSON, at line 1 column 10"),
        ("{} hunter2", "not JSON"),
        ("{\"user\": \"\u{1}hunter2\"}", "not JSON"),
        (&"[".repeat(10_000), "invalid type: sequence"),
    ] {
        let got = api.post("/v1/decide", body.to_owned()).await;
        assert_eq!(got.status, 400, "{body}");
        let problems = got.json()["problems"].clone();
        assert!(problems[0]["problem"].as_str().unwrap().contains(part), "{body}: {problems}");
        assert!(!got.text().contains("hunter2"), "{}", got.text());
    }
    assert_eq!(api.post("/v1/decide", &b"{\"user\": \"\xff\"}"[..]).await.status, 400);
}

#[tokio::test]
async fn a_member_twice_is_a_mistake() {
    let api = api();
    let got = api.post("/v1/decide", r#"{"user":"a","user":"b"}"#).await;
    assert_eq!(got.status, 400);
    assert!(got.text().contains("duplicate field `user`"), "{}", got.text());
}

#[tokio::test]
async fn header_lines_paths_and_problems_are_bounded() {
    let api = api();
    let lines = vec!["v"; 1000];
    let got = api.post("/v1/decide", json!({"headers": {"x-a": lines}}).to_string()).await;
    assert_eq!(got.status, 400);
    assert!(got.text().contains("more than 256 header lines"), "{}", got.text());
    let path = |bytes: usize| json!({"path": format!("/{}", "a".repeat(bytes - 1))}).to_string();
    assert_eq!(api.post("/v1/decide", path(65_534)).await.status, 200);
    let got = api.post("/v1/decide", path(65_535)).await;
    assert!(got.text().contains("path: longer than 65534 bytes"), "{}", got.text());
    let got = api.post("/v1/decide", json!({"cost": "1".repeat(10_000)}).to_string()).await;
    assert!(got.text().len() < 1000, "{}", got.text());
}

#[tokio::test]
async fn bodies_are_bounded() {
    let api = api();
    let padded = |bytes| format!("{{}}{}", " ".repeat(bytes - 2));
    assert_eq!(api.post("/v1/decide", padded(MAX_BYTES)).await.status, 200);
    assert_eq!(api.post("/v1/decide", padded(MAX_BYTES + 1)).await.status, 413);
}

#[tokio::test]
async fn only_json_is_read() {
    let api = api();
    for (content_type, status) in [
        (Some("application/json"), 200),
        (Some("Application/JSON; charset=utf-8"), 200),
        (Some("application/x-www-form-urlencoded"), 415),
        (Some("text/plain"), 415),
        (None, 415),
    ] {
        let mut request = Request::post("/v1/decide");
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let request = request.body(Full::new(Bytes::from_static(b"{}"))).unwrap();
        assert_eq!(api.send("127.0.0.1", request).await.status, status, "{content_type:?}");
    }
}

#[tokio::test]
async fn other_methods_paths_and_queries_are_refused() {
    let api = api();
    for (method, target, status, allow) in [
        ("GET", "/v1/decide", 405, Some("POST")),
        ("PUT", "/v1/decide", 405, Some("POST")),
        ("GET", "/v1/refund", 405, Some("POST")),
        ("GET", "/v1/settle", 405, Some("POST")),
        ("GET", "/v1/record", 405, Some("POST")),
        ("POST", "/v1/openapi.json", 405, Some("GET, HEAD")),
        ("POST", "/v1/decide?peek=yes", 400, None),
        ("POST", "/v1/decide?dry_run=true", 400, None),
        ("POST", "/v1/decide?peek=false", 200, None),
        ("POST", "/v1/decide?peek=False", 200, None),
        ("POST", "/v1/decide?peek=True", 200, None),
        ("POST", "/v1/decide?peek=", 400, None),
        ("GET", "/", 404, None),
        ("POST", "/v1/decide/", 404, None),
        ("GET", "/v1/auth/envoyx", 404, None),
        ("GET", "/v1/auth/apache", 404, None),
    ] {
        let request = Request::builder().method(method).uri(target);
        let request = request.header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from_static(b"{}"))).unwrap();
        let got = api.send("127.0.0.1", request).await;
        assert_eq!((got.status.as_u16(), got.header("allow")), (status, allow), "{target}");
    }
}
