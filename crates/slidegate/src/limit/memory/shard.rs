//! One part of a memory store's accounts, behind one lock.

use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::Commit;
use super::account::AccountEntry;
use super::planned::{AccountKey, PlannedCharge};
use crate::limit::OnStoreError;
use crate::limit::{StoreError, Timestamp};

/// How many buckets one sweep looks through. A sweep goes on where the last one ended, so every
/// account that is over is found before long.
const SWEEP_BUCKETS: usize = 32;
/// Calls between two sweeps. A sweep touches memory that the call does not need, but in a row; done
/// seldom, it hardly costs.
const CALLS_PER_SWEEP: u32 = 256;
/// How many calls a new account counts as: eight buckets are looked through for each, and two would
/// already keep up with any stream of them.
const CALLS_PER_NEW: u32 = 64;

/// This part of the capacity is kept for accounts of identities that clients cannot choose: who chooses
/// any number of them fills the rest, and is then counted by address as others are.
pub(super) const KEPT_PART: usize = 4;

/// Two processors' counters need not agree to the nanosecond.
const CLOCK_JITTER: Duration = Duration::from_micros(100);

/// Accounts by key, and the shared accounts for those that found no place.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) accounts: HashTable<AccountEntry>,
    /// One for each policy that found no place for an account. They do not count as accounts.
    pub(super) overflow: Vec<AccountEntry>,
    hasher: RandomState,
    capacity: usize,
    cursor: usize,
    calls: u32,
    last_now: Timestamp,
    pub(super) swept: u64,
}

/// Where a charge is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// In its own account, in this bucket. Holds until another account is added.
    Own(usize),
    /// In an account that is yet to be made. It begins with what the shared account of its policy
    /// has spent: all of that may be the newcomer's.
    New,
    /// In the shared account of its policy.
    Overflow,
    /// Nowhere: it is allowed.
    Waived,
}

impl Shard {
    pub(super) fn new(capacity: usize, hasher: RandomState) -> Self {
        Self {
            accounts: HashTable::new(),
            overflow: Vec::new(),
            hasher,
            capacity,
            cursor: 0,
            calls: 0,
            last_now: Timestamp::default(),
            swept: 0,
        }
    }

    /// The instant of a call that holds the lock: its reading of the clock, or the last call's if
    /// that was less than [`CLOCK_JITTER`] later.
    #[inline]
    pub(super) fn instant(&mut self, reading: Timestamp) -> Timestamp {
        if reading >= self.last_now { reading } else { self.earlier_instant(reading) }
    }

    /// A larger step back is the clock's. No ledger of the shard may have entries in the future
    /// then, and looking for them here spares every call the look at an account's newest entry.
    #[cold]
    fn earlier_instant(&mut self, reading: Timestamp) -> Timestamp {
        if self.last_now.saturating_since(reading) < CLOCK_JITTER {
            return self.last_now;
        }
        let accounts = self.accounts.iter_mut().chain(&mut self.overflow);
        accounts.for_each(|account| account.expire(reading));
        self.last_now = reading;
        reading
    }

