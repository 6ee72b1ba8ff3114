//! The alerting rules: every metric and label that they name is on the page of metrics.

use slidegate_testbed::RedisServer;

use super::manifest::Document;
use super::read;
use crate::support::{Place, Upstream, gateway};

const RULE: &str = "groups.rules";

#[test]
fn every_alert_goes_by_metrics_that_there_are() {
    let documents = Document::all(&read("packaging/alerts.yml"));
    let [rules] = &documents[..] else { panic!("one document") };
    let names = rules.values(&format!("{RULE}.alert"));
    let expressions = rules.values(&format!("{RULE}.expr"));
    let summaries = rules.values(&format!("{RULE}.annotations.summary"));
    assert_eq!((expressions.len(), summaries.len()), (names.len(), names.len()));
    for name in ["SlidegateWithoutRedis", "SlidegateKeysNotCounted", "SlidegateConfigBad"] {
        assert!(names.contains(&name), "{names:?}");
    }

    // Some metrics are there only once there is something to count.
    let (redis, upstream, place) = (RedisServer::start(), Upstream::simple(), Place::new());
    redis.command(&["LPUSH", "slidegate:{ip:127.0.0.1}:api:min", "no ledger"]).integer();
    let front = gateway(&upstream)
        .tables(&format!("[store]\nurl = {:?}\ndeadline = \"2s\"", redis.url()))
        .tables(&format!("[audit]\nfile = {:?}", place.path("audit.jsonl")))
        .policy("api", "10/min", "")
        .start();
    assert_eq!(front.status("/"), 200);
    let page = front.metrics();
    for expression in expressions {
        let metrics: Vec<&str> = expression
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("slidegate_"))
            .collect();
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            let there = |line: &str| {
                line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            assert!(page.lines().any(there), "{metric} in {expression}\n{page}");
        }
        for label in expression.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            assert!(page.contains(label), "{label} in {expression}\n{page}");
        }
    }
}
