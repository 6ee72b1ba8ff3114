//! Which accounts were denied most, and which are nearest to a quota, of late: so many and no more.
//!
//! Every thread writes down what it sees in tables of its own, and they are put together when
//! somebody asks. An account that has less than half of every quota spent, and is not denied, is
//! not even looked for.

#[cfg(test)]
mod tests;
mod top_denied;
mod top_usage;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use foldhash::fast::RandomState;
use slidegate::{Account, Decision, Name, PolicyStanding, Timestamp, Verdict};

use self::top_denied::TopDenied;
use self::top_usage::{TopUsage, Used};
use super::per_thread::PerThread;

/// Accounts in one thread's tables fall into so many sets by their hash, and each set has room for
/// so many: finding one takes the same few steps however many there are.
const SETS: usize = 64;
const WAYS: usize = 8;

/// The accounts that an operator wants to see first.
#[derive(Default)]
pub(super) struct Accounts {
    tables: PerThread<Mutex<Tables>>,
    hasher: RandomState,
}

/// What one thread has seen.
#[derive(Debug, Default)]
struct Tables {
    denied: TopDenied,
    top_usage: TopUsage,
}

/// An account, and the plan that it was last seen with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenAccount {
    pub(crate) account: Account,
    pub(crate) plan: Option<Name>,
}

/// An account that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeniedAccount {
    pub(crate) seen: SeenAccount,
    /// How often, of late: the count is halved every ten minutes.
    pub(crate) denials: u64,
    /// By how much that may be too many, because others were counted in its place before.
    pub(crate) overcount: u64,
}

impl Accounts {
    #[inline]
    pub(super) fn record(&self, decision: &Decision, now: Timestamp) {
        let is_denial = matches!(decision.verdict(), Verdict::Deny { .. });
        for policy in decision.policies() {
            let is_denied = is_denial && policy.is_violated() && !policy.is_shadow();
            let sample = Sample { policy, used: Used::most(policy.standings()), is_denied };
            if is_denied || sample.used.is_some() {
                self.note(&sample, now);
            }
        }
    }

    /// Never blocks: what a thread sees while its tables are read, or written by another
    /// that shares them, is left out.
    fn note(&self, sample: &Sample<'_>, now: Timestamp) {
        let Sample { policy, used, is_denied } = *sample;
        let hash = self.hasher.hash_one((policy.policy(), policy.identity()));
        let Ok(mut tables) = self.tables.own().try_lock() else { return };
        if let Some(used) = used {
            tables.top_usage.record(hash, policy, used, now);
        }
        if is_denied {
            tables.denied.record(hash, policy, now);
        }
    }

    /// Those denied most often of late, the most often first.
    pub(super) fn most_denied(&self, most: usize, now: Timestamp) -> Vec<DeniedAccount> {
        let mut all: HashMap<Account, DeniedAccount> = HashMap::new();
        self.each(|tables| {
            for denied in tables.denied.all(now) {
                let known = all.entry(denied.seen.account.clone());
                known
                    .and_modify(|known| {
                        known.denials += denied.denials;
                        known.overcount += denied.overcount;
                    })
                    .or_insert(denied);
            }
        });
        let mut all: Vec<DeniedAccount> = all.into_values().collect();
        all.sort_by(|a, b| {
            (Reverse(a.denials), &a.seen.account).cmp(&(Reverse(b.denials), &b.seen.account))
        });
        all.truncate(most);
        all
    }

    /// Those that were last seen nearest to a quota, the nearest first.
    pub(super) fn nearest(&self, most: usize, now: Timestamp) -> Vec<SeenAccount> {
        let mut all: HashMap<Account, (Timestamp, Used, SeenAccount)> = HashMap::new();
        self.each(|tables| {
            for (at, used, seen) in tables.top_usage.all(now) {
                let known =
                    all.entry(seen.account.clone()).or_insert_with(|| (at, used, seen.clone()));
                if at > known.0 {
                    *known = (at, used, seen);
                }
            }
        });
        let mut all: Vec<(Timestamp, Used, SeenAccount)> = all.into_values().collect();
        all.sort_by(|(_, a, one), (_, b, two)| {
            (Reverse(a), &one.account).cmp(&(Reverse(b), &two.account))
        });
        all.into_iter().take(most).map(|(.., seen)| seen).collect()
    }

    /// The plan that an account was last seen with, if it was seen at all.
    pub(super) fn plan_of(&self, account: &Account, now: Timestamp) -> Option<Name> {
        let mut last: Option<(Timestamp, Option<Name>)> = None;
        self.each(|tables| {
            let own = tables.top_usage.all(now).filter(|(.., seen)| seen.account == *account);
            for (at, _, seen) in own {
                if last.as_ref().is_none_or(|(last, _)| at > *last) {
                    last = Some((at, seen.plan));
                }
            }
        });
        last.and_then(|(_, plan)| plan)
    }

    fn each(&self, mut look: impl FnMut(&mut Tables)) {
        for tables in self.tables.iter() {
            look(&mut tables.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// One account's part of a decision.
#[derive(Clone, Copy)]
struct Sample<'a> {
    policy: &'a PolicyStanding,
    used: Option<Used>,
    is_denied: bool,
}

impl SeenAccount {
    fn of(policy: &PolicyStanding) -> Self {
        let account = Account { policy: policy.policy().clone(), identity: *policy.identity() };
        Self { account, plan: policy.plan().map(|plan| plan.name().clone()) }
    }

    /// Puts the account of another in its place. Mostly the policy is the same.
    fn become_of(&mut self, policy: &PolicyStanding) {
        self.account.identity = *policy.identity();
        if self.account.policy != *policy.policy() {
            self.account.policy = policy.policy().clone();
        }
        self.follow_plan(policy);
    }

    /// Takes the plan that the account has now.
    fn follow_plan(&mut self, policy: &PolicyStanding) {
        let plan = policy.plan().map(|plan| plan.name());
        if self.plan.as_ref() != plan {
            self.plan = plan.cloned();
        }
    }

    fn is(&self, policy: &PolicyStanding) -> bool {
        self.account.identity == *policy.identity() && self.account.policy == *policy.policy()
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").finish_non_exhaustive()
    }
}
