//! What a reload changes, and what it leaves as it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;

use slidegate::policy::{CheckedPlan, CheckedPolicy, UnknownKeys};
use slidegate::{Identity, Name, Policies};

use crate::config::ServerConfig;

/// What is different about the new policies, a line each. Empty if nothing that matters is.
pub(crate) fn difference(old: &Policies, new: &Policies) -> Vec<String> {
    let mut changes = Vec::new();
    compare("policy", old.iter().map(policy), new.iter().map(policy), &mut changes);
    for policy in old.iter() {
        let after = new.iter().find(|after| after.name == policy.name);
        if after.is_some_and(|after| after.exempt != policy.exempt) {
            let name = &policy.name;
            changes.push(format!("policy {name}: the exempt list has changed"));
        }
    }
    compare("plan", old.plans().iter().map(plan), new.plans().iter().map(plan), &mut changes);
    compare_keys(old, new, &mut changes);
    if old.unknown_keys() != new.unknown_keys() {
        changes.push(match new.unknown_keys() {
            UnknownKeys::Ignore => "unknown API keys are ignored".to_owned(),
            UnknownKeys::Own => "each unknown API key has its own account".to_owned(),
            UnknownKeys::Refuse => "unknown API keys are refused".to_owned(),
        });
    }
    if old.user_header() != new.user_header() {
        let (before, after) = (option(old.user_header()), option(new.user_header()));
        changes.push(format!("user header {before} -> {after}"));
    }
    for (list, is_same) in
        [("exempt", old.exempt() == new.exempt()), ("blocked", old.blocked() == new.blocked())]
    {
        if !is_same {
            changes.push(format!("the {list} list has changed"));
        }
    }
    changes
}

/// A name, and settings with their labels.
type NamedSettings<'p> = (&'p str, Vec<(&'static str, String)>);

fn policy(policy: &CheckedPolicy) -> NamedSettings<'_> {
    (&policy.name, policy.settings())
}

fn plan<'p>(plan: &&'p CheckedPlan) -> NamedSettings<'p> {
    let settings = vec![
        ("quotas", list(plan.quotas.as_slice())),
        ("upgrade_url", option(plan.upgrade_url.as_deref())),
    ];
    (&plan.name, settings)
}

/// Compares what has the same name, in the order of names.
fn compare<'p>(
    kind: &str,
    old: impl Iterator<Item = NamedSettings<'p>>,
    new: impl Iterator<Item = NamedSettings<'p>>,
    changes: &mut Vec<String>,
) {
    let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) = (old.collect(), new.collect());
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        match (old.get(name), new.get(name)) {
            (Some(before), Some(after)) => {
                for ((what, before), (_, after)) in before.iter().zip(after) {
                    if before != after {
                        changes.push(format!("{kind} {name}: {what} {before} -> {after}"));
                    }
                }
            }
            (None, _) => changes.push(format!("{kind} {name} added")),
            (_, None) => changes.push(format!("{kind} {name} removed")),
        }
    }
}

/// Only the number: even digests of keys are not logged.
fn compare_keys(old: &Policies, new: &Policies, changes: &mut Vec<String>) {
    let old: HashMap<&Identity, &Name> = old.plan_keys().collect();
    let new: HashMap<&Identity, &Name> = new.plan_keys().collect();
    let added = new.keys().filter(|key| !old.contains_key(*key)).count();
    let removed = old.keys().filter(|key| !new.contains_key(*key)).count();
    let moved = new.iter().filter(|(key, plan)| old.get(*key).is_some_and(|old| old != *plan));
    for (count, what) in
        [(added, "added"), (removed, "removed"), (moved.count(), "with another plan")]
    {
        if count > 0 {
            changes.push(format!("API keys {what}: {count}"));
        }
    }
}

