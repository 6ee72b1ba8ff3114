//! The density of spends over the window, as numbers, in a terminal and as a picture, whatever the
//! store.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use slidegate_testbed::{Directory, Gateway, RedisServer, Upstream};

use crate::terminal::{Operator, errors, for_many_clients, passing_at};

const CLIENT: &str = "10.0.0.1";
const DENSITY: &str = "/v1/accounts/ip:10.0.0.1/density";
const BURST_GAP: Duration = Duration::from_millis(1500);

/// A gateway with a store of this configuration, which has seen three requests of the client, and
/// after a pause four.
fn after_seven_requests(upstream: &Upstream, store: &str) -> Gateway {
    let gateway = for_many_clients(upstream)
        .tables(store)
        .policy("api", "", "match = { path = \"/\" }\nquotas = [\"20/min\", \"10000/day\"]")
        .policy("guard", "5/h", "match = { path = \"/guard\" }\nscope = \"local\"")
        .start();
    assert_eq!(passing_at(&gateway, "/", CLIENT, 3), 3);
    sleep(BURST_GAP);
    assert_eq!(passing_at(&gateway, "/", CLIENT, 4), 4);
    gateway
}

/// The quotas of the only account.
fn quotas(density: &Value) -> &[Value] {
    let [account] = &density["accounts"].as_array().unwrap()[..] else { panic!("{density}") };
    account["quotas"].as_array().unwrap()
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// What was sent is what is counted, when it was sent, and looking changes nothing.
fn counts_are_true(store: &str) {
    let upstream = Upstream::simple();
    let gateway = after_seven_requests(&upstream, store);
    let operator = Operator::of(&gateway);
    let ask = |query: &str| {
        let (status, density) = operator.ask("GET", &format!("{DENSITY}?{query}"), "");
        assert_eq!(status, 200, "{density}");
        density
    };
    let density = ask("policy=api&buckets=60");
    assert_eq!(density["identity"], "ip:10.0.0.1");
    let [minute, day] = quotas(&density) else { panic!("{density}") };
    for (quota, units) in [(minute, 20), (day, 10_000)] {
        let counts = numbers(&quota["counts"]);
        assert_eq!(counts.len(), 60, "{quota}");
        assert_eq!(counts.iter().sum::<u64>(), 7, "{quota}");
        assert_eq!((&quota["spent"], &quota["units"]), (&7.into(), &units.into()));
    }
    // Buckets of a second, so the pause is between two of them.
    let counts = numbers(&minute["counts"]);
    let sums = counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    assert!(sums.into_iter().any(|sum| sum == 3), "{counts:?}");
    let mut free = Vec::new();
    for freed in minute["free"].as_array().unwrap() {
        let after_ms = freed["after_ms"].as_u64().unwrap();
        free.extend((0..freed["units"].as_u64().unwrap()).map(|_| after_ms));
    }
    assert_eq!(free.len(), 7, "{minute}");
    assert!(free.is_sorted() && free[6] <= 60_001, "{free:?}");
    assert!(free[3] - free[2] >= BURST_GAP.as_millis() as u64, "{free:?}");

    operator.run(&["grant", CLIENT, "5", "--quota", "all", "--for", "1h", "--reason", "a test"]);
    let granted = ask("policy=api&buckets=1");
    assert_eq!(quotas(&granted)[0]["counts"], Value::from(vec![7]));
    assert_eq!(quotas(&granted)[0]["units"], 25);
    assert_eq!(passing_at(&gateway, "/guard", CLIENT, 2), 2);
    let local = ask("policy=guard&buckets=1");
    assert_eq!(quotas(&local)[0]["counts"], Value::from(vec![2]));
    let all = ask("");
    let accounts = all["accounts"].as_array().unwrap();
    assert_eq!(accounts.len(), 2, "{all}");
    assert!(accounts.iter().all(|account| account.get("degraded").is_none()), "{all}");
    let standing = operator.json(&["inspect", CLIENT, "--policy", "api"]);
    assert_eq!(standing["accounts"][0]["quotas"][0]["spent"], 7, "looking is free: {standing}");
}

#[test]
fn density_is_true_in_memory() {
    counts_are_true("");
}

#[test]
fn density_is_true_in_packed_ledgers() {
    let redis = RedisServer::start();
    let store = format!("[store]\nurl = {:?}\ndeadline = \"2s\"", redis.url());
    counts_are_true(&store);
}

#[test]
fn density_is_true_in_sorted_sets() {
    let redis = RedisServer::start();
    let store = format!("[store]\nurl = {:?}\ndeadline = \"2s\"", redis.url());
    counts_are_true(&format!("{store}\nlayout = \"sorted-set\"\nscore_unit = \"ns\""));
}

#[test]
fn mistakes_in_a_query_are_named() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream).policy("api", "10/h", "").start();
    let operator = Operator::of(&gateway);
    for (query, status, expected) in [
        ("buckets=0", 400, "buckets: expected a whole number from 1 to 1000, not 0"),
        ("buckets=1001", 400, "buckets: expected a whole number from 1 to 1000, not 1001"),
        ("buckets=some", 400, "buckets: invalid digit"),
        ("bucket=60", 400, "unknown field `bucket`"),
        ("policy=login", 404, "there is no policy \"login\"; there is api"),
        ("plan=gold", 404, "there is no plan \"gold\""),
    ] {
        let (found, problem) = operator.ask("GET", &format!("{DENSITY}?{query}"), "");
        let detail = problem["detail"].as_str().unwrap();
        assert!(found == status && detail.contains(expected), "{query}: {problem}");
    }
    let said = operator.fail(&["inspect", CLIENT, "--density", "--buckets", "0"]);
    assert!(said.contains("buckets: expected a whole number from 1 to 1000, not 0"), "{said}");
    let output = operator.command(&["inspect", CLIENT, "--svg", "x.svg"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("--density"), "{}", errors(&output));
}

#[test]
fn bars_are_drawn_in_a_terminal_and_in_a_picture() {
    let upstream = Upstream::simple();
    let gateway = after_seven_requests(&upstream, "");
    let (operator, directory) = (Operator::of(&gateway), Directory::new());
    let file = directory.file("density.svg");
    let text = operator.run(&["inspect", CLIENT, "--density", "--svg", file.to_str().unwrap()]);
    for expected in [
        "ip:10.0.0.1\n",
        "\napi 20/min: 7 of 20 units spent\nfree again: ",
        "\napi 10000/day: 7 of 10000 units spent\nfree again: ",
        "\nguard 5/h: 0 of 5 units spent\nall units are free\n",
        "█",
        "spent 1min ago",
        "in 1min\n",
    ] {
        assert!(text.contains(expected), "{expected:?}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "no colours where there is no terminal: {text}");

    let svg = fs::read_to_string(&file).unwrap();
    let picture = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let bars = picture.descendants().filter(|node| node.attribute("class") == Some("bar"));
    let units = bars.map(|bar| {
        let title = bar.children().find_map(|child| child.text()).unwrap();
        title.split_once(" spent ").unwrap().0.parse::<u32>().unwrap()
    });
    assert_eq!(units.sum::<u32>(), 7 + 7, "under two quotas: {svg}");
    let text_of = |name| picture.descendants().find(|node| node.has_tag_name(name)).unwrap().text();
    assert_eq!(text_of("title"), Some("Spends of ip:10.0.0.1"));
    assert!(text_of("desc").unwrap().contains("api 20/min: 7 of 20 units spent"), "{svg}");
    assert!(svg.contains("@media (prefers-color-scheme: dark)"));
    assert!(!svg.contains("href") && !svg.contains("url("), "it needs nothing else: {svg}");
}
