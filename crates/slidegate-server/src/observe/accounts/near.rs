//! Those nearest to a quota, as they were last seen.

use std::cmp::Ordering;
use std::time::Duration;

use slidegate::{PolicyStanding, Standing, Timestamp};

use super::{SETS, SeenAccount, WAYS};

/// How much of a quota is spent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    spent: u32,
    units: u32,
    window: Duration,
}

impl Used {
    /// Of several quotas, the one that is spent most.
    #[inline]
    pub(super) fn most(standings: &[Standing]) -> Self {
        let nothing = Self { spent: 0, units: 1, window: Duration::ZERO };
        standings.iter().map(Self::of).fold(nothing, |most, next| most.max(next))
    }

    #[inline]
    fn of(standing: &Standing) -> Self {
        let (units, window) = (standing.quota().units().get(), standing.quota().window());
        Self { spent: units.saturating_sub(standing.remaining()), units, window }
    }

    /// Whether it is half of the quota or more, and so worth a place.
    #[inline]
    pub(super) fn is_near(self) -> bool {
        u64::from(self.spent) * 2 >= u64::from(self.units)
    }
}

impl Ord for Used {
    /// By the share, and of equal ones by the window: an hour's quota is spent for longer.
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, others) = (
            u64::from(self.spent) * u64::from(other.units),
            u64::from(other.spent) * u64::from(self.units),
        );
        own.cmp(&others).then(self.window.cmp(&other.window))
    }
}

impl PartialOrd for Used {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Used {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Used {}

/// One thread's table.
#[derive(Debug)]
pub(super) struct Near(Box<[Set]>);

type Set = [Option<Entry>; WAYS];

#[derive(Debug, Clone)]
struct Entry {
    hash: u64,
    seen: SeenAccount,
    used: Used,
    at: Timestamp,
}

impl Default for Near {
    fn default() -> Self {
        Self((0..SETS).map(|_| Set::default()).collect())
    }
}

impl Near {
    pub(super) fn see(&mut self, hash: u64, policy: &PolicyStanding, used: Used, now: Timestamp) {
        let set = &mut self.0[hash as usize % SETS];
        let own = set.iter_mut().flatten().find(|e| e.hash == hash && e.seen.is(policy));
        if let Some(entry) = own {
            (entry.used, entry.at) = (used, now);
            let plan = policy.plan().map(|plan| plan.name());
            if entry.seen.plan.as_ref() != plan {
                entry.seen.plan = plan.cloned();
            }
            return;
        }
        // Nobody and those who are over go first, then who has least of a quota spent.
        let worth =
            |slot: &Option<Entry>| slot.as_ref().filter(|e| e.is_live(now)).map(|e| (e.used, e.at));
        let Some(least) = set.iter_mut().min_by_key(|slot| worth(slot)) else { return };
        if worth(least).is_none_or(|(least, _)| least <= used) {
            *least = Some(Entry { hash, seen: SeenAccount::of(policy), used, at: now });
        }
    }

    pub(super) fn all(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Used, SeenAccount)> {
        let live = self.0.iter().flatten().flatten().filter(move |entry| entry.is_live(now));
        live.map(|entry| (entry.at, entry.used, entry.seen.clone()))
    }
}

impl Entry {
    /// Once a whole window has passed, all that was spent then has left it.
    fn is_live(&self, now: Timestamp) -> bool {
        now.saturating_since(self.at) < self.used.window
    }
}
