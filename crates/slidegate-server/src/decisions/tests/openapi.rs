//! The description, held against what is really answered.

use std::sync::LazyLock;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use jsonschema::Validator;
use serde_json::{Value, json};

use super::{Got, api};
use crate::decisions::OPENAPI;

static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(OPENAPI).unwrap());
static ASK: LazyLock<Validator> = LazyLock::new(|| validator("Ask"));
static ANSWER: LazyLock<Validator> = LazyLock::new(|| validator("Answer"));
static SETTLED: LazyLock<Validator> = LazyLock::new(|| validator("Settled"));
static PROBLEM: LazyLock<Validator> = LazyLock::new(|| validator("Problem"));

fn validator(schema: &str) -> Validator {
    let mut root = DESCRIPTION.clone();
    root["$ref"] = json!(format!("#/components/schemas/{schema}"));
    jsonschema::validator_for(&root).unwrap()
}

/// Whether the description has such a question, or such a list of them.
pub(super) fn is_question(json: &Value) -> bool {
    ASK.is_valid(json)
}

/// Fails unless the body of a response is as described.
pub(super) fn check(got: &Got) {
    let validator = match (got.status.as_u16(), got.header("content-type")) {
        (200, Some("application/json")) if got.body.starts_with(b"{\n") => return,
        (200, Some("application/json")) if got.body.starts_with(b"{\"settled\"") => &SETTLED,
        (200 | 400, Some("application/json")) => &ANSWER,
        (400..=404 | 405..=428 | 430.., Some("application/problem+json"))
            if got.header("cache-control").is_none() =>
        {
            &PROBLEM
        }
        // Refusals are for clients, in whatever shape the operator likes.
        _ => return,
    };
    let errors: Vec<String> =
        validator.iter_errors(&got.json()).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?} in {}", got.text());
}

#[tokio::test]
async fn openapi_is_served_as_it_is_written() {
    let request = Request::get("/v1/openapi.json").body(Full::new(Bytes::new())).unwrap();
    let got = api().send("127.0.0.1", request).await;
    assert_eq!((got.status.as_u16(), got.text()), (200, OPENAPI));
    assert_eq!(got.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn every_path_and_method_of_openapi_exists() {
    let api = api();
    let paths = DESCRIPTION["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 9);
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let target = path.replace("{path}", "some/where");
            let request = Request::builder().method(&*method.to_uppercase()).uri(&target);
            let request = request.body(Full::new(Bytes::new())).unwrap();
            let status = api.send("127.0.0.1", request).await.status.as_u16();
            assert!(![404, 405].contains(&status), "{method} {path}: {status}");
            let described = methods[method]["responses"].get(status.to_string());
            assert!(described.is_some(), "{method} {path} answers {status}");
        }
    }
}

#[test]
fn openapi_describes_the_questions() {
    for question in [
        json!({}),
        json!({
            "method": "POST", "path": "/x?y", "headers": {"a": "b", "c": ["d", "e"]},
            "client": "::1", "user": "42", "plan": "pro", "cost": 3, "trusted": true,
            "refundable": true
        }),
        json!({"user": null, "cost": null}),
        json!([{"path": "/"}, {"charges": [{"policy": "api", "identity": "user:42", "cost": 1}]}]),
        json!({
            "charges": [{"policy": "api", "identity": {"kind": "user", "value": "42"}}],
            "refundable": true
        }),
        json!({"path": "/x", "hold": 2000, "cost": null}),
        json!({"charges": [{"policy": "api", "identity": "user:42"}], "hold": 4294967295_u32}),
    ] {
        assert!(ASK.is_valid(&question), "{question}");
    }
    for question in [
        json!(7),
        json!({"methode": "GET"}),
        json!({"path": "login"}),
        json!({"cost": 0}),
        json!({"refundable": 1}),
        json!({"hold": 0}),
        json!({"hold": 2, "cost": 1}),
        json!({"charges": []}),
        json!({"charges": [{"policy": "api"}]}),
        json!({"path": "/", "charges": [{"policy": "api", "identity": "user:42"}]}),
    ] {
        assert!(!ASK.is_valid(&question), "{question}");
    }
}
