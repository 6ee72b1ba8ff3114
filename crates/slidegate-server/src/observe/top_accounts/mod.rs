//! Which accounts were denied most, and which are nearest to a quota, of late: in tables of a fixed
//! size.
//!
//! An account that has spent less than half of every quota, and is not denied, is not looked up.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use slidegate::limit::Quotas;
use slidegate::{Account, Decision, Identity, Name, PolicyStanding, Standing, Timestamp, Verdict};

/// Accounts fall into shards by their hash, so that threads seldom wait for each other.
const SHARDS: usize = 32;
/// Room for accounts in each table of a shard.
const MAX_ACCOUNTS: usize = 32;
/// Old denials count less and less: all counts are halved when so much time has passed.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// An account seen less than this ago is considered active.
const ACTIVE: Duration = Duration::from_secs(1);

/// The accounts that an operator wants to see first.
#[derive(Debug, Default)]
pub(crate) struct TopAccounts {
    shards: [Mutex<AccountShard>; SHARDS],
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct AccountShard {
    denied: DenialSketch,
    /// Those that a policy's candidate would have denied.
    denied_by_candidate: DenialSketch,
    /// Those nearest to a quota, as they were last seen.
    near: Vec<NearAccount>,
}

/// A Space-Saving sketch: a newcomer to a full table takes the place of the account that was denied
/// least, with its count, and remembers that it may be too high by that much. So every account with
/// more than one in [`MAX_ACCOUNTS`] of the denials is in it, and no count is too low.
#[derive(Debug, Default)]
struct DenialSketch {
    accounts: Vec<DeniedAccount>,
    /// When the counts were last halved.
    halved: Timestamp,
}

/// An account, and what it was last seen with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenAccount {
    pub(crate) account: Account,
    pub(crate) plan: Option<Name>,
    /// If they came with its charges.
    pub(crate) quotas: Option<Quotas>,
}

/// An account that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeniedAccount {
    pub(crate) seen: SeenAccount,
    /// How often, recently: the count is halved every ten minutes.
    pub(crate) denials: u64,
    /// By how much that may be too many, because others were counted in its place before.
    pub(crate) overcount: u64,
}

impl TopAccounts {
    pub(super) fn record(&self, decision: &Decision, now: Timestamp) {
        let is_denial = matches!(decision.verdict(), Verdict::Deny { .. });
        for policy in decision.policies() {
            let is_denied = is_denial && policy.is_violated() && !policy.shadow && !policy.recorded;
            let usage = policy.standings.iter().filter_map(Usage::of).max();
            let by_candidate = policy.is_denied_by_candidate();
            if !is_denied && !by_candidate && usage.is_none() {
                continue;
            }
            let mut shard = self.shard(&policy.policy, &policy.identity);
            if let Some(usage) = usage {
                shard.record_usage(policy, usage, now);
            }
            if is_denied {
                shard.denied.record(policy, now);
            }
            if by_candidate {
                shard.denied_by_candidate.record(policy, now);
            }
        }
    }

    /// Those denied most often recently, the most often first.
    pub(crate) fn most_denied(&self, limit: usize, now: Timestamp) -> Vec<DeniedAccount> {
        self.most(|shard| &mut shard.denied, limit, now)
    }

    /// Those that candidates would have denied most often recently, the most often first.
    pub(crate) fn most_denied_by_candidates(
        &self,
        limit: usize,
        now: Timestamp,
    ) -> Vec<DeniedAccount> {
        self.most(|shard| &mut shard.denied_by_candidate, limit, now)
    }

    fn most(
        &self,
        sketch: fn(&mut AccountShard) -> &mut DenialSketch,
        limit: usize,
        now: Timestamp,
    ) -> Vec<DeniedAccount> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let sketch = sketch(&mut shard);
            sketch.age(now);
            all.extend_from_slice(&sketch.accounts);
        }
        all.sort_by(|a, b| {
            (Reverse(a.denials), &a.seen.account).cmp(&(Reverse(b.denials), &b.seen.account))
        });
        all.truncate(limit);
        all
    }

    /// Those that were last seen nearest to a quota, the nearest first.
    pub(crate) fn nearest(&self, limit: usize, now: Timestamp) -> Vec<SeenAccount> {
        let mut all: Vec<NearAccount> = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().near.iter().filter(|near| !near.is_over(now)).cloned());
        }
        all.sort_by(|a, b| {
            (Reverse(a.usage), &a.seen.account).cmp(&(Reverse(b.usage), &b.seen.account))
        });
        all.into_iter().take(limit).map(|near| near.seen).collect()
    }

    /// An account as it was last seen near a quota.
    pub(crate) fn find(&self, account: &Account, now: Timestamp) -> Option<SeenAccount> {
        let shard = self.shard(&account.policy, &account.identity);
        let near = shard.near.iter().find(|near| near.seen.account == *account)?;
        (!near.is_over(now)).then(|| near.seen.clone())
    }

    fn shard(&self, policy: &Name, identity: &Identity) -> MutexGuard<'_, AccountShard> {
        let hash = self.hasher.hash_one((policy, identity));
        self.shards[hash as usize % SHARDS].lock()
    }
}

