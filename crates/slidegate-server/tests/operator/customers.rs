//! Customers, as an operator sees them and acts on them: never by a key or its digest.

use std::fs;

use serde_json::{Value, json};
use slidegate::policy::KeyHash;
use slidegate_testbed::{Directory, Gateway, Upstream, wait_until};

use crate::configure;
use crate::terminal::Operator;

const KEYS: [&str; 3] = ["sk-one", "sk-two", "sk-three"];

/// The statuses of a request with each of these keys.
fn statuses<const N: usize>(gateway: &Gateway, keys: [&str; N]) -> [u16; N] {
    keys.map(|key| gateway.get("/", &format!("X-API-Key: {key}\r\n")).status())
}

#[test]
fn an_operator_sees_customers_and_acts_on_them_and_sees_no_key() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let [one, two] = [KeyHash::Slidegate.hex(b"sk-one"), KeyHash::Sha256.hex(b"sk-two")];
    let csv = format!("customer,digest\nacme,{one}\nacme,{two}\n");
    let (keys, audit) = (directory.write("keys.csv", &csv), directory.file("audit.jsonl"));
    let setup = configure(&upstream)
        .tables(&format!("[audit]\nfile = {audit:?}\nevery_decision = true"))
        .tables("[plans.free]\nquotas = \"4/h\"")
        .policy("api", "", "identity = [\"api-key\", \"ip\"]\nplan = \"free\"");
    let text = format!("keys_file = {keys:?}\n{}", setup.text());
    let gateway = Gateway::from(crate::options().configuration(&text).start());
    assert_eq!(
        statuses(&gateway, ["sk-one", "sk-two", "sk-one", "sk-two", "sk-one", "sk-two"]),
        [200, 200, 200, 200, 429, 429]
    );
    let operator = Operator::of(&gateway);
    let mut shown = Vec::new();
    let mut see = |path: &str| {
        let (status, answer) = operator.ask("GET", path, "");
        assert_eq!(status, 200, "{path}: {answer}");
        shown.push(answer.to_string());
        answer
    };
    for sort in ["nearest", "denied"] {
        let list = see(&format!("/v1/accounts?sort={sort}"));
        let [account] = &list["accounts"].as_array().unwrap()[..] else { panic!("{list}") };
        assert_eq!(account["identity"], "customer:acme", "{list}");
        assert_eq!(account["quotas"][0]["spent"], 4, "{list}");
    }
    let account = see("/v1/accounts/customer:acme");
    assert_eq!(account["accounts"][0]["quotas"][0]["remaining"], 0, "{account}");
    let density = see("/v1/accounts/customer:acme/density");
    assert_eq!(density["accounts"][0]["quotas"][0]["spent"], 4, "{density}");
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&audit).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let decisions = || lines().into_iter().filter(|line| line["event"] == "decision");
    wait_until("the audit trail", || decisions().count() == 6);
    assert!(decisions().all(|line| line["policies"][0]["identity"] == "customer:acme"));
    let audited = see("/v1/accounts/customer:acme/audit");
    assert!(audited.to_string().contains("customer:acme"), "{audited}");
    see("/v1/now");
    shown.push(gateway.metrics());

    // A ban of the customer is one of all its keys, and a reset gives it all units.
    let run = |arguments: &[&str]| operator.run(&[arguments, &["--reason", "a test"]].concat());
    run(&["reset", "customer:acme"]);
    assert_eq!(statuses(&gateway, ["sk-one", "sk-two"]), [200, 200]);
    run(&["ban", "customer:acme", "--for", "1h"]);
    assert_eq!(statuses(&gateway, KEYS), [403, 403, 200], "the third is not of the customer");
    let inspected = operator.json(&["inspect", "customer:acme"]);
    assert_eq!(inspected["identity"], "customer:acme", "{inspected}");
    assert_eq!(inspected["overrides"].as_array().unwrap().len(), 1, "{inspected}");
    assert_eq!(inspected["accounts"][0]["quotas"][0]["spent"], json!(2), "{inspected}");
    shown.push(inspected.to_string());
    shown.push(operator.run(&["accounts"]));
    shown.push(operator.run(&["inspect", "customer:acme"]));
    shown.push(fs::read_to_string(&audit).unwrap());
    shown.push(gateway.output());
    for (text, secret) in shown.iter().flat_map(|text| {
        [KEYS[0], KEYS[1], &one, &two, &one[..16], &two[..16]].map(|secret| (text, secret))
    }) {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
