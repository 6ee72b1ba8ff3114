//! Those nearest to a quota, as they were last seen.

use std::time::Duration;

use slidegate::{PolicyStanding, Quota, Standing, Timestamp};

use super::{SETS, SeenAccount, WAYS};

/// How much of a quota is spent, half of it or more: less is not worth a place.
///
/// More is the larger share, and of equal ones the longer window: an hour's quota is spent for
/// longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Used(
    /// The share in parts of a whole, and below it the window: one number, to be compared at once.
    u64,
);

/// Milliseconds of the longest window need so many.
const WINDOW_BITS: u32 = 35;
const _: () = assert!(Quota::MAX_WINDOW.as_millis() < 1 << WINDOW_BITS);
/// As fine as there is room for.
const WHOLE: u64 = 1 << (u64::BITS - WINDOW_BITS - 1);

impl Used {
    /// Of several quotas, the one that is spent most.
    #[inline]
    pub(super) fn most(standings: &[Standing]) -> Option<Self> {
        standings.iter().filter_map(Self::of).max()
    }

    #[inline]
    fn of(standing: &Standing) -> Option<Self> {
        let (quota, remaining) = (standing.quota(), standing.remaining());
        let units = u64::from(quota.units().get());
        let spent = units.saturating_sub(remaining.into());
        (spent * 2 >= units).then(|| {
            let (share, window_ms) = (spent * WHOLE / units, quota.window().as_millis() as u64);
            Self(share << WINDOW_BITS | window_ms)
        })
    }

    fn window(self) -> Duration {
        Duration::from_millis(self.0 % (1 << WINDOW_BITS))
    }
}

/// An account seen less than this ago is considered active.
const ABOUT: Duration = Duration::from_secs(1);

/// One thread's table.
#[derive(Debug)]
pub(super) struct TopUsage(Box<[UsageBucket]>);

/// What is looked through lies together, and the accounts apart from it.
#[derive(Debug, Default)]
struct UsageBucket {
    hashes: [u64; WAYS],
    places: [LastUsage; WAYS],
    accounts: [Option<SeenAccount>; WAYS],
}

/// How the account in a place stood, when that was, and how long it matters: once a whole window
/// has passed, all that was spent then has left it. By default it is over, for there is none.
#[derive(Debug, Clone, Copy, Default)]
struct LastUsage {
    used: Used,
    at: Timestamp,
    until: Timestamp,
}

impl Default for TopUsage {
    fn default() -> Self {
        Self((0..SETS).map(|_| UsageBucket::default()).collect())
    }
}

impl TopUsage {
    pub(super) fn record(
        &mut self,
        hash: u64,
        policy: &PolicyStanding,
        used: Used,
        now: Timestamp,
    ) {
        let set = &mut self.0[hash as usize % SETS];
        let place = LastUsage { used, at: now, until: now + used.window() };
        if let Some(own) = set.own(hash, policy) {
            set.places[own] = place;
            return;
        }
        let least = set.least(now);
        let other = &set.places[least];
        // An active account with the same usage stays, lest two replace each other in turns.
        let is_about = other.at + ABOUT > now;
        if other.is_over(now) || other.used < used || (other.used == used && !is_about) {
            set.hashes[least] = hash;
            set.places[least] = place;
            match &mut set.accounts[least] {
                Some(seen) => seen.become_of(policy),
                none => *none = Some(SeenAccount::of(policy)),
            }
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

impl UsageBucket {
    /// Where the account is, with the plan that it has now.
    fn own(&mut self, hash: u64, policy: &PolicyStanding) -> Option<usize> {
        let is_own = |way: &usize| {
            self.hashes[*way] == hash
                && self.accounts[*way].as_ref().is_some_and(|seen| seen.is(policy))
        };
        let own = (0..WAYS).find(is_own)?;
        if let Some(seen) = &mut self.accounts[own] {
            seen.follow_plan(policy);
        }
        Some(own)
    }

    /// Empty and expired entries are replaced first, then the one with the least usage.
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

impl LastUsage {
    /// Whether less of a quota was spent, or as much longer ago.
    #[inline]
    fn is_less_than(&self, other: &Self) -> bool {
        (self.used, self.at) < (other.used, other.at)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }
}
