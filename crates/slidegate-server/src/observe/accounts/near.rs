//! Those nearest to a quota, as they were last seen.

use std::cmp::Ordering;
use std::time::Duration;

use slidegate::{PolicyStanding, Standing, Timestamp};

use super::{SETS, SeenAccount, WAYS};

/// How much of a quota is spent.
#[derive(Debug, Clone, Copy, Default)]
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
    #[inline]
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

/// What is looked through lies together, and the accounts apart from it.
#[derive(Debug, Default)]
struct Set {
    hashes: [u64; WAYS],
    places: [Place; WAYS],
    accounts: [Option<SeenAccount>; WAYS],
}

/// How the account in a place stood, when that was, and how long it matters: once a whole window has
/// passed, all that was spent then has left it. By default it is over, for there is none.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    used: Used,
    at: Timestamp,
    until: Timestamp,
}

impl Default for Near {
    fn default() -> Self {
        Self((0..SETS).map(|_| Set::default()).collect())
    }
}

impl Near {
    pub(super) fn see(&mut self, hash: u64, policy: &PolicyStanding, used: Used, now: Timestamp) {
        let set = &mut self.0[hash as usize % SETS];
        let place = Place { used, at: now, until: now + used.window };
        if let Some(own) = set.own(hash, policy) {
            set.places[own] = place;
            return;
        }
        let least = set.least(now);
        let other = &set.places[least];
        if other.is_over(now) || other.used <= used {
            set.hashes[least] = hash;
            set.places[least] = place;
            set.accounts[least] = Some(SeenAccount::of(policy));
        }
    }

    pub(super) fn all(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Used, SeenAccount)> {
        let each = self.0.iter().flat_map(|set| set.places.iter().zip(&set.accounts));
        let live = each.filter(move |(place, _)| !place.is_over(now));
        live.filter_map(|(place, seen)| Some((place.at, place.used, seen.clone()?)))
    }
}

impl Set {
    /// Where the account is, with the plan that it has now.
    fn own(&mut self, hash: u64, policy: &PolicyStanding) -> Option<usize> {
        let is_own = |way: &usize| {
            self.hashes[*way] == hash
                && self.accounts[*way].as_ref().is_some_and(|seen| seen.is(policy))
        };
        let own = (0..WAYS).find(is_own)?;
        let plan = policy.plan().map(|plan| plan.name());
        if let Some(seen) = &mut self.accounts[own]
            && seen.plan.as_ref() != plan
        {
            seen.plan = plan.cloned();
        }
        Some(own)
    }

    /// Nobody and those who are over go first, then who has least of a quota spent.
    fn least(&self, now: Timestamp) -> usize {
        let mut least = 0;
        for (way, place) in self.places.iter().enumerate() {
            if place.is_over(now) {
                return way;
            }
            if place.is_less_than(&self.places[least]) {
                least = way;
            }
        }
        least
    }
}

impl Place {
    /// Whether less of a quota was spent, or as much longer ago.
    #[inline]
    fn is_less_than(&self, other: &Self) -> bool {
        match self.used.cmp(&other.used) {
            Ordering::Less => true,
            Ordering::Equal => self.at < other.at,
            Ordering::Greater => false,
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }
}
