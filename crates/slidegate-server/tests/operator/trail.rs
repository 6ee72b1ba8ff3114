//! What is written down of what operators do.

use std::fs;

use serde_json::{Value, json};
use slidegate_testbed::{Directory, Upstream, wait_until};

use crate::terminal::{Operator, for_many_clients};

#[test]
fn every_action_is_in_the_audit_trail_with_who_what_whom_and_why() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("audit.jsonl");
    let gateway = for_many_clients(&upstream)
        .policy("api", "2/h", "")
        .tables(&format!("[audit]\nfile = {file:?}\n[log]\nformat = \"json\""))
        .start();
    let operator = Operator::of(&gateway);
    let user = "user:42";
    operator.run(&["reset", user, "--policy", "api", "--reason", "one"]);
    operator.run(&["grant", user, "7", "--quota", "h", "--for", "1h", "--reason", "two"]);
    operator.run(&["exempt", user, "--for", "1h", "--reason", "three"]);
    operator.run(&["ban", user, "--for", "1h", "--reason", "four \"quoted\" \u{fc}"]);
    let ids = operator.overrides();
    operator.run(&["lift", &ids[0], "--reason", "five"]);
    operator.fail(&["ban", user, "--policy", "web", "--for", "1h", "--reason", "six"]);
    operator.fail(&["lift", "none", "--reason", "seven"]);
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == "operator").collect()
    };
    wait_until("the lines", || lines().len() == 7);
    let lines = lines();
    let field_of = |i: usize, field: &str| lines[i][field].clone();
    for (i, (action, outcome, reason)) in [
        ("reset", "done", "one"),
        ("grant", "done", "two"),
        ("exempt", "done", "three"),
        ("ban", "done", "four \"quoted\" \u{fc}"),
        ("lift", "done", "five"),
        ("ban", "refused", "six"),
        ("lift", "refused", "seven"),
    ]
    .into_iter()
    .enumerate()
    {
        let line = (
            field_of(i, "action"),
            field_of(i, "outcome"),
            field_of(i, "reason"),
            field_of(i, "by"),
        );
        assert_eq!(line, (json!(action), json!(outcome), json!(reason), json!("127.0.0.1")));
        let identity = if reason == "seven" { Value::Null } else { json!(user) };
        assert_eq!(field_of(i, "identity"), identity, "{}", lines[i]);
        let time = field_of(i, "time").as_str().unwrap().to_owned();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
        let is_about_known_override = matches!(i, 1..=5);
        assert_eq!(field_of(i, "until").is_string(), is_about_known_override, "{}", lines[i]);
        assert_eq!(field_of(i, "kind").is_string(), is_about_known_override, "{}", lines[i]);
        assert_eq!(field_of(i, "id").is_string(), i > 0, "{}", lines[i]);
    }
    let about =
        |i: usize| ["id", "kind", "until", "units", "quota"].map(|field| field_of(i, field));
    assert_eq!(
        [1, 2, 3, 5].map(|i| field_of(i, "kind")),
        ["grant", "exempt", "ban", "ban"].map(Value::from)
    );
    assert_eq!(about(4), about(1), "a lift says what was lifted: the first to end is the grant");
    assert_eq!([field_of(4, "id"), field_of(6, "id")], [json!(ids[0]), json!("none")]);
    let given: Vec<Value> = [1, 2, 3].map(|i| field_of(i, "id")).to_vec();
    assert_eq!(given, ids, "as the operator is shown them");
    assert_eq!(field_of(1, "quota"), "h");
    assert_ne!(field_of(5, "id"), field_of(3, "id"), "under one policy it is another override");
    assert_eq!(
        (field_of(0, "policy"), field_of(1, "policy"), field_of(1, "units")),
        (json!("api"), Value::Null, json!(7))
    );
    assert_eq!(field_of(5, "problem"), "there is no policy \"web\"; there is api");
    wait_until("the log", || gateway.output().contains("\"reason\":\"seven\""));
    let output = gateway.output();
    let logged: Vec<Value> = output
        .lines()
        .filter(|line| line.contains("\"target\":\"slidegate::operator\""))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (line, log) in lines.iter().zip(&logged) {
        for field in ["id", "kind", "until", "units"] {
            assert_eq!(line[field], log[field], "{field} of {log}");
        }
    }

    let count = |labels: &str| gateway.metric("slidegate_operator_actions_total", labels);
    assert_eq!(count("action=\"ban\",outcome=\"done\""), 1.0);
    assert_eq!(count("action=\"ban\",outcome=\"refused\""), 1.0);
    assert_eq!(count("outcome=\"done\""), 5.0);
    assert_eq!(gateway.metric("slidegate_overrides", ""), 2.0, "three, and one was lifted");
}
