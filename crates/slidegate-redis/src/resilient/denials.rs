//! A cache of denials, which answers repeated requests without Redis.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use slidegate::limit::{Charge, Charges, OnDenial, Receipt};
use slidegate::{Standing, Timestamp};
use smallvec::SmallVec;

use crate::owned::OwnedCharge;

/// Requests that are certain to be denied, and their receipts.
///
/// A denied request is denied again until a unit leaves one of its windows. It is cached until then,
/// but at most one second, so that a reset in another process takes effect. An entry applies only to
/// the same accounts, quotas and costs: another cost has another `retry_after`.
pub(crate) struct DenialCache {
    shards: [Mutex<DenialShard>; SHARDS],
    /// Invalidation counters, by account hash. A denial is valid while the counters of its accounts
    /// are unchanged; accounts that share a counter only lose an entry early.
    forgotten: Box<[AtomicU64]>,
    /// Unknown to clients, who choose identities.
    seed: u64,
}

/// The hashes of a request: of each account, and of all that makes it the same request.
pub(crate) struct RequestHash {
    accounts: SmallVec<[u64; 2]>,
    request: u64,
}

#[derive(Default)]
struct DenialShard {
    kept: HashMap<u64, CachedDenial>,
    swept_at: Timestamp,
    /// How many were left after the last sweep.
    swept_to: usize,
}

struct CachedDenial {
    charges: Box<[OwnedCharge]>,
    accounts: SmallVec<[u64; 2]>,
    receipt: Receipt,
    generation: u64,
    /// When the reply arrived.
    since: Timestamp,
    until: Timestamp,
}

const SHARDS: usize = 16;
/// At a few hundred bytes each, all entries stay below 40 MB.
const MAX_IN_SHARD: usize = 4096;
const COUNTERS: usize = 4096;
const MAX_CACHE_TIME: Duration = Duration::from_secs(1);
/// A shard with fewer entries is not searched for expired ones.
const MIN_SWEPT: usize = 64;
/// Minimum interval between such searches. A shard is searched when it has twice the entries that the
/// last search left, so that a search costs little for each new entry.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// When a call was sent and when its reply arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    pub(crate) sent: Timestamp,
    pub(crate) back: Timestamp,
    /// Of the request, when it was sent.
    pub(crate) generation: u64,
}

