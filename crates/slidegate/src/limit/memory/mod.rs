//! The store in this process's memory: sharded tables behind plain mutexes.

mod account;
mod planned;
mod settled;
mod shard;
mod snapshot;

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};

use self::planned::{AccountKey, PlannedCharge};
use self::settled::SettledNames;
use self::shard::{KEPT_PART, Shard, Slot};
pub use self::snapshot::SnapshotError;
use crate::identity::Identity;
use crate::limit::clock::{Clock, StoreClock, SystemClock, Timestamp, Warning};
use crate::limit::{
    AccountReading, Charge, Charges, Difference, LedgerEntry, LedgerReading, Name, OnDenial, Quota,
    Receipt, Settled, Settlement, Spent, Standing, Standings, Store, StoreError,
};

/// Keeps accounts in memory, exactly, for any number of threads.
///
/// It has room for a fixed number of accounts. Those with nothing left in their windows go first;
/// a live one is never pushed out. A quarter of the room is kept for identities that clients cannot
/// choose: see [`Store::has_room_for`]. When all are live, a newcomer's charge is decided by its
/// [`OnStoreError`](crate::OnStoreError): by a shared account for all who found no room, not at
/// all, or with [`StoreError::Full`].
///
/// Calls never wait for anything but a short lock, so the futures are ready at once.
///
/// ```
/// use slidegate::MemoryStore;
///
/// let store = MemoryStore::builder().capacity(100_000).build();
/// assert_eq!(store.stats().accounts, 0);
/// ```
pub struct MemoryStore {
    shards: Box<[LockedShard]>,
    hasher: RandomState,
    pub(crate) clock: StoreClock,
    pub(crate) capacity: usize,
    /// Charges that found no room.
    over_capacity: AtomicU64,
    warning: Warning,
    settled: Mutex<SettledNames>,
}

/// A shard behind its lock, aligned so that no two share a cache line.
#[repr(align(128))]
struct LockedShard(Mutex<Shard>);

/// Enough that threads seldom meet, few enough that an empty store is below a megabyte.
const MAX_SHARDS: usize = 64;
/// Below this many accounts a shard's share of the capacity would be too uneven.
const MIN_ACCOUNTS_PER_SHARD: usize = 1024;
/// Shards go by bits of the hash that their tables do not go by.
const SHARD_SHIFT: u32 = 32;

/// Makes a [`MemoryStore`].
#[must_use]
pub struct MemoryStoreBuilder {
    capacity: usize,
    clock: StoreClock,
}

impl MemoryStoreBuilder {
    /// How many accounts may be live at once; a million unless said otherwise.
    ///
    /// Stores of 2048 and more spread this over shards by chance, so one may be full when a
    /// few places in others are not.
    pub fn capacity(self, accounts: usize) -> Self {
        Self { capacity: accounts, ..self }
    }

    /// Where time comes from.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: StoreClock::Other(Arc::new(clock)), ..self }
    }

    /// Makes the store.
    pub fn build(self) -> MemoryStore {
        let shards = shards_for(self.capacity);
        // The seed is random, because clients choose identities.
        let hasher = RandomState::default();
        let shard = |i| Shard::new(self.capacity.saturating_add(i) / shards, hasher.clone());
        MemoryStore {
            shards: (0..shards).map(|i| LockedShard(Mutex::new(shard(i)))).collect(),
            hasher,
            clock: self.clock,
            capacity: self.capacity,
            over_capacity: AtomicU64::new(0),
            warning: Warning::default(),
            settled: Mutex::default(),
        }
    }
}

/// How many shards a table of so many accounts has: a power of two.
pub(crate) fn shards_for(capacity: usize) -> usize {
    1 << (capacity / MIN_ACCOUNTS_PER_SHARD).clamp(1, MAX_SHARDS).ilog2()
}

/// What a memory store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStats {
    /// Accounts, live and not yet swept.
    pub accounts: usize,
    /// How many there may be.
    pub capacity: usize,
    /// Charges that found no room since the store was made.
    pub over_capacity: u64,
    /// Accounts that were swept since the store was made.
    pub swept: u64,
}

