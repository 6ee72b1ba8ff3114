//! DenialCache that are certain for a while, answered again without Redis.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slidegate::limit::{Charge, Charges, Receipt};
use slidegate::{Standing, Timestamp};

use crate::owned::OwnedCharge;

/// Requests that were denied, or are bound to be, and what to answer them.
///
/// A denied request is denied again until a unit leaves one of its windows. It is kept for that
/// long, and for a second at most, so that a reset in another process is seen. It is kept for the
/// same accounts, quotas and costs only: another cost would have to wait for another time.
pub(crate) struct DenialCache {
    shards: [Mutex<DenialShard>; SHARDS],
    hasher: RandomState,
}

#[derive(Default)]
struct DenialShard {
    kept: HashMap<u64, CachedDenial>,
    swept_at: Timestamp,
}

struct CachedDenial {
    charges: Box<[OwnedCharge]>,
    receipt: Receipt,
    /// When the answer came.
    since: Timestamp,
    until: Timestamp,
}

const SHARDS: usize = 16;
/// With some hundred bytes each, all together stay below 40 MB.
const MOST_IN_SHARD: usize = 4096;
const LONGEST: Duration = Duration::from_secs(1);
/// A full shard looks for denials that are over this often.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// When a call went out and when its answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    pub(crate) sent: Timestamp,
    pub(crate) back: Timestamp,
}

impl DenialCache {
    pub(crate) fn new() -> Self {
        Self { shards: Default::default(), hasher: RandomState::new() }
    }

    /// The answer to a request that is certainly denied.
    pub(crate) fn find(&self, charges: &Charges<'_>, now: Timestamp) -> Option<Receipt> {
        let hash = self.hash(charges.as_slice());
        let shard = self.shard(hash);
        let denial = shard.kept.get(&hash)?;
        let certain = (denial.since..denial.until).contains(&now);
        (certain && denial.is_of(charges.as_slice())).then(|| denial.answer(now))
    }

    /// Keeps what a receipt says of the next request like this one.
    pub(crate) fn learn(&self, charges: &Charges<'_>, receipt: &Receipt, trip: RoundTrip) {
        let charges = charges.as_slice();
        let Some(receipt) = next_denial(charges, receipt) else { return };
        // What happened since the call went out may have been counted in it or not.
        let until = trip.sent + certain_for(charges, &receipt);
        if until <= trip.back {
            return;
        }
        let hash = self.hash(charges);
        let mut shard = self.shard(hash);
        if shard.has_room(hash, trip.back) {
            let charges = charges.iter().map(OwnedCharge::from).collect();
            shard.kept.insert(hash, CachedDenial { charges, receipt, since: trip.back, until });
        }
    }

    /// Forgets all denials that an account of these charges had a part in.
    pub(crate) fn forget(&self, charges: &Charges<'_>) {
        let same = |kept: &Charge<'_>, charge: &Charge<'_>| {
            kept.policy() == charge.policy() && kept.identity() == charge.identity()
        };
        for shard in &self.shards {
            lock(shard).kept.retain(|_, denial| {
                let mut of_denial = denial.charges.iter().map(OwnedCharge::as_charge);
                !of_denial.any(|kept| charges.as_slice().iter().any(|charge| same(&kept, charge)))
            });
        }
    }

    /// How many denials are kept.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).kept.len()).sum()
    }

    fn hash(&self, charges: &[Charge<'_>]) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = self.hasher.build_hasher();
        for charge in charges {
            charge.policy().hash(&mut hasher);
            charge.identity().as_str().hash(&mut hasher);
            charge.cost().hash(&mut hasher);
            charge.quotas().as_slice().hash(&mut hasher);
        }
        hasher.finish()
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, DenialShard> {
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<DenialShard>) -> MutexGuard<'_, DenialShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DenialShard {
    fn has_room(&mut self, hash: u64, now: Timestamp) -> bool {
        if self.kept.len() >= MOST_IN_SHARD && now.saturating_since(self.swept_at) >= SWEEP_EVERY {
            self.swept_at = now;
            self.kept.retain(|_, denial| now < denial.until);
        }
        self.kept.len() < MOST_IN_SHARD || self.kept.contains_key(&hash)
    }
}

impl CachedDenial {
    fn is_of(&self, charges: &[Charge<'_>]) -> bool {
        self.charges.len() == charges.len()
            && self.charges.iter().zip(charges).all(|(kept, charge)| kept == charge)
    }

    fn answer(&self, now: Timestamp) -> Receipt {
        let passed = now.saturating_since(self.since);
        let later = |standing: &Standing| {
            standing
                .with_retry_after(standing.retry_after().saturating_sub(passed))
                .with_reset_after(standing.reset_after().saturating_sub(passed))
        };
        Receipt {
            spent: false,
            at: self.receipt.at + passed,
            degraded: false,
            standings: self.receipt.standings.iter().map(later).collect(),
        }
    }
}

/// What the next request like this one will be told, if that is certain: that it is denied, as this
/// one is, or because this one has taken the last unit.
fn next_denial(charges: &[Charge<'_>], receipt: &Receipt) -> Option<Receipt> {
    // A denied request that counts has to be counted.
    if receipt.degraded || charges.iter().any(Charge::counts_denied) {
        return None;
    }
    if !receipt.spent {
        return Some(receipt.clone());
    }
    let simple = |charge: &Charge<'_>| charge.cost().get() == 1 && !charge.is_shadow();
    let used_up = |standing: &Standing| standing.remaining() == 0;
    if !charges.iter().all(simple) || !receipt.standings.iter().any(used_up) {
        return None;
    }
    let next = |standing: &Standing| match used_up(standing) {
        true => standing.with_retry_after(standing.reset_after()),
        false => *standing,
    };
    let standings = receipt.standings.iter().map(next).collect();
    Some(Receipt { spent: false, standings, ..receipt.clone() })
}

/// How long a denial and all that it says stay true.
fn certain_for(charges: &[Charge<'_>], denial: &Receipt) -> Duration {
    let shadow = charges
        .iter()
        .flat_map(|charge| charge.quotas().as_slice().iter().map(|_| charge.is_shadow()));
    let longest = denial.standings.iter().zip(shadow).filter(|(_, shadow)| !shadow);
    let denied_for = longest.map(|(standing, _)| standing.retry_after()).max().unwrap_or_default();
    let spent = denial.standings.iter().map(Standing::reset_after).filter(|after| !after.is_zero());
    spent.fold(denied_for.min(LONGEST), Duration::min)
}