/// How much of a quota is spent, half of it or more: less is not worth a place.
///
/// More is the larger share, and of equal ones the longer window: an hour's quota is spent for
/// longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Usage {
    /// In parts of 2^32.
    share: u64,
    window: Duration,
}

impl Usage {
    fn of(standing: &Standing) -> Option<Self> {
        let (quota, units) = (standing.quota(), u64::from(standing.quota().units().get()));
        let spent = units.saturating_sub(standing.remaining().into());
        (spent * 2 >= units).then(|| Self { share: (spent << 32) / units, window: quota.window() })
    }
}

/// An account as it was last seen near a quota.
#[derive(Debug, Clone)]
struct NearAccount {
    seen: SeenAccount,
    usage: Usage,
    at: Timestamp,
}

impl NearAccount {
    /// Once a whole window has passed, all that was spent then has left it.
    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.at + self.usage.window
    }

    /// The lowest makes way for another: one that is over, else one with less usage, else one that
    /// is not active. Active accounts with the same usage stay, so that two do not keep replacing
    /// each other.
    fn rank(&self, now: Timestamp) -> (bool, Usage, bool) {
        (!self.is_over(now), self.usage, now < self.at + ACTIVE)
    }
}

impl AccountShard {
    fn record_usage(&mut self, policy: &PolicyStanding, usage: Usage, now: Timestamp) {
        if let Some(own) = self.near.iter_mut().find(|near| near.seen.is(policy)) {
            (own.usage, own.at) = (usage, now);
            own.seen.follow(policy);
            return;
        }
        let new = || NearAccount { seen: SeenAccount::of(policy), usage, at: now };
        if self.near.len() < MAX_ACCOUNTS {
            self.near.push(new());
            return;
        }
        let lowest = self.near.iter_mut().min_by_key(|near| (near.rank(now), near.at));
        if let Some(lowest) = lowest.filter(|lowest| lowest.rank(now) < (true, usage, true)) {
            *lowest = new();
        }
    }
}

impl DenialSketch {
    fn record(&mut self, policy: &PolicyStanding, now: Timestamp) {
        self.age(now);
        if let Some(own) = self.accounts.iter_mut().find(|denied| denied.seen.is(policy)) {
            own.denials += 1;
            own.seen.follow(policy);
            return;
        }
        let seen = SeenAccount::of(policy);
        if self.accounts.len() < MAX_ACCOUNTS {
            self.accounts.push(DeniedAccount { seen, denials: 1, overcount: 0 });
        } else if let Some(least) = self.accounts.iter_mut().min_by_key(|denied| denied.denials) {
            let overcount = least.denials;
            *least = DeniedAccount { seen, denials: overcount + 1, overcount };
        }
    }

    fn age(&mut self, now: Timestamp) {
        let halvings = now.saturating_since(self.halved).as_secs() / HALF_LIFE.as_secs();
        if halvings == 0 {
            return;
        }
        // To the instant when it was due, so that frequent reads do not defer it.
        self.halved = match self.accounts.is_empty() {
            true => now,
            false => self.halved + HALF_LIFE * u32::try_from(halvings).unwrap_or(u32::MAX),
        };
        let halve = |count: u64| count.checked_shr(halvings.min(64) as u32).unwrap_or(0);
        for denied in &mut self.accounts {
            denied.denials = halve(denied.denials);
            denied.overcount = halve(denied.overcount);
        }
        self.accounts.retain(|denied| denied.denials > 0);
    }
}

impl SeenAccount {
    fn of(policy: &PolicyStanding) -> Self {
        let account = Account { policy: policy.policy.clone(), identity: policy.identity };
        let mut seen = Self::new(account);
        seen.follow(policy);
        seen
    }

    pub(crate) fn new(account: Account) -> Self {
        Self { account, plan: None, quotas: None }
    }

    fn is(&self, policy: &PolicyStanding) -> bool {
        self.account.identity == policy.identity && self.account.policy == policy.policy
    }

    /// Takes the plan and the quotas that the account has now.
    fn follow(&mut self, policy: &PolicyStanding) {
        let plan = policy.plan.as_ref().map(|plan| &plan.name);
        if self.plan.as_ref() != plan {
            self.plan = plan.cloned();
        }
        let given = policy.standings.iter().filter(|_| policy.caller_quotas).map(Standing::quota);
        let own = self.quotas.as_ref().map_or(&[][..], Quotas::as_slice);
        if !own.iter().copied().eq(given.clone()) {
            self.quotas = Quotas::new(given).ok();
        }
    }
}
