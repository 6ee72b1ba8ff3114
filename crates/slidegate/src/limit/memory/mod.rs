//! The store in this process's memory: sharded tables behind plain mutexes.

mod book;
mod denials;
mod hasher;
mod index;
mod ledgers;
mod placed;
mod shard;
mod snapshot;

use std::future::{Future, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use self::denials::Denials;
use self::hasher::AccountHasher;
use self::placed::{Placed, fit_all, place_all};
use self::shard::Shard;
pub use self::snapshot::SnapshotError;
use crate::limit::charge::{Charge, Charges};
use crate::limit::clock::{Clock, SystemClock, Timestamp};
use crate::limit::store::{Receipt, Spent, Standings, Store, StoreError};
use crate::limit::warning::Warning;

/// Keeps accounts in memory, exactly, for any number of threads.
///
/// It has room for a fixed number of accounts. Those with nothing left in their windows go first;
/// a live one is never pushed out. When all are live, a newcomer's charge is decided by its
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
    denials: Denials,
    hasher: AccountHasher,
    clock: StoreClock,
    capacity: usize,
    /// Charges that found no room.
    refused: AtomicU64,
    warning: Warning,
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

/// The clock of nearly every store can be read without an indirect call.
enum StoreClock {
    System(SystemClock),
    Other(Box<dyn Clock>),
}

impl StoreClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    fn wall(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.wall(),
            Self::Other(clock) => clock.wall(),
        }
    }
}

impl MemoryStoreBuilder {
    /// How many accounts may be live at once; a million unless said otherwise, and fewer
    /// than 2^31.
    ///
    /// Stores of 2048 and more spread this over shards by chance, so one may be full when a
    /// few places in others are not.
    pub fn capacity(self, accounts: usize) -> Self {
        Self { capacity: accounts.min((1 << 31) - 1), ..self }
    }

    /// Where time comes from.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: StoreClock::Other(Box::new(clock)), ..self }
    }

    /// Makes the store.
    pub fn build(self) -> MemoryStore {
        let shards = (self.capacity / MIN_ACCOUNTS_PER_SHARD).clamp(1, MAX_SHARDS);
        let shards = 1 << shards.ilog2();
        let shard = |i| Shard::new((self.capacity + i) / shards, self.capacity);
        MemoryStore {
            shards: (0..shards).map(|i| LockedShard(Mutex::new(shard(i)))).collect(),
            denials: Denials::new(shards),
            hasher: AccountHasher::default(),
            clock: self.clock,
            capacity: self.capacity,
            refused: AtomicU64::new(0),
            warning: Warning::default(),
        }
    }
}