impl DenialCache {
    /// An empty cache. The seed decides which accounts share a counter; by default it is random.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self {
            shards: Default::default(),
            forgotten: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            seed: seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
        }
    }

    /// The hashes of a request, which [`find`](Self::find) and [`learn`](Self::learn) need.
    pub(crate) fn hash(&self, charges: &Charges<'_>) -> RequestHash {
        let mut request = DefaultHasher::new();
        let accounts = charges.as_slice().iter().map(|charge| {
            let account = self.hash_account(charge);
            (account, charge.cost(), charge.quotas().as_slice()).hash(&mut request);
            account
        });
        RequestHash { accounts: accounts.collect(), request: request.finish() }
    }

    /// The receipt of a request that is certain to be denied.
    pub(crate) fn find(
        &self,
        charges: &Charges<'_>,
        hash: &RequestHash,
        now: Timestamp,
    ) -> Option<Receipt> {
        let shard = self.shard(hash.request);
        let denial = shard.kept.get(&hash.request)?;
        let holds = (denial.since..denial.until).contains(&now)
            && denial.generation == self.generation(hash)
            && denial
                .charges
                .iter()
                .map(OwnedCharge::as_charge)
                .eq(charges.as_slice().iter().copied());
        holds.then(|| denial.answer(now))
    }

    /// Caches a denial if the receipt makes the next identical request certain to be denied.
    pub(crate) fn learn(
        &self,
        charges: &Charges<'_>,
        hash: &RequestHash,
        receipt: &Receipt,
        trip: RoundTrip,
    ) {
        let Some(receipt) = next_denial(charges.as_slice(), receipt) else { return };
        // The call may or may not have counted what happened since it was sent.
        let until = trip.sent + certain_for(charges.as_slice(), &receipt);
        if until <= trip.back {
            return;
        }
        let mut shard = self.shard(hash.request);
        if shard.has_room(hash.request, trip.back) {
            let charges = charges.as_slice().iter().map(OwnedCharge::from).collect();
            let accounts = hash.accounts.clone();
            let (generation, since) = (trip.generation, trip.back);
            let denial = CachedDenial { charges, accounts, receipt, generation, since, until };
            shard.kept.insert(hash.request, denial);
        }
    }

    /// Invalidates all denials that involve an account of these charges, including those of calls
    /// in flight.
    pub(crate) fn forget(&self, charges: &Charges<'_>) {
        for charge in charges.as_slice() {
            self.counter(self.hash_account(charge)).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The invalidation counters of a request's accounts.
    pub(crate) fn generation(&self, hash: &RequestHash) -> u64 {
        self.sum_of_counters(&hash.accounts)
    }

    /// The number of cached denials.
    pub(crate) fn len(&self) -> usize {
        let is_known =
            |denial: &&CachedDenial| denial.generation == self.sum_of_counters(&denial.accounts);
        self.shards.iter().map(|shard| shard.lock().kept.values().filter(is_known).count()).sum()
    }

    fn sum_of_counters(&self, accounts: &[u64]) -> u64 {
        let counters = accounts.iter().map(|account| self.counter(*account));
        counters.fold(0, |sum, counter| sum.wrapping_add(counter.load(Ordering::Relaxed)))
    }

    fn counter(&self, account: u64) -> &AtomicU64 {
        &self.forgotten[account as usize % COUNTERS]
    }

    fn hash_account(&self, charge: &Charge<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, charge.policy(), charge.identity().as_str()).hash(&mut hasher);
        hasher.finish()
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, DenialShard> {
        self.shards[(hash >> 32) as usize % SHARDS].lock()
    }
}

impl DenialShard {
    fn has_room(&mut self, hash: u64, now: Timestamp) -> bool {
        let many = (2 * self.swept_to).clamp(MIN_SWEPT, MAX_IN_SHARD);
        if self.kept.len() >= many && now.saturating_since(self.swept_at) >= SWEEP_INTERVAL {
            self.swept_at = now;
            self.kept.retain(|_, denial| now < denial.until);
            self.swept_to = self.kept.len();
        }
        self.kept.len() < MAX_IN_SHARD || self.kept.contains_key(&hash)
    }
}

impl CachedDenial {
    fn answer(&self, now: Timestamp) -> Receipt {
        let passed = now.saturating_since(self.since);
        let later = |standing: &Standing| {
            standing
                .with_retry_after(standing.retry_after().saturating_sub(passed))
                .with_reset_after(standing.reset_after().saturating_sub(passed))
        };
        Receipt {
            at: self.receipt.at + passed,
            standings: self.receipt.standings.iter().map(later).collect(),
            ..Receipt::default()
        }
    }
}

/// The receipt of the next identical request if it is certain to be denied: this one was denied, or
/// has taken the last unit.
fn next_denial(charges: &[Charge<'_>], receipt: &Receipt) -> Option<Receipt> {
    // A denial that leaves something in the ledger needs the call.
    let leaves_something = |charge: &Charge<'_>| charge.on_denial() != OnDenial::Forget;
    if receipt.degraded || charges.iter().any(leaves_something) {
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

/// How long a denial and its standings stay valid.
fn certain_for(charges: &[Charge<'_>], denial: &Receipt) -> Duration {
    let shadow = charges
        .iter()
        .flat_map(|charge| charge.quotas().as_slice().iter().map(|_| charge.is_shadow()));
    let longest = denial.standings.iter().zip(shadow).filter(|(_, shadow)| !shadow);
    let denied_for = longest.map(|(standing, _)| standing.retry_after()).max().unwrap_or_default();
    let spent = denial.standings.iter().map(Standing::reset_after).filter(|after| !after.is_zero());
    spent.fold(denied_for.min(MAX_CACHE_TIME), Duration::min)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use slidegate::limit::Quotas;
    use slidegate::{Identity, ManualClock, MemoryStore, Name, Quota};

    use super::*;

    #[test]
    fn expired_denials_do_not_pile_up() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000_000)));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let policy: Name = "api".parse().unwrap();
        let quotas = Quotas::new([Quota::per_minute(1)]).unwrap();
        let cache = DenialCache::new(None);
        for user in 0..20_000 {
            clock.advance(Duration::from_millis(1));
            let identity = Identity::user(&user.to_string());
            let charges = Charges::from(Charge::new(&policy, &identity, &quotas));
            let receipt = store.spend_now(&charges).unwrap();
            let trip = RoundTrip { sent: receipt.at, back: receipt.at, generation: 0 };
            let hash = cache.hash(&charges);
            cache.learn(&charges, &hash, &receipt, trip);
            assert!(cache.find(&charges, &hash, receipt.at).is_some(), "the next one is denied");
        }
        let kept = cache.len();
        assert!((1000..4000).contains(&kept), "{kept} of 1000 that have not expired");
    }
}
