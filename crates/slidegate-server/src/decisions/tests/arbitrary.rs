//! Whatever is sent, there is an answer.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::openapi::is_question;
use super::{DecisionsApi, api};

/// JSON that is often nearly right.
fn nearly() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(vec!["/api/x", "203.0.113.7", "POST", "export", "user:42", "pro"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let names = prop::sample::select(vec![
            "method",
            "path",
            "headers",
            "client",
            "user",
            "plan",
            "cost",
            "hold",
            "trusted",
            "charges",
            "policy",
            "identity",
            "kind",
            "value",
            "x-api-key",
            "",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(names.prop_map(str::to_owned), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A member that is null is as good as absent, which the description says of most of them only.
fn without_nulls(mut json: Value) -> Value {
    match &mut json {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(|value| *value = without_nulls(value.take()));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| *item = without_nulls(item.take()));
        }
        _ => {}
    }
    json
}

/// The items of a list, or the only one.
fn each(json: &Value) -> &[Value] {
    json.as_array().map_or(std::slice::from_ref(json), Vec::as_slice)
}

fn check_answer(asked: &Value, reply: &Value) {
    let verdict = reply["verdict"].as_str().expect("a verdict");
    if reply["reason"] == "bad-request" {
        assert_eq!((verdict, &reply["status"]), ("block", &json!(400)), "{asked}: {reply}");
    } else {
        // A question in a list may also be a list of its members' values.
        let is_described = is_question(&without_nulls(asked.clone())) || asked.is_array();
        assert!(is_described, "not as described: {asked}");
    }
}

/// Asks, and returns whether there was a verdict for each question. Otherwise it must be 400 with a
/// problem of a member that there is.
pub(super) fn is_answered(api: &DecisionsApi, body: Vec<u8>) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let asked = serde_json::from_slice::<Value>(&body).ok();
    let text = String::from_utf8_lossy(&body).into_owned();
    let got = runtime.block_on(api.post("/v1/decide", body));
    match got.status.as_u16() {
        // 400 is for a single question about a request that the gateway would refuse as malformed.
        status if status == 200 || got.json()["reason"] == "bad-request" => {
            let asked = asked.expect("what is answered is JSON");
            let replies = got.json();
            assert_eq!(replies.is_array(), asked.is_array(), "{asked}: {replies}");
            let (asked, replies) = (each(&asked), each(&replies));
            assert_eq!(asked.len(), replies.len());
            for (asked, reply) in asked.iter().zip(replies) {
                check_answer(asked, reply);
            }
            true
        }
        400 => {
            let problem = got.json();
            let problems = problem["problems"]
                .as_array()
                .unwrap_or_else(|| panic!("no problems: {asked:?}: {problem}"));
            assert!(!problems.is_empty(), "{problem}");
            for each in problems {
                assert_ne!(each["problem"].as_str().unwrap(), "", "{problem}");
                let member = each["member"].as_str().unwrap_or_default();
                // A long name is shown in part.
                let (shown, is_part) = match member.strip_suffix('…') {
                    Some(begin) => (begin, true),
                    None => (member, false),
                };
                // Names of members may have dots and brackets in them.
                let leads_to = |key: &String| match shown.strip_prefix(key.as_str()) {
                    Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
                    None => is_part && key.starts_with(shown),
                };
                let is_there = match &asked {
                    Some(Value::Object(asked)) => shown.is_empty() || asked.keys().any(leads_to),
                    Some(_) => shown.is_empty() || shown.starts_with('['),
                    // The reported mistake may stand before the place where the body stops being JSON.
                    None => {
                        let begin = shown.split(['.', '[']).next().unwrap_or_default();
                        text.contains(begin) || text.contains('\\')
                    }
                };
                assert!(is_there, "{asked:?} has no such member: {problem}");
            }
            false
        }
        other => panic!("{other}: {}", got.text()),
    }
}

/// Asks with generated bodies, and returns what part of them was answered.
fn answered_share<T: std::fmt::Debug>(
    strategy: &impl Strategy<Value = T>,
    body: impl Fn(T) -> Vec<u8>,
) -> f64 {
    let (asked, answered) = (Cell::new(0_u32), Cell::new(0_u32));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(512));
    runner
        .run(strategy, |value| {
            asked.set(asked.get() + 1);
            answered.set(answered.get() + u32::from(is_answered(&api(), body(value))));
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    f64::from(answered.get()) / f64::from(asked.get())
}

#[test]
fn any_bytes_are_refused_with_a_problem() {
    let share = answered_share(&prop::collection::vec(any::<u8>(), 0..200), |body| body);
    assert!(share < 0.01, "{share}");
}

#[test]
fn any_json_is_answered_if_it_is_a_question_and_else_refused_with_its_member() {
    let share = answered_share(&nearly(), |json| json.to_string().into_bytes());
    assert!((0.05..0.5).contains(&share), "{share}");
}

#[test]
fn any_value_of_a_member_is_taken_or_refused_with_the_member() {
    let names = "method|path|headers|client|user|plan|cost|trusted|charges";
    let values = prop_oneof![
        nearly(),
        prop::sample::select(vec![
            json!("POST"),
            json!("/login"),
            json!("203.0.113.7"),
            json!(3),
            json!(true),
            json!({"x-api-key": "k"}),
            json!([{"policy": "export", "identity": "user:42"}]),
        ]),
    ];
    let share = answered_share(&(names, values), |(name, value)| {
        json!({ name: value }).to_string().into_bytes()
    });
    assert!((0.05..0.5).contains(&share), "{share}");
}
