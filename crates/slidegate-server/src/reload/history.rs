//! Which accounts keep what they have spent when other policies are put in force.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use slidegate::limit::Quotas;
use slidegate::policy::CheckedPolicy;
use slidegate::{Identity, Policies, Quota, Scope};

use crate::config::StoreConfig;
use slidegate::limit::Period;

/// The most API keys that a line names.
const MAX_NAMES: usize = 10;

/// What becomes of the history of accounts whose quotas, identities or places change, a line each.
pub(crate) fn history(old: &Policies, new: &Policies, store: &StoreConfig) -> Vec<String> {
    let mut lines = Vec::new();
    for policy in new.iter().filter(|policy| !policy.has_caller_quotas()) {
        let Some(before) = old.iter().find(|before| before.name == policy.name) else {
            lines.extend(of_new_policy(policy, old, new, store));
            continue;
        };
        let name = &policy.name;
        let has_moved = |quota: &Quota| {
            let [old, new] =
                [before, policy].map(|policy| policy.consistency.ledgers(&(*quota).into()));
            old != new
        };
        if before.scope != policy.scope || policy.windows.as_slice().iter().any(has_moved) {
            lines.push(format!("policy {name}: all accounts start anew, in other ledgers"));
            continue;
        }
        if before.identity != policy.identity {
            lines.push(format!("policy {name}: identities that it did not count start anew"));
        }
        let go_by_plans = before.default_plan().is_some() && policy.default_plan().is_some();
        if before.quotas() != policy.quotas() && !go_by_plans {
            let new_window = NewWindow::of([policy], store);
            let [old, new] = [before, policy].map(|policy| windows(&policy.windows));
            compare(("policy", name), &old, &new, new_window, &mut lines);
        }
    }
    for plan in new.plans() {
        let before = old.plans().into_iter().find(|before| before.name == plan.name);
        if let Some(before) = before.filter(|before| before.quotas != plan.quotas) {
            let by_plan = new.iter().filter(|policy| policy.default_plan().is_some());
            let new_window = NewWindow::of(by_plan, store);
            let [old, new] = [before, plan].map(|plan| windows(&plan.quotas));
            compare(("plan", &plan.name), &old, &new, new_window, &mut lines);
        }
    }
    lines.extend(of_replaced_keys(old, new));
    lines
}

/// A policy that was not there before. One that is gone and counted the same may be the same by
/// another name.
fn of_new_policy(
    policy: &CheckedPolicy,
    old: &Policies,
    new: &Policies,
    store: &StoreConfig,
) -> Option<String> {
    let template = template(policy, store).filter(|_| policy.scope == Scope::Shared);
    if template.is_some_and(|template| !template.contains("<policy>")) {
        // Its keys may be those of another policy.
        return None;
    }
    let name = &policy.name;
    let empty = format!("policy {name}: new, so its accounts start empty");
    let is_gone = |before: &&CheckedPolicy| new.iter().all(|policy| policy.name != before.name);
    let counted_the_same = |before: &&CheckedPolicy| {
        before.identity == policy.identity
            && before.quotas() == policy.quotas()
            && before.descriptors == policy.descriptors
    };
    Some(match old.iter().filter(is_gone).find(counted_the_same) {
        Some(before) => format!(
            "{empty}; if it was renamed from {}, what was spent under that name is forgotten",
            before.name
        ),
        None => empty,
    })
}

/// API keys that keep their name and are another key now: accounts, bans and grants belong to the
/// digest.
fn of_replaced_keys(old: &Policies, new: &Policies) -> Option<String> {
    let identities: [HashSet<&Identity>; 2] =
        [old, new].map(|policies| policies.plan_keys().map(|(identity, _)| identity).collect());
    let names = |policies: &Policies, identities: &HashSet<&Identity>| -> BTreeSet<String> {
        let others = policies.plan_keys().filter(|(identity, _)| !identities.contains(identity));
        let shown = others.map(|(identity, _)| (identity, policies.shown(identity)));
        // Keys without a name are shown as they are.
        let named = shown.filter(|(identity, shown)| *shown != identity.as_str());
        named.map(|(_, shown)| shown.trim_start_matches("api-key:").to_owned()).collect()
    };
    let [removed, added] = [names(old, &identities[1]), names(new, &identities[0])];
    let replaced: Vec<&str> = removed.intersection(&added).map(String::as_str).collect();
    let (listed, rest) = replaced.split_at(replaced.len().min(MAX_NAMES));
    let more = match rest.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!replaced.is_empty()).then(|| {
        format!(
            "API keys with their old name and a new digest: {}{more}: their accounts, bans and \
             grants start anew",
            listed.join(", ")
        )
    })
}

fn windows(quotas: &Quotas) -> Vec<Duration> {
    quotas.as_slice().iter().map(|quota| quota.window()).collect()
}

/// Compares windows: ledgers are found by them, whatever the units are.
fn compare(
    (kind, name): (&str, &str),
    before: &[Duration],
    after: &[Duration],
    new_window: NewWindow,
    lines: &mut Vec<String>,
) {
    for window in after {
        let shown = Period(*window);
        lines.push(match new_window {
            _ if before.contains(window) => {
                format!("{kind} {name}: what was spent in {shown} is kept")
            }
            NewWindow::SharesKeys => format!(
                "{kind} {name}: {shown} goes on in the same keys, whose template has no <window>"
            ),
            NewWindow::StartsAnew => {
                format!("{kind} {name}: {shown} is a new window and starts anew")
            }
        });
    }
}

/// What a window finds that was not counted before.
#[derive(Clone, Copy)]
enum NewWindow {
    /// Empty ledgers.
    StartsAnew,
    /// The keys in Redis that another window had.
    SharesKeys,
}

