//! What becomes of other limiters' configurations.

mod fuzz;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use slidegate::Quota;
use toml::{Table, Value};

use super::envoy_ratelimit::Import;

/// The imported configuration and the report, of a file with this text.
fn import(text: &str) -> (Table, String) {
    let mut import = Import::default();
    import.add("config.yaml", text).unwrap();
    assert_eq!(import.errors, [""; 0]);
    let toml = import.toml();
    let table = toml.parse().unwrap_or_else(|error| panic!("{error}\n{toml}"));
    let (_, notes) =
        import.report().split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    (table, notes)
}

/// The policies as `name: descriptors except [identity] quotas`.
fn policies(table: &Table) -> Vec<String> {
    let Some(policies) = table.get("policy") else { return Vec::new() };
    let policies = policies.as_array().unwrap().iter();
    policies
        .map(|policy| {
            let text = |key: &str| policy[key].as_str().unwrap().to_owned();
            let only = |key: &str| policy[key].as_array().unwrap()[0].as_str().unwrap().to_owned();
            let matched = policy["match"].as_table().unwrap();
            assert_eq!(matched["domain"].as_str(), Some("edge"));
            only("quotas").parse::<Quota>().unwrap();
            text("name").parse::<slidegate::limit::Name>().unwrap();
            let except = matched.get("except").map(|except| format!(" except {}", flat(except)));
            let shadow = policy.get("shadow").map_or("", |_| " shadow");
            let (entries, except) = (flat(&matched["descriptors"]), except.unwrap_or_default());
            let (name, identity, quota) = (text("name"), only("identity"), only("quotas"));
            format!("{name}: {entries}{except} [{identity}] {quota}{shadow}")
        })
        .collect()
}

/// `a=x b=y|z`.
fn flat(table: &Value) -> String {
    let entry = |(key, value): (&String, &Value)| {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        let values: Vec<_> = values.iter().map(|value| value.as_str().unwrap()).collect();
        format!("{key}={}", values.join("|"))
    };
    table.as_table().unwrap().iter().map(entry).collect::<Vec<_>>().join(" ")
}

/// Checks the policies and the report that come of some descriptors.
fn check(descriptors: &str, expected: &[&str], report: &str) {
    let (table, notes) = import(&format!("domain: edge\ndescriptors:\n{descriptors}"));
    assert!(table.contains_key("rls"));
    assert_eq!(policies(&table), expected, "{descriptors}");
    assert_eq!(notes, report, "{descriptors}");
}

#[test]
fn an_example_is_imported_as_its_toml_says() {
    let mut import = Import::default();
    import
        .add("config.yaml", include_str!("../../../../examples/envoy-ratelimit/config.yaml"))
        .unwrap();
    assert_eq!(import.errors, [""; 0]);
    let expected = include_str!("../../../../examples/envoy-ratelimit/slidegate.toml");
    assert_eq!(import.toml(), expected, "{}", import.toml());
    assert_eq!(
        import.report(),
        "policies: 6. Their windows were fixed and are exact now: never more than the limit in any \
         window.\n\
         config.yaml:17: remote_address=* path=/api/*: detailed_metric has no equal: metrics are by \
         policy, and `slidegate accounts` shows single values\n\
         config.yaml:29: remote_address=10.*: unlimited: no policy\n\
         config.yaml:41: plan=gold: replaces \"login\" has no equal: if both match, both count\n"
    );
}

#[test]
fn every_unit_has_its_window() {
    for (unit, quota) in [
        ("second", "7/s"),
        ("minute", "7/min"),
        ("HOUR", "7/h"),
        ("Day", "7/day"),
        ("week", "7/7d"),
        ("month", "7/30d"),
        ("year", "7/365d"),
    ] {
        let rule =
            format!("  - key: a\n    rate_limit: {{ unit: {unit}, requests_per_unit: 7 }}\n");
        check(&rule, &[&format!("edge.a: a=* [descriptor:a] {quota}")], "");
    }
}

