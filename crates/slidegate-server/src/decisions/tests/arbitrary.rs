//! Whatever is sent, there is an answer.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::api;

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

fn status(body: Vec<u8>) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { api().post("/v1/decide", body).await.status.as_u16() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!([200, 400].contains(&status(body)));
    }

    #[test]
    fn any_json(json in nearly()) {
        prop_assert!([200, 400].contains(&status(json.to_string().into_bytes())));
    }

    #[test]
    fn any_value_of_any_member(name in "method|path|headers|client|user|plan|cost|trusted|charges",
                               value in nearly()) {
        let question = json!({ name: value });
        prop_assert!([200, 400].contains(&status(question.to_string().into_bytes())));
    }
}