    /// Begins a call at `now`, with a look at a few accounts that may be over once in a while.
    #[inline]
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.last_now = now;
        self.calls += 1;
        if self.calls >= CALLS_PER_SWEEP {
            self.sweep(now, SWEEP_BUCKETS);
        }
    }

    /// Makes room for up to so many new accounts where others are over, and has memory for them, so
    /// that no account moves while the call goes on.
    pub(super) fn make_room(&mut self, now: Timestamp, accounts: usize) {
        if self.accounts.len() + accounts > self.capacity {
            self.sweep(now, SWEEP_BUCKETS);
        }
        let room = self.capacity.saturating_sub(self.accounts.len()).min(accounts);
        self.accounts.reserve(room, |account| account.hash(&self.hasher));
    }

    /// Whether an account is there, or may take a place that is not kept for others.
    pub(super) fn has_room_for(&mut self, hash: u64, key: AccountKey<'_>, now: Timestamp) -> bool {
        if self.find(hash, key).is_some() {
            return true;
        }
        let most = self.capacity - self.capacity / KEPT_PART;
        if self.accounts.len() >= most {
            self.sweep(now, SWEEP_BUCKETS);
        }
        self.accounts.len() < most
    }

    /// Finds where a charge is counted; makes nothing. `planned` accounts are to be made besides.
    pub(super) fn slot(
        &self,
        charge: &PlannedCharge<'_>,
        planned: usize,
    ) -> Result<Slot, StoreError> {
        if let Some(i) = self.find(charge.hash, charge.key) {
            return Ok(Slot::Own(i));
        }
        if self.accounts.len() + planned < self.capacity {
            return Ok(Slot::New);
        }
        match charge.on_store_error {
            OnStoreError::Local => Ok(Slot::Overflow),
            OnStoreError::Deny if !charge.shadow => Err(StoreError::Full),
            OnStoreError::Allow | OnStoreError::Deny => Ok(Slot::Waived),
        }
    }

    /// The account that a charge is counted in; for a spend it is made if need be.
    pub(super) fn account(
        &mut self,
        charge: &PlannedCharge<'_>,
        commit: Commit,
        now: Timestamp,
    ) -> Option<&mut AccountEntry> {
        match (charge.slot, commit) {
            (Slot::Own(i), _) => {
                let account = self.accounts.get_bucket_mut(i);
                Some(account.expect("an account stays in its bucket during a call"))
            }
            (Slot::Waived, _) => None,
            (Slot::New | Slot::Overflow, Commit::Nothing) => self.shared_mut(charge.key.policy),
            (Slot::Overflow, Commit::Spend) => Some(self.shared_or_new(charge.key.policy)),
            (Slot::New, Commit::Spend) => {
                let shared = self.shared_mut(charge.key.policy);
                let account = shared.map(|shared| shared.condensed(charge.key.to_text(), now));
                let account = account.unwrap_or_else(|| AccountEntry::new(charge.key.to_text()));
                Some(self.insert(charge.hash, account))
            }
        }
    }

    /// The account of a key, or else the shared one that it spends from.
    pub(super) fn own_or_shared(
        &mut self,
        hash: u64,
        key: AccountKey<'_>,
    ) -> Option<&mut AccountEntry> {
        match self.find(hash, key) {
            Some(i) => self.accounts.get_bucket_mut(i),
            None => self.shared_mut(key.policy),
        }
    }

    pub(super) fn own(&mut self, hash: u64, key: AccountKey<'_>) -> Option<&mut AccountEntry> {
        self.accounts.find_mut(hash, |account| account.is_for(key))
    }

    pub(super) fn remove(&mut self, hash: u64, key: AccountKey<'_>) {
        if let Ok(entry) = self.accounts.find_entry(hash, |account| account.is_for(key)) {
            entry.remove();
        }
    }

    /// Adds a saved history to an account, which is made if need be.
    pub(super) fn restore(&mut self, hash: u64, saved: AccountEntry, now: Timestamp) {
        match self.own(hash, AccountKey::parse(&saved.key)) {
            Some(own) => own.absorb(&saved, now),
            None => _ = self.insert(hash, saved),
        }
    }

    /// Looks through all accounts, before others with entries up to `now` are added.
    pub(super) fn sweep_all(&mut self, now: Timestamp) {
        self.last_now = self.last_now.max(now);
        self.sweep(now, self.accounts.num_buckets());
    }

    #[inline]
    fn find(&self, hash: u64, key: AccountKey<'_>) -> Option<usize> {
        self.accounts.find_bucket_index(hash, |account| account.is_for(key))
    }

    fn shared_mut(&mut self, policy: &str) -> Option<&mut AccountEntry> {
        self.overflow.iter_mut().find(|shared| shared.key == policy)
    }

    /// The shared account of a policy, made if need be.
    pub(super) fn shared_or_new(&mut self, policy: &str) -> &mut AccountEntry {
        let i = self.overflow.iter().position(|shared| shared.key == policy);
        let i = i.unwrap_or_else(|| {
            self.overflow.push(AccountEntry::new(policy.into()));
            self.overflow.len() - 1
        });
        &mut self.overflow[i]
    }

    fn insert(&mut self, hash: u64, account: AccountEntry) -> &mut AccountEntry {
        // The sweep itself waits for the next call: it may move accounts.
        self.calls = self.calls.saturating_add(CALLS_PER_NEW);
        let hasher = |account: &AccountEntry| account.hash(&self.hasher);
        self.accounts.insert_unique(hash, account, hasher).into_mut()
    }

    #[cold]
    fn sweep(&mut self, now: Timestamp, most: usize) {
        self.calls = 0;
        let before = self.accounts.len();
        let buckets = self.accounts.num_buckets();
        for _ in 0..most.min(buckets) {
            self.cursor = if self.cursor + 1 < buckets { self.cursor + 1 } else { 0 };
            if let Ok(entry) = self.accounts.get_bucket_entry(self.cursor)
                && entry.get().is_over(now)
            {
                entry.remove();
            }
        }
        self.overflow.retain(|shared| !shared.is_over(now));
        self.swept += (before - self.accounts.len()) as u64;
        // Shrinks what a flood has left behind.
        if self.accounts.len() < self.accounts.capacity() / 4 {
            let wanted = self.accounts.len() * 2;
            self.accounts.shrink_to(wanted, |account| account.hash(&self.hasher));
        }
    }
}