/// What a memory store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStats {
    /// Accounts, live and not yet swept.
    pub accounts: usize,
    /// How many there may be.
    pub capacity: usize,
    /// Charges that found no room since the store was made.
    pub refused: u64,
    /// Accounts that were swept since the store was made.
    pub swept: u64,
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

    /// Counts what the store holds.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats {
            accounts: 0,
            capacity: self.capacity,
            refused: self.refused.load(Ordering::Relaxed),
            swept: 0,
        };
        for i in 0..self.shards.len() {
            let shard = self.lock(i);
            stats.accounts += shard.books().len();
            stats.swept += shard.swept;
        }
        stats
    }

    /// The current instant, on the store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// [`Store::spend`] for callers that are not async.
    pub fn spend_now(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.attempt(charges, Commit::Spend)
    }

    /// [`Store::peek`] for callers that are not async.
    pub fn peek_now(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.attempt(charges, Commit::Nothing)
    }

    /// [`Store::refund`] for callers that are not async.
    pub fn refund_now(&self, charges: &Charges<'_>, spent: Spent) {
        for charge in charges.as_slice() {
            let hash = self.hash(charge);
            let mut shard = self.lock(self.shard_of(hash));
            self.denials.forget(hash);
            let book = match spent {
                Spent::At(_) => shard.book_or_shared(hash, charge),
                Spent::Newest => shard.own_book(hash, charge),
            };
            let Some(book) = book else { continue };
            let now = self.clock.now();
            for quota in charge.quotas().as_slice() {
                let Some(ledger) = book.ledger_mut(*quota) else { continue };
                match spent {
                    Spent::At(at) => ledger.refund_at(charge.cost().get(), at, now),
                    Spent::Newest => ledger.refund_newest(charge.cost().get()),
                };
            }
        }
    }

    /// [`Store::reset`] for callers that are not async.
    pub fn reset_now(&self, charges: &Charges<'_>) {
        for charge in charges.as_slice() {
            let hash = self.hash(charge);
            let mut shard = self.lock(self.shard_of(hash));
            self.denials.forget(hash);
            shard.forget(&self.hasher, hash, charge);
        }
    }

    /// [`Store::reset`] as if it had been done at `at`: what was spent since stays.
    pub fn reset_as_of(&self, charges: &Charges<'_>, at: Timestamp) {
        for charge in charges.as_slice() {
            let hash = self.hash(charge);
            let mut shard = self.lock(self.shard_of(hash));
            self.denials.forget(hash);
            let Some(book) = shard.own_book(hash, charge) else { continue };
            for quota in charge.quotas().as_slice() {
                if let Some(ledger) = book.ledger_mut(*quota) {
                    ledger.forget_until(at);
                }
            }
        }
    }

    #[inline]
    fn attempt(&self, charges: &Charges<'_>, commit: Commit) -> Result<Receipt, StoreError> {
        match charges.as_slice() {
            [charge] => self.attempt_one(charge, commit),
            _ => self.attempt_all(charges, commit),
        }
    }

    /// Decides one charge: what [`attempt_all`](Self::attempt_all) does, with one lock or, for a
    /// client that has just been denied, with none.
    fn attempt_one(&self, charge: &Charge<'_>, commit: Commit) -> Result<Receipt, StoreError> {
        let hash = self.hash(charge);
        if let Some(receipt) = self.denials.find(hash, charge, &self.clock) {
            return Ok(receipt);
        }
        let mut receipt = Receipt::default();
        self.attempt_locked(hash, charge, commit, &mut receipt)?;
        Ok(receipt)
    }

    // Apart from its caller, so that an answer without a lock does not pay for what this needs;
    // and the receipt is the caller's, so that it is not copied under the lock.
    #[inline(never)]
    fn attempt_locked(
        &self,
        hash: u64,
        charge: &Charge<'_>,
        commit: Commit,
        receipt: &mut Receipt,
    ) -> Result<(), StoreError> {
        let mut lock = self.lock(self.shard_of(hash));
        let now = lock.instant(self.clock.now());
        lock.sweep_a_little(&self.hasher, now, 1);
        let mut placed = Placed::new(charge, hash);
        placed.place = match lock.place(hash, charge, now, 0) {
            Ok(place) => place,
            Err(error) => {
                self.count_refused(1, now);
                return Err(error);
            }
        };
        if placed.place.is_degraded() {
            receipt.degraded = true;
            self.count_refused(1, now);
        }
        placed.takes = placed.fits(&lock);
        // Even without a write: placing may have settled the account after a clock's step back.
        self.denials.forget(hash);
        if commit == Commit::Spend {
            placed.write(&mut lock, &self.hasher, now);
        }
        receipt.at = now;
        receipt.spent = placed.takes || charge.is_shadow();
        placed.report(&lock, now, &mut receipt.standings);
        if placed.denies_for_sure() {
            self.denials.remember(hash, charge, receipt);
        }
        Ok(())
    }

    /// Decides all charges in one step: places first, then whether they fit, and writes last.
    #[inline(never)]
    fn attempt_all(&self, charges: &Charges<'_>, commit: Commit) -> Result<Receipt, StoreError> {
        let mut places: SmallVec<[Placed<'_, '_>; 4]> = charges
            .as_slice()
            .iter()
            .map(|charge| Placed::new(charge, self.hash(charge)))
            .collect();
        let mut locks = self.lock_all(&mut places);
        // Read under the locks, so that the stamps of an account never go back.
        let reading = self.clock.now();
        let now = locks.iter_mut().map(|lock| lock.instant(reading)).max().unwrap_or(reading);
        for lock in &mut locks {
            lock.advance_to(now);
            lock.sweep_a_little(&self.hasher, now, places.len());
        }
        if let Err(error) = place_all(&mut places, &mut locks, now) {
            self.count_refused(1, now);
            return Err(error);
        }
        let refused = places.iter().filter(|placed| placed.place.is_degraded()).count();
        if refused > 0 {
            self.count_refused(refused as u64, now);
        }
        let spent = fit_all(&mut places, &locks);
        let mut standings = Standings::new();
        for placed in &mut places {
            let lock = &mut locks[placed.lock];
            self.denials.forget(placed.hash);
            if commit == Commit::Spend {
                placed.write(lock, &self.hasher, now);
            }
            placed.report(lock, now, &mut standings);
        }
        Ok(Receipt { spent, at: now, degraded: refused > 0, standings })
    }

    /// Locks the shards of all charges in ascending order, so that no two calls wait for each
    /// other.
    fn lock_all(&self, places: &mut [Placed<'_, '_>]) -> SmallVec<[MutexGuard<'_, Shard>; 4]> {
        let mut shards: SmallVec<[usize; 8]> =
            places.iter().map(|placed| self.shard_of(placed.hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        for placed in places {
            let shard = self.shard_of(placed.hash);
            placed.lock = shards.binary_search(&shard).expect("every shard is in the list");
        }
        shards.into_iter().map(|shard| self.lock(shard)).collect()
    }

    #[inline]
    fn hash(&self, charge: &Charge<'_>) -> u64 {
        self.hasher.hash(charge.policy(), charge.identity().as_bytes())
    }

    fn shard_of(&self, hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize & (self.shards.len() - 1)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // A shard is whole at every point where code under its lock could panic.
        self.shards[shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_refused(&self, charges: u64, now: Timestamp) {
        self.refused.fetch_add(charges, Ordering::Relaxed);
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
    fn spend(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Receipt, StoreError>> + Send {
        ready(self.spend_now(charges))
    }

    fn peek(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Receipt, StoreError>> + Send {
        ready(self.peek_now(charges))
    }

    fn refund(
        &self,
        charges: &Charges<'_>,
        spent: Spent,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.refund_now(charges, spent);
        ready(Ok(()))
    }

    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.reset_now(charges);
        ready(Ok(()))
    }
}

/// Whether an attempt is for real.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Commit {
    Spend,
    Nothing,
}
