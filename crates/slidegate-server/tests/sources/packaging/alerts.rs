//! The alerting rules: what promtool says of them, and what they tell a person on call.

use serde_json::Value;

use super::{items, promtool, read, text, yaml};

/// The rules of all groups, in a file or in an answer of Prometheus.
pub(super) fn rules(document: &Value) -> Vec<Value> {
    let groups = items(&document["groups"]).iter();
    groups.flat_map(|group| items(&group["rules"])).cloned().collect()
}

#[test]
fn promtool_accepts_the_alerts_and_their_cases_hold() {
    promtool(&["check", "rules", "alerts.yml"]);
    promtool(&["test", "rules", "alerts.test.yml"]);
}

#[test]
fn each_alert_has_a_case_and_says_what_it_means_and_what_to_do() {
    let (cases, page) = (read("packaging/alerts.test.yml"), read("docs/operation.md"));
    assert!(page.contains("\n### Alerts\n"), "the anchor of runbook_url");
    let rules = rules(&yaml("packaging/alerts.yml"));
    let alerts: Vec<&Value> = rules.iter().filter(|rule| rule.get("alert").is_some()).collect();
    assert!(alerts.len() >= 15, "{}", alerts.len());
    for alert in alerts {
        let name = text(&alert["alert"]);
        assert!(cases.contains(name), "{name} is in no case of alerts.test.yml");
        assert!(
            page.contains(&format!("\n| `{name}` |")),
            "{name} has no row in docs/operation.md"
        );
        assert!(["critical", "warning"].contains(&text(&alert["labels"]["severity"])), "{name}");
        let said = |key: &str| text(&alert["annotations"][key]);
        assert!(said("summary").ends_with('.') && said("description").ends_with('.'), "{name}");
        assert!(said("runbook_url").ends_with("/docs/operation.md#alerts"), "{name}");
    }
}