#[test]
fn only_the_most_specific_rule_applies() {
    const LIMIT: &str = "rate_limit: { unit: second, requests_per_unit: 1 }";
    // Values before patterns before none, and patterns in their order.
    check(
        &format!(
            "  - {{ key: a, {LIMIT} }}\n  - {{ key: a, value: x*, {LIMIT} }}\n  - {{ key: a, value: '*y', \
             {LIMIT} }}\n  - {{ key: a, value: xy, {LIMIT} }}\n  - {{ key: a, value: 404 }}\n  \
             - {{ key: b, value: x, {LIMIT} }}\n"
        ),
        &[
            "edge.a: a=* except a=x*|*y|xy|404 [descriptor:a] 1/s",
            "edge.a-x: a=x* except a=xy [descriptor:a] 1/s",
            "edge.a-y: a=*y except a=x*|xy [descriptor:a] 1/s",
            "edge.a-xy: a=xy [everyone] 1/s",
            "edge.b-x: b=x [everyone] 1/s",
        ],
        "config.yaml:7: a=404: no rate_limit: not limited, there as here\n",
    );
    // A descriptor that has gone down one way does not come back.
    check(
        &format!(
            "  - key: a\n    descriptors:\n      - {{ key: b, {LIMIT} }}\n  - key: a\n    value: x\n    \
             descriptors:\n      - {{ key: c, {LIMIT} }}\n"
        ),
        &[
            "edge.a.b: a=* b=* except a=x [descriptor:a+b] 1/s",
            "edge.a-x.c: a=x c=* [descriptor:c] 1/s",
        ],
        "",
    );
}

#[test]
fn shared_values_have_one_account() {
    check(
        "  - key: a\n    value: x*\n    share_threshold: true\n    descriptors:\n      - key: b\n        \
         rate_limit: { unit: day, requests_per_unit: 2 }\n      - key: c\n        value: d\n        \
         shadow_mode: true\n        rate_limit: { unit: day, requests_per_unit: 3 }\n",
        &[
            "edge.a-x.b: a=x* b=* [descriptor:b] 2/day",
            "edge.a-x.c-d: a=x* c=d [everyone] 3/day shadow",
        ],
        "",
    );
}

#[test]
fn what_has_no_equal_is_in_the_report() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 2";
    for (rule, policy, note) in [
        (
            "quota_mode: true",
            true,
            "quota_mode has no equal: the policy refuses without regard to others",
        ),
        ("metadata: { x: [1, { y: z }] }", true, "metadata has no equal: responses have none"),
        (
            "value_to_metric: true",
            true,
            "value_to_metric has no equal: metrics are by policy, and `slidegate accounts` shows single \
             values",
        ),
    ] {
        let expected = ["edge.a: a=* [descriptor:a] 2/day"];
        let rule = format!("  - {{ key: a, {limit} }}, {rule} }}\n");
        check(&rule, &expected[..usize::from(policy)], &format!("config.yaml:3: a=*: {note}\n"));
    }
    let block = "requests_per_unit 0 has no equal: left out; refuse in Envoy, or ban the identity";
    check(
        &format!(
            "  - {{ key: a, {limit} }} }}\n  - {{ key: a, value: x, rate_limit: {{ unit: day }} }}\n"
        ),
        // It stays under the broader one.
        &["edge.a: a=* [descriptor:a] 2/day"],
        &format!("config.yaml:4: a=x: {block}\n"),
    );
    check(
        "  - { key: a, shadow_mode: true }\n",
        &[],
        "config.yaml:3: a=*: shadow_mode without a rate_limit: left out\n",
    );
    check(
        &format!(
            "  - {{ key: a, descriptors: [{{ key: a, {limit} }} }}] }}\n  - {{ key: b*, {limit} }} }}\n"
        ),
        &[],
        "config.yaml:3: a=* a=*: a key that comes twice has no equal: left out, with all below it\n\
         config.yaml:4: b*=*: such a key has no equal: left out, with all below it\n",
    );
    check(
        &format!(
            "  - {{ key: a, descriptors: [{{ key: b, {limit} }} }}] }}\n  - {{ key: b, descriptors: \
             [{{ key: a, {limit} }} }}] }}\n"
        ),
        &["edge.a.b: a=* b=* [descriptor:a+b] 2/day", "edge.b.a: a=* b=* [descriptor:b+a] 2/day"],
        "config.yaml:4: b=* a=*: the same keys as a, b in another order: entries have no order here, so \
         the policies of both count\n",
    );
}