impl NewWindow {
    fn of<'p>(policies: impl IntoIterator<Item = &'p CheckedPolicy>, store: &StoreConfig) -> Self {
        let shares_keys = policies.into_iter().any(|policy| {
            template(policy, store).is_some_and(|template| !template.contains("<window>"))
        });
        if shares_keys { Self::SharesKeys } else { Self::StartsAnew }
    }
}

/// The template of a policy's keys in Redis, unless it is the usual one.
fn template(policy: &CheckedPolicy, store: &StoreConfig) -> Option<String> {
    let StoreConfig::Redis(redis) = store else { return None };
    let template = redis.key_templates.get(&*policy.name).or(redis.key_template.as_ref());
    template.map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Config, File, Sources};

    fn config(store: &str, policy: &str) -> Config {
        let text = format!("{store}\n[[policy]]\nname = 'api'\n{policy}");
        let file = File::Text { name: "test.toml".to_owned(), text };
        let sources = Sources { file: Some(file), ..Sources::default() };
        config::load(&sources).unwrap().config
    }

    #[track_caller]
    fn check(store: &str, [old, new]: [&str; 2], expected: &[&str]) {
        let (old, new) = (config(store, old), config(store, new));
        assert_eq!(
            history(&old.limiter.policies, &new.limiter.policies, &old.server.store),
            expected
        );
    }

    #[test]
    fn history_is_kept_by_window_and_goes_with_the_place_of_the_ledgers() {
        let memory = "store.kind = 'memory'";
        check(memory, ["quotas = '5/min'", "quotas = '5/min'"], &[]);
        check(
            memory,
            ["quotas = '5/min'", "quotas = ['6/min', '9/h']"],
            &[
                "policy api: what was spent in 1min is kept",
                "policy api: 1h is a new window and starts anew",
            ],
        );
        let anew = ["policy api: all accounts start anew, in other ledgers"];
        check(memory, ["quotas = '5/min'", "quotas = '5/min'\nscope = 'local'"], &anew);
        let leased = "quotas = '5/min'\nconsistency = 'async'";
        check(memory, ["quotas = '5/min'", leased], &anew);
        let kept = ["policy api: what was spent in 1min is kept"];
        check(memory, [leased, &leased.replace('5', "6")], &kept);
        let candidate = format!("{leased}\ncandidate = {{ quotas = '9/30s' }}");
        check(memory, [leased, &candidate], &[]);
        check(memory, [leased, &format!("{leased}\nlease = '1s'")], &anew);
        check(
            memory,
            [leased, &leased.replace("'5/min'", "['5/min', '9/s']")],
            &["policy api: 1s is a new window and starts anew", kept[0]],
        );
    }

    #[test]
    fn a_new_policy_starts_empty_also_if_it_is_an_old_one_renamed() {
        let renamed = |store: &str, quotas: &str| {
            let old = config(store, "quotas = '5/min'");
            let text = format!("{store}\n[[policy]]\nname = 'b'\nquotas = '{quotas}'");
            let file = File::Text { name: "test.toml".to_owned(), text };
            let sources = Sources { file: Some(file), ..Sources::default() };
            let new = config::load(&sources).unwrap().config;
            history(&old.limiter.policies, &new.limiter.policies, &old.server.store)
        };
        let memory = "store.kind = 'memory'";
        let empty = "policy b: new, so its accounts start empty";
        let warned = "; if it was renamed from api, what was spent under that name is forgotten";
        assert_eq!(renamed(memory, "5/min"), [format!("{empty}{warned}")]);
        assert_eq!(renamed(memory, "6/min"), [empty]);
        let redis = |template: &str| {
            format!("store = {{ url = 'redis://127.0.0.1', key_template = '{template}' }}")
        };
        assert_eq!(renamed(&redis("rl:<policy>:<identity>"), "6/min"), [empty]);
        assert_eq!(renamed(&redis("rl:<identity>"), "5/min"), [""; 0], "the keys are the same");
    }

    #[test]
    fn keys_that_are_replaced_under_their_name_are_named() {
        let keys = |secret: &str, count: usize| {
            let keys = (10..10 + count).map(|n| {
                format!("[[api_key]]\nkey = '{secret}{n}'\nname = 'k{n}'\nplan = 'free'\n")
            });
            let plan = "plan = 'free'\n[plans.free]\nquotas = '5/min'\n";
            config("", &format!("{plan}{}", keys.collect::<String>())).limiter.policies
        };
        let store = config("", "quotas = '5/min'").server.store;
        let check = |old: &Policies, new: &Policies, expected: &[&str]| {
            assert_eq!(history(old, new, &store), expected);
        };
        check(&keys("a", 2), &keys("a", 3), &[]);
        let two = "API keys with their old name and a new digest: k10, k11: their accounts, bans \
                   and grants start anew";
        check(&keys("a", 2), &keys("b", 3), &[two]);
        let many = "API keys with their old name and a new digest: k10, k11, k12, k13, k14, k15, \
                    k16, k17, k18, k19 and 2 more: their accounts, bans and grants start anew";
        check(&keys("a", 12), &keys("b", 12), &[many]);
    }

    #[test]
    fn a_key_without_the_window_goes_on() {
        let redis = |template: &str| {
            format!("store = {{ url = 'redis://127.0.0.1', key_template = '{template}' }}")
        };
        let quotas = ["quotas = '5/min'", "quotas = '5/h'"];
        check(
            &redis("rl:<identity>"),
            quotas,
            &["policy api: 1h goes on in the same keys, whose template has no <window>"],
        );
        let anew = ["policy api: 1h is a new window and starts anew"];
        check(&redis("rl:<window>:<identity>"), quotas, &anew);
    }
}