fn list<T: Display>(items: &[T]) -> String {
    match items {
        [] => "none".to_owned(),
        _ => items.iter().map(T::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn option<T: Display>(item: Option<T>) -> String {
    item.map_or_else(|| "none".to_owned(), |item| item.to_string())
}

/// The sections that differ and that only a restart changes: endpoints, store, log, audit trail and
/// traces.
pub(crate) fn needs_restart(old: &ServerConfig, new: &ServerConfig) -> Vec<&'static str> {
    // Routes are applied by a reload.
    let gateway = |config: &ServerConfig| {
        config.gateway.clone().map(|mut gateway| {
            gateway.proxy.routes.clear();
            gateway
        })
    };
    let sections = [
        ("gateway", gateway(old) == gateway(new)),
        ("decisions", old.decisions == new.decisions && old.settle_within == new.settle_within),
        ("resp", old.resp == new.resp),
        ("rls", old.rls == new.rls),
        ("admin", old.admin == new.admin),
        ("store", old.store == new.store && old.local_capacity == new.local_capacity),
        ("key_source", old.customers.key_source == new.customers.key_source),
        ("jwt", old.customers.issuers == new.customers.issuers),
        ("drain_delay", old.drain_delay == new.drain_delay),
        ("log", old.log == new.log),
        ("audit", old.audit == new.audit),
        ("trace", old.trace == new.trace),
    ];
    sections.into_iter().filter_map(|(section, is_same)| (!is_same).then_some(section)).collect()
}

#[cfg(test)]
mod tests {
    use slidegate::policy::PoliciesBuilder;
    use slidegate::{AccessList, OnStoreError, Plan, Policy, Quota, Scope};

    use super::*;
    use crate::config::{self, File, Sources};

    #[track_caller]
    fn check(old: PoliciesBuilder, new: PoliciesBuilder, expected: &[&str]) {
        assert_eq!(difference(&old.build().unwrap(), &new.build().unwrap()), expected);
    }

    fn login() -> Policy {
        Policy::new("login").path("/login").quota(Quota::per_minute(5))
    }

    #[test]
    fn equal_configurations_have_no_difference() {
        let some = || {
            Policies::builder()
                .plan(Plan::new("free", [Quota::per_minute(60)]))
                .policy(login())
                .policy(Policy::new("api").plans("free"))
                .api_key("k", "free")
                .exempt(AccessList::new().user("1").user("2").user("3"))
        };
        check(some(), some(), &[]);
    }

    #[test]
    fn added_removed_and_changed_policies_are_listed() {
        let ten = Policy::new("login").path("/login").quota(Quota::per_minute(10));
        check(
            Policies::builder().policy(login()).policy(Policy::new("old").quota(Quota::per_day(1))),
            Policies::builder()
                .policy(Policy::new("search").quota(Quota::per_day(1)))
                .policy(ten.scope(Scope::Local).on_store_error(OnStoreError::Deny)),
            &[
                "policy login: quotas 5/min -> 10/min",
                "policy login: cost request -> 1",
                "policy login: scope shared -> local",
                "policy login: headers true -> false",
                "policy login: on_store_error local -> deny",
                "policy old removed",
                "policy search added",
            ],
        );
    }

    #[test]
    fn what_a_policy_is_for_and_whom_it_spares_is_compared() {
        let other = Policy::new("login").method(http::Method::POST).path("/login").path("/in");
        let other = other.quota(Quota::per_minute(5)).exempt(AccessList::new().user("1"));
        check(
            Policies::builder().policy(login()),
            Policies::builder().policy(other.shadow()),
            &[
                "policy login: method none -> POST",
                "policy login: path /login -> /login, /in",
                "policy login: shadow false -> true",
                "policy login: the exempt list has changed",
            ],
        );
    }

    #[test]
    fn another_user_header_is_reported() {
        let some = || Policies::builder().policy(login());
        let other = || some().user_header(http::HeaderName::from_static("x-user-id"));
        check(some(), other(), &["user header none -> x-user-id"]);
        check(other(), some(), &["user header x-user-id -> none"]);
        check(other(), other(), &[]);
    }

    #[test]
    fn plans_and_keys_change_without_a_secret_in_the_words() {
        let plan = |name: &str, units| Plan::new(name, [Quota::per_minute(units)]);
        let api = || Policy::new("api").plans("free");
        let old = Policies::builder().policy(api()).plan(plan("free", 60)).plan(plan("pro", 600));
        let new = Policies::builder().policy(api()).plan(plan("free", 30)).plan(plan("team", 90));
        check(
            old.api_key("hunter1", "free").api_key("hunter2", "pro").api_key("hunter3", "pro"),
            new.api_key("hunter1", "team")
                .api_key("hunter4", "free")
                .blocked(AccessList::new().user("9")),
            &[
                "plan free: quotas 60/min -> 30/min",
                "plan pro removed",
                "plan team added",
                "API keys added: 1",
                "API keys removed: 2",
                "API keys with another plan: 1",
                "the blocked list has changed",
            ],
        );
    }

    fn config(text: &str) -> ServerConfig {
        let file = File::Text { name: "test.toml".to_owned(), text: text.to_owned() };
        let sources = Sources { file: Some(file), ..Sources::default() };
        config::load(&sources).unwrap().config.server
    }

    #[test]
    fn other_routes_need_no_restart_and_other_addresses_do() {
        let before = config("[gateway]\nupstream = 'http://a'");
        let rerouted = config("[gateway]\nupstream = 'http://b'");
        assert_eq!(needs_restart(&before, &rerouted), [""; 0]);
        let elsewhere = "[gateway]\nupstream = 'http://a'\nlisten = '127.0.0.1:81'\n[admin]\nlisten = '127.0.0.1:82'";
        assert_eq!(needs_restart(&before, &config(elsewhere)), ["gateway", "admin"]);
        let traced = "[gateway]\nupstream = 'http://a'\n[trace]\notlp = 'http://c:4317'";
        assert_eq!(needs_restart(&before, &config(traced)), ["trace"]);
        let fewer = config(&format!("{traced}\nratio = 0.5"));
        assert_eq!(needs_restart(&config(traced), &fewer), ["trace"]);
    }
}