#[test]
fn names_of_imported_policies_are_valid_and_unique() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 2";
    let long = "x".repeat(100);
    check(
        &format!(
            "  - {{ key: k, value: /a, {limit} }} }}\n  - {{ key: k, value: /a./, {limit} }} }}\n  \
             - {{ key: 'é k', {limit}, name: own }} }}\n  - {{ key: l, {limit}, name: own }} }}\n  \
             - {{ key: \"q\\\"\", value: '{long}', {limit} }} }}\n"
        ),
        &[
            "edge.k-a: k=/a [everyone] 2/day",
            "edge.k-a-2: k=/a./ [everyone] 2/day",
            "own: é k=* [descriptor:é k] 2/day",
            "edge.l: l=* [descriptor:l] 2/day",
            &format!("edge.q-{}: q\"={long} [everyone] 2/day", &long[..53]),
        ],
        "config.yaml:6: l=*: name \"own\" cannot be a policy's: it is \"edge.l\"\n",
    );
}

#[test]
fn mistakes_are_named_by_line_and_key() {
    for (text, problem) in [
        ("descriptors: []\n", "missing field `domain`"),
        ("domain: ''\n", "config.yaml:1: domain: expected a name"),
        ("domain: d\nlimits: []\n", "line 2 column 1: unknown field `limits`"),
        ("domain: d\ndescriptors:\n  - value: x\n", "line 3 column 5: missing field `key`"),
        (
            "domain: d\ndescriptors:\n  - key: a\n    shadow: true\n",
            "line 4 column 5: unknown field `shadow`",
        ),
        ("domain: d\ndescriptors:\n  - key: a\n   value: x\n", "line 4"),
        ("domain: d\ndescriptors:\n  - key: ''\n", "config.yaml:3: =*: key: expected a name"),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n      requests_per_unit: many\n",
            "      requests_per_unit: many\n",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n      unit: fortnight\n",
            "config.yaml:3: a=*: unit \"fortnight\": expected one of second, minute, hour, day, week, month, \
             year",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unlimited: true, unit: day }\n",
            "config.yaml:3: a=*: unit: expected none beside unlimited",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n  - { key: a, value: '' }\n",
            "config.yaml:4: a=*: there is one already: expected each key and value once",
        ),
        (
            "domain: d\ndescriptors:\n  - { key: a, value: x, share_threshold: true }\n",
            "config.yaml:3: a=x: share_threshold: expected a value with a *",
        ),
        (
            "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, name: x, replaces: [{ name: x }] } }\n",
            "config.yaml:3: a=*: replaces: expected the name of another rate_limit",
        ),
    ] {
        let mut import = Import::default();
        let read = import.add("config.yaml", text);
        let said = read.err().map(|error| format!("{error:#}"));
        let said = said.unwrap_or_else(|| import.errors.join("\n"));
        assert!(said.starts_with("config.yaml:") && said.contains(problem), "{problem}\n{said}");
    }
    let mut import = Import::default();
    import.add("one.yaml", "domain: d\n").unwrap();
    import.add("two.yaml", "domain: d\n").unwrap();
    let said = "two.yaml:1: domain \"d\" is in one.yaml already: expected one file for each";
    assert_eq!(import.errors, [said]);
}

/// A rule, of which no two at one place have the same key and value.
#[derive(Debug, Clone)]
struct Node {
    key: &'static str,
    value: &'static str,
    is_limited: bool,
    below: Vec<Node>,
}

fn nodes(
    keys: &'static [&'static str],
    below: BoxedStrategy<Vec<Node>>,
) -> BoxedStrategy<Vec<Node>> {
    let value = select(&["", "x", "xy", "y", "x*", "*y", "*", "x*y"][..]);
    let node = (select(keys), value, any::<bool>(), below);
    let node =
        node.prop_map(|(key, value, is_limited, below)| Node { key, value, is_limited, below });
    let unique = |mut nodes: Vec<Node>| {
        let mut seen = std::collections::HashSet::new();
        nodes.retain(|node| seen.insert((node.key, node.value)));
        nodes
    };
    vec(node, 0..6).prop_map(unique).boxed()
}

