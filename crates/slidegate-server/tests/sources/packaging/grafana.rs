//! The dashboard and the alerts, asked of a real Prometheus that scrapes a real server.

use std::collections::HashSet;
use std::fs;
use std::time::Instant;

use reqwest::blocking::Client;
use serde_json::Value;
use slidegate_testbed::http1::IO_TIMEOUT;
use slidegate_testbed::{Directory, Gateway, Prometheus, RedisServer, Upstream, wait_until};

use super::alerts::rules;
use super::{items, path, read, text, yaml};
use crate::{configure, options};

const TOKEN: &str = "a token of the test";

fn dashboard() -> Value {
    serde_json::from_str(&read("packaging/grafana.json")).unwrap()
}

/// The labels that a legend shows, such as `{{policy}}`.
fn legend_labels(legend: &str) -> Vec<&str> {
    legend.split("{{").skip(1).map(|rest| rest.split_once("}}").unwrap().0).collect()
}

/// The selectors of an expression, such as `up{job="slidegate"}`, each without its range.
fn selectors(expression: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let names = expression.split(|c| !is_name(c)).filter(|word| {
        *word == "up" || word.starts_with("slidegate_") || word.contains(":slidegate_")
    });
    let selector = |name: &str| {
        let start = name.as_ptr() as usize - expression.as_ptr() as usize;
        let matchers = expression[start + name.len()..].strip_prefix('{');
        let matchers = matchers.and_then(|rest| rest.split_once('}'));
        format!("{name}{{{}}}", matchers.map_or("", |(matchers, _)| matchers))
    };
    names.map(selector).collect()
}

/// A server with traffic of every kind, and the Prometheus that scrapes it, configured as that of
/// compose but for addresses, files and intervals.
struct Monitored {
    gateway: Gateway,
    prometheus: Prometheus,
    client: Client,
    redis: RedisServer,
    _rest: (Upstream, Directory),
}

impl Monitored {
    fn start() -> Self {
        let (redis, upstream, directory) =
            (RedisServer::start(), Upstream::simple(), Directory::new());
        redis.command(&["LPUSH", "slidegate:{ip:127.0.0.1}:broken:min", "no ledger"]).integer();
        let gateway = configure(&upstream)
            .key("trusted_proxies", "[\"127.0.0.1\"]")
            .tables(&format!("[store]\nurl = {:?}\ndeadline = \"2s\"", redis.url()))
            .tables(&format!("[audit]\nfile = {:?}", directory.file("audit.jsonl")))
            .tables("[plans.free]\nquotas = [\"1/h\"]\n[plans.pro]\nquotas = [\"100000/h\"]")
            .policy("api", "", "plan = { header = \"x-plan\", default = \"free\" }")
            .policy("trial", "1/h", "shadow = true")
            .policy("broken", "100000/min", "match = { path = \"/broken\" }")
            .policy("leased", "100000/min", "consistency = \"async\"")
            .start_with(options().variable("SLIDEGATE_ADMIN_TOKEN", TOKEN));
        let token = directory.file("admin-token");
        fs::write(&token, TOKEN).unwrap();
        let rules = path("packaging/alerts.yml");
        let configuration = read("packaging/compose/prometheus.yml")
            .replace(": 15s", ": 1s")
            .replace("gateway:9090", &gateway.admin().to_string())
            .replace("/etc/prometheus/alerts.yml", rules.to_str().unwrap())
            .replace("/run/secrets/admin-token", token.to_str().unwrap());
        let prometheus = Prometheus::start(&configuration);
        Self { gateway, prometheus, client: Client::new(), redis, _rest: (upstream, directory) }
    }

    /// Requests that are allowed, denied, and would be denied by a shadow policy.
    fn send_requests(&self) {
        for (path, plan, statuses) in
            [("/", "pro", &[200][..]), ("/", "free", &[200, 429]), ("/broken", "pro", &[200])]
        {
            let status = self.gateway.get(path, &format!("X-Plan: {plan}\r\n")).status();
            assert!(statuses.contains(&status), "{path} {plan}: {status}");
        }
    }

    fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let address = self.prometheus.address();
        let query = serde_urlencoded::to_string(parameters).unwrap();
        let response = self.client.get(format!("http://{address}/api/v1/{path}?{query}"));
        let text = response.send().unwrap().text().unwrap();
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["status"], "success", "{parameters:?}: {answer}");
        answer["data"].take()
    }

    /// The series of an expression that have a number now: their labels, and it.
    fn series(&self, expression: &str) -> Vec<(Value, f64)> {
        let data = self.api("query", &[("query", expression)]);
        let all = items(&data["result"]).iter();
        let all = all.map(|one| (one["metric"].clone(), text(&one["value"][1]).parse().unwrap()));
        all.filter(|(_, number): &(_, f64)| number.is_finite()).collect()
    }

    /// What `label_values(SELECTOR, LABEL)` of a variable offers.
    fn variable_values(&self, query: &str) -> Vec<String> {
        let inner = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (selector, label) = inner.rsplit_once(", ").unwrap();
        let series = self.series(selector);
        let values: HashSet<&str> = series.iter().map(|(labels, _)| text(&labels[label])).collect();
        values.into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn every_query_of_the_dashboard_and_every_metric_of_the_alerts_has_data() {
    let monitored = Monitored::start();
    let dashboard = dashboard();
    let instance = monitored.gateway.admin().to_string();
    let replace = |expression: &str, policies: &str| {
        let expression = expression.replace("$__rate_interval", "10s");
        expression.replace("$instance", &instance).replace("$policy", policies)
    };

    // Rates need two scrapes with requests between them.
    let traffic = "rate(slidegate_requests_total{verdict=\"allow\"}[10s])";
    wait_until("Prometheus to have seen requests", || {
        monitored.send_requests();
        !monitored.series(&format!("{traffic} > 0")).is_empty()
    });
    let variables = items(&dashboard["templating"]["list"]);
    let offered = |name: &str| {
        let variable = variables.iter().find(|variable| variable["name"] == name).unwrap();
        monitored.variable_values(&replace(text(&variable["query"]["query"]), ".*"))
    };
    assert_eq!(offered("instance"), [instance.as_str()]);
    let mut policies = offered("policy");
    policies.sort();
    assert_eq!(policies, ["api", "broken", "leased", "trial"]);

    let mut queries: Vec<(String, Vec<&str>)> = Vec::new();
    for target in items(&dashboard["panels"]).iter().flat_map(|panel| items(&panel["targets"])) {
        let expression = replace(text(&target["expr"]), &policies.join("|"));
        queries.push((expression, legend_labels(text(&target["legendFormat"]))));
    }
    assert!(queries.len() > 50, "{}", queries.len());
    for rule in rules(&yaml("packaging/alerts.yml")) {
        let selectors = selectors(text(&rule["expr"]));
        assert!(!selectors.is_empty(), "{rule}");
        queries.extend(selectors.into_iter().map(|selector| (selector, Vec::new())));
    }
    let deadline = Instant::now() + IO_TIMEOUT;
    while !queries.is_empty() {
        assert!(Instant::now() < deadline, "these have no data: {queries:#?}");
        monitored.send_requests();
        queries.retain(|(expression, labels)| {
            let series = monitored.series(expression);
            for (of, label) in series.iter().flat_map(|(of, _)| labels.iter().map(move |l| (of, l)))
            {
                assert_ne!(of[label], Value::Null, "{label} of {expression}: {series:?}");
            }
            series.is_empty()
        });
    }

    for rule in rules(&monitored.api("rules", &[])) {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    // What the panels show is what was sent.
    let shown = |title: &str, label: &str, value: &str| {
        let panel = items(&dashboard["panels"]).iter().find(|panel| panel["title"] == title);
        let expression = replace(text(&panel.unwrap()["targets"][0]["expr"]), ".*");
        let series = monitored.series(&expression);
        let one = series.iter().find(|(labels, _)| labels[label] == value);
        one.unwrap_or_else(|| panic!("{title}: {series:?}")).1
    };
    assert!(shown("Refused share by plan", "plan", "free") > 0.5);
    assert_eq!(shown("Refused share by plan", "plan", "pro"), 0.0);
    assert!(shown("Refused share by policy", "policy", "api") > 0.1);
    assert_eq!(shown("Refused share by policy", "policy", "trial"), 0.0);
    assert!(shown("Would-be refusals of shadow policies", "policy", "trial") > 0.5);
    assert!(shown("Requests by verdict", "verdict", "deny") > 0.0);

    monitored.redis.kill();
    wait_until("the alert of the open breaker", || {
        monitored.send_requests();
        let rules = rules(&monitored.api("rules", &[]));
        let alert = rules.iter().find(|rule| rule["name"] == "SlidegateBreakerOpen").unwrap();
        // It fires after a minute of this.
        alert["state"] == "pending"
    });
}

#[test]
fn panels_do_not_overlap_and_use_the_data_source_of_the_variable() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64() >= Some(38), "Grafana 10 or later");
    let (mut ids, mut cells) = (HashSet::new(), HashSet::new());
    for panel in items(&dashboard["panels"]) {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let of = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(of("x") + of("w") <= 24, "{panel}");
        for (x, y) in (0..of("w") * of("h")).map(|cell| (cell % of("w"), cell / of("w"))) {
            assert!(cells.insert((of("x") + x, of("y") + y)), "over another panel: {panel}");
        }
    }
    let panels = items(&dashboard["panels"]).iter();
    let targets = panels.clone().flat_map(|panel| items(&panel["targets"]));
    let variables = items(&dashboard["templating"]["list"]).iter();
    for user in panels.chain(targets).chain(variables).filter(|user| user["datasource"].is_object())
    {
        assert_eq!(user["datasource"]["uid"], "${datasource}", "{user}");
    }
}
