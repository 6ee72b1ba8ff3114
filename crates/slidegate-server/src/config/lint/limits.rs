//! Quotas that do not matter, and costs that leave little.

use slidegate::{Cost, Quota};

use crate::config::location::Sourced;
use crate::config::warning::ConfigWarning;
use crate::config::written::{Written, WrittenPolicy};

pub(super) fn lint(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    let plans = written.plans.iter().map(|plan| &plan.quotas);
    let policies = written.policies.iter().map(|policy| &policy.quotas);
    for quotas in plans.chain(policies) {
        idle(&quotas.quotas, warnings);
    }
    written.policies.iter().for_each(|policy| cost(policy, warnings));
}

/// Quotas that another one of the same account keeps from ever being reached.
fn idle(quotas: &[Sourced<Quota>], warnings: &mut Vec<ConfigWarning>) {
    for short in quotas {
        for long in quotas.iter().filter(|long| long.window() > short.window()) {
            if long.units() <= short.units() {
                let text = format!("{} never matters: {} is tighter", **short, **long);
                warnings.push(ConfigWarning::new(&short.location, text));
            } else if u128::from(long.units().get()) >= most_within(**short, **long) {
                let most = most_within(**short, **long);
                let text = format!(
                    "{} is never reached: {} allows at most {most} in that time",
                    **long, **short
                );
                warnings.push(ConfigWarning::new(&long.location, text));
            }
        }
    }
}

/// The most that a short quota allows in the window of a long one.
fn most_within(short: Quota, long: Quota) -> u128 {
    let windows = long.window().as_millis().div_ceil(short.window().as_millis());
    windows * u128::from(short.units().get())
}

/// A cost that only one request of a whole window can pay.
fn cost(policy: &WrittenPolicy, warnings: &mut Vec<ConfigWarning>) {
    let Some(cost) = &policy.cost else { return };
    let Cost::Units(per_request) = cost.value else { return };
    let fewest = policy.quotas.quotas.iter().min_by_key(|quota| quota.units());
    let Some(fewest) = fewest else { return };
    let (units, per_request) = (fewest.units().get(), per_request.get());
    if per_request > 1 && per_request > units / 2 && per_request < units {
        let text = format!(
            "one request fits {}, and {} units of it can never be spent",
            **fewest,
            units - per_request
        );
        warnings.push(ConfigWarning::new(&cost.location, text));
    }
}