/// The rules as YAML, which JSON is. Each limit is another number.
fn yaml(nodes: &[Node], next: &mut u32) -> String {
    let rule = |node: &Node| {
        *next += 1;
        let (key, value, units) = (node.key, node.value, *next);
        let limit =
            format!("\"rate_limit\": {{\"unit\": \"day\", \"requests_per_unit\": {units}}}, ");
        let limit = if node.is_limited { limit } else { String::new() };
        let below = yaml(&node.below, next);
        format!("{{{limit}\"key\": \"{key}\", \"value\": \"{value}\", \"descriptors\": {below}}}")
    };
    format!("[{}]", nodes.iter().map(rule).collect::<Vec<_>>().join(", "))
}

/// The limit that envoyproxy/ratelimit takes for a descriptor, numbered as in the YAML.
fn limit_of(nodes: &[Node], entries: &[(&str, &str)], next: &mut u32) -> Option<u32> {
    let [(key, value), rest @ ..] = entries else { return None };
    let numbers = nodes.iter().map(|node| {
        let number = *next + 1;
        *next += count(std::slice::from_ref(node));
        (number, node)
    });
    let same: Vec<_> = numbers.filter(|(_, node)| node.key == *key).collect();
    let exact = |(_, node): &&(u32, &Node)| !node.value.is_empty() && node.value == *value;
    let pattern = |(_, node): &&(u32, &Node)| node.value.contains('*') && fits(node.value, value);
    let found = same.iter().find(exact).or_else(|| same.iter().find(pattern));
    let found = found.or_else(|| same.iter().find(|(_, node)| node.value.is_empty()));
    let (number, node) = found?;
    match rest {
        [] => node.is_limited.then_some(*number),
        rest => limit_of(&node.below, rest, &mut { *number }),
    }
}

fn count(nodes: &[Node]) -> u32 {
    nodes.iter().map(|node| 1 + count(&node.below)).sum()
}

/// By trying every length for every `*`.
fn fits(pattern: &str, value: &str) -> bool {
    match pattern.chars().next() {
        None => value.is_empty(),
        Some('*') => (0..=value.len()).any(|length| fits(&pattern[1..], &value[length..])),
        Some(first) => value.starts_with(first) && fits(&pattern[1..], &value[1..]),
    }
}

/// The units of the policies that are for a descriptor.
fn matching(table: &Table, entries: &[(&str, &str)]) -> Vec<String> {
    let policies = table.get("policy").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_for = |policy: &&Value| {
        let descriptors = policy["match"]["descriptors"].as_table().unwrap();
        let except = policy["match"].get("except").and_then(Value::as_table);
        descriptors.len() == entries.len()
            && entries.iter().all(|(key, value)| {
                let pattern = descriptors.get(*key).and_then(Value::as_str);
                let others = except.and_then(|except| except.get(*key)?.as_array());
                pattern.is_some_and(|pattern| fits(pattern, value))
                    && !others
                        .into_iter()
                        .flatten()
                        .any(|other| fits(other.as_str().unwrap(), value))
            })
    };
    let units = |policy: &Value| policy["quotas"][0].as_str().unwrap().replace("/day", "");
    policies.iter().filter(is_for).map(units).collect()
}

proptest! {
    #[test]
    fn a_descriptor_has_the_limit_that_it_had(
        tree in nodes(&["a", "b"], nodes(&["c", "d"], Just(Vec::new()).boxed()))
    ) {
        let (table, _) = import(&format!("{{domain: edge, descriptors: {}}}", yaml(&tree, &mut 0)));
        let values = ["", "x", "y", "xy", "xzy", "zy", "q"];
        for (key, value) in ["a", "b"].into_iter().flat_map(|key| values.map(|value| (key, value))) {
            let below = ["c", "d"].into_iter().flat_map(|key| values.map(|value| Some((key, value))));
            for second in below.chain([None]) {
                let entries: Vec<_> = [(key, value)].into_iter().chain(second).collect();
                let expected = limit_of(&tree, &entries, &mut 0).map(|units| units.to_string());
                prop_assert_eq!(matching(&table, &entries), Vec::from_iter(expected), "{:?}", entries);
            }
        }
    }
}