impl MemoryStats {
    /// Whether identities that clients choose get no new accounts: the places that are left are kept
    /// for others.
    pub fn is_crowded(&self) -> bool {
        self.accounts >= self.capacity - self.capacity / KEPT_PART
    }
}

impl MemoryStore {
    /// A store with room for a million accounts, on the machine's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts a store.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { capacity: 1_000_000, clock: StoreClock::System(SystemClock::new()) }
    }

    /// A builder of an empty store with the same capacity and clock.
    pub(crate) fn into_builder(self) -> MemoryStoreBuilder {
        MemoryStoreBuilder { capacity: self.capacity, clock: self.clock }
    }

    /// Counts what the store holds.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats {
            accounts: 0,
            capacity: self.capacity,
            over_capacity: self.over_capacity.load(Ordering::Relaxed),
            swept: 0,
        };
        for i in 0..self.shards.len() {
            let shard = self.lock(i);
            stats.accounts += shard.accounts.len();
            stats.swept += shard.swept;
        }
        stats
    }

    /// [`Store::spend`] for callers that are not async.
    pub fn spend_now(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.attempt(charges, Commit::Spend)
    }

    /// [`Store::peek`] for callers that are not async.
    pub fn peek_now(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.attempt(charges, Commit::Nothing)
    }

    /// [`Store::read`] for callers that are not async.
    pub fn read_now(&self, charge: Charge<'_>) -> AccountReading {
        let key = AccountKey::of(&charge);
        let hash = self.hash(key);
        let (mut shard, now) = self.open(hash);
        let mut reading = AccountReading::untouched(now, charge.quotas().as_slice());
        let has_own = shard.own(hash, key).is_some();
        let Some(account) = shard.own_or_shared(hash, key) else {
            return reading;
        };
        reading.degraded = !has_own;
        for LedgerReading { quota, entries } in &mut reading.ledgers {
            let Some(ledger) = account.ledger_mut(*quota) else { continue };
            ledger.expire_in_order(now);
            let entry = |(ms, units)| LedgerEntry { stamp: Timestamp::from_millis(ms), units };
            *entries = ledger.runs().map(entry).collect();
        }
        reading
    }

    /// [`Store::refund`] for callers that are not async.
    pub fn refund_now(&self, charges: &Charges<'_>, spent: Spent) {
        for charge in charges.as_slice() {
            let key = AccountKey::of(charge);
            let hash = self.hash(key);
            let mut shard = self.lock(self.shard_of(hash));
            let account = match spent {
                Spent::At(_) => shard.own_or_shared(hash, key),
                Spent::Newest => shard.own(hash, key),
            };
            let Some(account) = account else { continue };
            let now = self.clock.now();
            for quota in charge.quotas().as_slice() {
                let Some(ledger) = account.ledger_mut(*quota) else { continue };
                match spent {
                    Spent::At(at) => ledger.refund_at(charge.cost().get(), at, now),
                    Spent::Newest => ledger.refund_newest(charge.cost().get()),
                };
            }
        }
    }

    /// [`Store::settle`] for callers that are not async.
    pub fn settle_now(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        let mut settled = Settled::Before;
        for charge in charges.as_slice() {
            let settle = || self.settle_charge(charge, settlement);
            settled = settled.or(match settlement.once {
                None => settle().map(|()| Settled::Now)?,
                Some(once) => {
                    let (now, key) = (self.clock.now(), AccountKey::of(charge));
                    self.settled.lock().settle(once, key, now, self.capacity, settle)?
                }
            });
        }
        Ok(settled)
    }

    /// Whether a charge was settled here under a [name](crate::limit::Once::id) that can still be
    /// presented.
    pub fn has_settled(&self, charge: &Charge<'_>, id: &str) -> bool {
        self.settled.lock().contains(id, AccountKey::of(charge), self.clock.now())
    }

    fn settle_charge(
        &self,
        charge: &Charge<'_>,
        settlement: Settlement<'_>,
    ) -> Result<(), StoreError> {
        match settlement.difference(charge) {
            Difference::None => {}
            Difference::Refund(units) => {
                let unused = charge.with_cost(units).expect("less than the charge has cost");
                self.refund_now(&unused.into(), Spent::At(settlement.at));
            }
            Difference::Record(units) => drop(self.spend_now(&charge.record(units).into())?),
        }
        Ok(())
    }

    /// [`Store::reset`] for callers that are not async.
    pub fn reset_now(&self, charges: &Charges<'_>) {
        charges.as_slice().iter().for_each(|charge| self.remove_account(AccountKey::of(charge)));
    }

    /// [`Store::reset`] as if it had been done at `at`: what was spent since stays.
    pub fn reset_as_of(&self, charges: &Charges<'_>, at: Timestamp) {
        for charge in charges.as_slice() {
            let key = AccountKey::of(charge);
            let hash = self.hash(key);
            let mut shard = self.lock(self.shard_of(hash));
            let Some(account) = shard.own(hash, key) else { continue };
            for quota in charge.quotas().as_slice() {
                if let Some(ledger) = account.ledger_mut(*quota) {
                    ledger.forget_until(at);
                }
            }
        }
    }

    /// Spends every charge or none, or tells whether it would.
    pub(crate) fn attempt(
        &self,
        charges: &Charges<'_>,
        commit: Commit,
    ) -> Result<Receipt, StoreError> {
        let charges = charges.as_slice();
        // One charge to an account that is there, as nearly always: one lock and one look-up.
        if let [charge] = charges {
            let mut charge = PlannedCharge::of(charge, &self.hasher);
            let (mut shard, now) = self.open(charge.hash);
            let Some(account) = shard.own(charge.hash, charge.key) else {
                drop(shard);
                return self.attempt_all(slice::from_mut(&mut charge), commit);
            };
            if let [quota] = charge.quotas
                && commit == Commit::Spend
                && !charge.shadow
                && charge.on_denial == OnDenial::Forget
            {
                let (spent, standing) = account.attempt(*quota, charge.cost, commit, now);
                return Ok(Receipt {
                    spent,
                    at: now,
                    standings: smallvec![standing],
                    ..Receipt::default()
                });
            }
            let spent = charge.plan(Some(account), now);
            let mut receipt = Receipt { spent, at: now, ..Receipt::default() };
            charge.write(Some(account), charge.to_commit(commit), now, &mut receipt.standings);
            return Ok(receipt);
        }
        let planned = charges.iter().map(|charge| PlannedCharge::of(charge, &self.hasher));
        self.attempt_all(&mut planned.collect::<SmallVec<[_; 2]>>(), commit)
    }

    /// Spends from an account of a [`Limiter`](crate::Limiter), or tells whether it would, and where it
    /// stands.
    pub(crate) fn attempt_key(
        &self,
        key: &str,
        quota: Quota,
        cost: u32,
        commit: Commit,
    ) -> (bool, Standing) {
        let key = AccountKey::new("", key);
        let hash = self.hash(key);
        let (mut shard, now) = self.open(hash);
        let Some(account) = shard.own(hash, key) else {
            drop(shard);
            let mut charge = PlannedCharge::new(key, hash, slice::from_ref(&quota), cost);
            let receipt = self.attempt_all(slice::from_mut(&mut charge), commit);
            let receipt = receipt.expect("a charge that a shared account stands in for");
            return (receipt.spent, receipt.standings[0]);
        };
        account.attempt(quota, cost, commit, now)
    }

    /// Locks the shard of one account, and reads the clock under the lock.
    #[inline]
    fn open(&self, hash: u64) -> (MutexGuard<'_, Shard>, Timestamp) {
        let mut shard = self.lock(self.shard_of(hash));
        let now = shard.instant(self.clock.now());
        shard.begin(now);
        (shard, now)
    }

    /// Forgets an account of a [`Limiter`](crate::Limiter).
    pub(crate) fn remove(&self, key: &str) {
        self.remove_account(AccountKey::new("", key));
    }

    fn remove_account(&self, key: AccountKey<'_>) {
        let hash = self.hash(key);
        self.lock(self.shard_of(hash)).remove(hash, key);
    }

    /// Decides all charges in one step: slots first, then whether they fit, and writes last.
    #[inline(never)]
    fn attempt_all(
        &self,
        planned: &mut [PlannedCharge<'_>],
        commit: Commit,
    ) -> Result<Receipt, StoreError> {
        let mut locks = self.lock_all(planned);
        // Read under the locks, so that the stamps of an account never go back.
        let reading = self.clock.now();
        let now = locks.iter_mut().map(|lock| lock.instant(reading)).max().unwrap_or(reading);
        for lock in &mut locks {
            lock.begin(now);
            lock.make_room(now, planned.len());
        }
        if let Err(error) = find_slots(planned, &locks) {
            self.count_over_capacity(1, now);
            return Err(error);
        }
        let uncounted =
            |charge: &&PlannedCharge<'_>| matches!(charge.slot, Slot::Overflow | Slot::Waived);
        let over_capacity = planned.iter().filter(uncounted).count();
        if over_capacity > 0 {
            self.count_over_capacity(over_capacity as u64, now);
        }
        let mut spent = true;
        for charge in &mut *planned {
            let account = locks[charge.lock].account(charge, Commit::Nothing, now);
            spent &= charge.plan(account, now);
        }
        let mut standings = Standings::new();
        for charge in planned {
            charge.will_spend &= spent;
            let commit = charge.to_commit(commit);
            let account = locks[charge.lock].account(charge, commit, now);
            charge.write(account, commit, now, &mut standings);
        }
        Ok(Receipt { spent, at: now, degraded: over_capacity > 0, standings, times: Vec::new() })
    }

    /// Locks the shards of all charges in ascending order, so that no two calls wait for each
    /// other.
    fn lock_all(&self, planned: &mut [PlannedCharge<'_>]) -> SmallVec<[MutexGuard<'_, Shard>; 4]> {
        let mut shards: SmallVec<[usize; 8]> =
            planned.iter().map(|charge| self.shard_of(charge.hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        for charge in planned {
            let shard = self.shard_of(charge.hash);
            charge.lock = shards.binary_search(&shard).expect("every shard is in the list");
        }
        shards.into_iter().map(|shard| self.lock(shard)).collect()
    }

    #[inline]
    fn hash(&self, key: AccountKey<'_>) -> u64 {
        key.hash(&self.hasher)
    }

    fn shard_of(&self, hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize & (self.shards.len() - 1)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    fn count_over_capacity(&self, charges: u64, now: Timestamp) {
        self.over_capacity.fetch_add(charges, Ordering::Relaxed);
        if self.warning.is_due(now) {
            tracing::warn!(
                capacity = self.capacity,
                "the memory store is full of live accounts: newcomers are decided by their \
                 policy's on_store_error; raise the capacity or shorten the windows"
            );
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    const NEVER_WAITS: bool = true;

    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.attempt(charges, Commit::Spend)
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.attempt(charges, Commit::Nothing)
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        Ok(self.read_now(charge))
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        self.refund_now(charges, spent);
        Ok(())
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        self.settle_now(charges, settlement)
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.reset_now(charges);
        Ok(())
    }

    fn has_room_for(&self, policy: &Name, identity: &Identity) -> bool {
        let key = AccountKey::new(policy, identity.as_str());
        let hash = self.hash(key);
        let (mut shard, now) = self.open(hash);
        shard.has_room_for(hash, key, now)
    }
}

/// Finds where every charge is counted; makes nothing.
fn find_slots(
    planned: &mut [PlannedCharge<'_>],
    locks: &[MutexGuard<'_, Shard>],
) -> Result<(), StoreError> {
    for i in 0..planned.len() {
        let (before, rest) = planned.split_at_mut(i);
        let charge = &mut rest[0];
        let beside = before.iter().filter(|other| other.lock == charge.lock);
        let new = beside.clone().filter(|other| other.slot == Slot::New).count();
        charge.slot = locks[charge.lock].slot(charge, new)?;
        // Two charges to one shared account would each be seen to fit alone.
        if charge.slot == Slot::Overflow
            && beside.clone().any(|o| o.slot == Slot::Overflow && o.key.policy == charge.key.policy)
        {
            return Err(StoreError::Full);
        }
    }
    Ok(())
}

/// Whether something is spent for real, or only looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    Spend,
    Nothing,
}

impl Commit {
    /// Where something is spent, if it is for real.
    pub(crate) fn spent<T>(self, spent: T) -> Option<T> {
        (self == Self::Spend).then_some(spent)
    }
}
