//! Which accounts keep what they have spent when other policies are put in force.

use std::time::Duration;

use slidegate::Policies;
use slidegate::limit::Quotas;
use slidegate::policy::CheckedPolicy;

use crate::config::{Period, StoreConfig};

/// What becomes of the history of accounts whose quotas, identities or places change, a line each.
pub(crate) fn history(old: &Policies, new: &Policies, store: &StoreConfig) -> Vec<String> {
    let mut lines = Vec::new();
    for policy in new.iter().filter(|policy| !policy.has_given_quotas()) {
        let Some(before) = old.iter().find(|before| before.name == policy.name) else { continue };
        let name = &policy.name;
        if before.scope != policy.scope || before.lease != policy.lease {
            lines.push(format!("policy {name}: all accounts start anew, in other ledgers"));
            continue;
        }
        if before.identity != policy.identity {
            lines.push(format!("policy {name}: identities that it did not count start anew"));
        }
        let go_by_plans = before.default_plan().is_some() && policy.default_plan().is_some();
        if before.quotas() != policy.quotas() && !go_by_plans {
            let new_window = NewWindow::of([policy], store);
            let [old, new] = [before, policy].map(|policy| {
                // The ledgers of leased units have longer windows than the quotas.
                windows(&policy.windows, policy.lease.unwrap_or_default())
            });
            compare(("policy", name), &old, &new, new_window, &mut lines);
        }
    }
    for plan in new.plans() {
        let before = old.plans().into_iter().find(|before| before.name == plan.name);
        if let Some(before) = before.filter(|before| before.quotas != plan.quotas) {
            let by_plan = new.iter().filter(|policy| policy.default_plan().is_some());
            let new_window = NewWindow::of(by_plan, store);
            let [old, new] = [before, plan].map(|plan| windows(&plan.quotas, Duration::ZERO));
            compare(("plan", &plan.name), &old, &new, new_window, &mut lines);
        }
    }
    lines
}

fn windows(quotas: &Quotas, longer_by: Duration) -> Vec<Duration> {
    quotas.as_slice().iter().map(|quota| quota.window().saturating_sub(longer_by)).collect()
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
    /// Ledgers of its own.
    StartsAnew,
    /// The keys in Redis that another window had.
    SharesKeys,
}

impl NewWindow {
    fn of<'p>(policies: impl IntoIterator<Item = &'p CheckedPolicy>, store: &StoreConfig) -> Self {
        let StoreConfig::Redis(redis) = store else { return Self::StartsAnew };
        let shares_keys = policies.into_iter().any(|policy| {
            let template = redis.key_templates.get(&*policy.name).or(redis.key_template.as_ref());
            template.is_some_and(|template| !template.to_string().contains("<window>"))
        });
        if shares_keys { Self::SharesKeys } else { Self::StartsAnew }
    }
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
        assert_eq!(history(&old.rules.policies, &new.rules.policies, &old.server.store), expected);
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
