//! Accounts that have spent more than new policies allow.

use std::fmt::{self, Display};

use slidegate::{Gate, Policies};

use crate::api::{AccountOverQuota, AccountsOverQuota};
use crate::observe::{Observer, SeenAccount};
use crate::store::AnyStore;

/// The most accounts that are looked at. Each is a call to the store.
const MAX_SAMPLE: usize = 100;
/// The most accounts in the log of a reload.
const MAX_LOGGED: usize = 20;

impl AccountsOverQuota {
    /// Reads accounts whose quotas differ between the policies, as the new ones would count them.
    pub(crate) async fn find(
        gate: &Gate<AnyStore>,
        observer: &Observer,
        old: &Policies,
        new: &Policies,
    ) -> Self {
        let sample = sample(observer);
        let mut found = Self { sampled: sample.len(), ..Self::default() };
        for seen in sample {
            let account = &seen.account;
            let policy = new.iter().find(|policy| policy.name == account.policy);
            let is_counted = policy.is_some_and(|policy| policy.counts(&account.identity));
            let plan = plan_under_new(&seen, old);
            let (Some((before, _)), Some((after, new_plan))) =
                (old.quotas_of(account, seen.plan.as_deref()), new.quotas_of(account, plan))
            else {
                continue;
            };
            if !is_counted || seen.quotas.is_some() || before == after {
                continue;
            }
            let Ok(reading) = gate.admin().read_under(new, account, plan).await else {
                found.unread += 1;
                continue;
            };
            for (ledger, quota) in reading.ledgers.iter().zip(after.as_slice()) {
                // The ledger's quota has what operators have granted.
                if ledger.spent() <= ledger.quota.units().get() {
                    continue;
                }
                let mut old_quotas = before.as_slice().iter();
                let old_quota = old_quotas.find(|old| old.window() == quota.window());
                found.over.push(AccountOverQuota {
                    identity: new.shown(&account.identity).into_owned(),
                    policy: account.policy.to_string(),
                    plan: new_plan.map(ToString::to_string),
                    spent: ledger.spent(),
                    quota: quota.to_string(),
                    units: quota.units().get(),
                    units_before: old_quota.map(|old| old.units().get()),
                });
            }
        }
        found
    }

    /// How many there are, in a sentence.
    pub(crate) fn summary(&self) -> String {
        let (over, sampled) = (self.over.len(), self.sampled);
        let unread = match self.unread {
            0 => String::new(),
            many => format!("; {many} could not be read"),
        };
        let noun = if sampled == 1 { "account" } else { "accounts" };
        format!(
            "over the new quotas: {over} of {sampled} {noun} lately near a quota or denied{unread}"
        )
    }

    /// Logs the number, and the first of them.
    pub(crate) fn log(&self) {
        tracing::info!("reloaded: {}", self.summary());
        for account in self.over.iter().take(MAX_LOGGED) {
            tracing::info!("reloaded: over the new quota: {account}");
        }
        if self.over.len() > MAX_LOGGED {
            tracing::info!(
                "reloaded: and {} more over the new quotas",
                self.over.len() - MAX_LOGGED
            );
        }
    }
}

impl Display for AccountOverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, policy, spent, quota, .. } = self;
        write!(f, "{identity} under {policy}")?;
        if let Some(plan) = &self.plan {
            write!(f, ", plan {plan}")?;
        }
        write!(f, ": {spent} spent, {quota} allowed")?;
        match self.units_before {
            Some(units) => write!(f, ", {units} before"),
            None => Ok(()),
        }
    }
}

/// The accounts nearest to a quota, then those that were denied most.
fn sample(observer: &Observer) -> Vec<SeenAccount> {
    let (top, now) = observer.accounts();
    let mut sample = top.nearest(MAX_SAMPLE, now);
    for denied in top.most_denied(MAX_SAMPLE, now) {
        if !sample.iter().any(|seen| seen.account == denied.seen.account) {
            sample.push(denied.seen);
        }
    }
    sample.truncate(MAX_SAMPLE);
    sample
}

/// The plan to look for under new policies: the one that the account was last seen with, unless
/// that was its API key's own, which may have another by then.
fn plan_under_new<'s>(seen: &'s SeenAccount, old: &Policies) -> Option<&'s str> {
    let plan = seen.plan.as_deref()?;
    let is_key = seen.account.identity.kind() == "api-key";
    let own = old.quotas_of(&seen.account, None).and_then(|(_, plan)| plan);
    (!is_key || own.is_none_or(|own| &**own != plan)).then_some(plan)
}
