//! What a memory store keeps of one account.

use compact_str::CompactString;
use foldhash::fast::RandomState;

use super::Commit;
use super::planned::AccountKey;
use crate::limit::{Ledger, Quota, Standing, Timestamp};

/// The ledgers of one account, one for each window.
///
/// One cache line: in a large store, waiting for memory is most of the work.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct AccountEntry {
    /// See [`AccountKey::to_text`]; of a shared account, the policy's name.
    pub(super) key: CompactString,
    ledgers: Ledgers,
}

const _: () = assert!(size_of::<AccountEntry>() == 64);

/// A list of ledgers. A single one, as nearly every account has, needs no allocation.
#[derive(Debug)]
enum Ledgers {
    One(Ledger),
    /// None, or several.
    List(Vec<Ledger>),
}

/// Windows that policies have had within the longest of them. A policy has a few; only changes of
/// policy, over and over, add up to more, and then the one that was begun first is forgotten.
pub(super) const MAX_LEDGERS: usize = 64;

impl AccountEntry {
    pub(super) fn new(key: CompactString) -> Self {
        Self { key, ledgers: Ledgers::List(Vec::new()) }
    }

    #[inline]
    pub(super) fn ledgers(&self) -> &[Ledger] {
        match &self.ledgers {
            Ledgers::One(ledger) => std::slice::from_ref(ledger),
            Ledgers::List(ledgers) => ledgers,
        }
    }

    #[inline]
    fn ledgers_mut(&mut self) -> &mut [Ledger] {
        match &mut self.ledgers {
            Ledgers::One(ledger) => std::slice::from_mut(ledger),
            Ledgers::List(ledgers) => ledgers,
        }
    }

    #[inline]
    pub(super) fn is_for(&self, key: AccountKey<'_>) -> bool {
        key.is_text(&self.key)
    }

    #[inline]
    pub(super) fn hash(&self, state: &RandomState) -> u64 {
        AccountKey::parse(&self.key).hash(state)
    }

    /// Forgets what has left its window.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.ledgers_mut().iter_mut().for_each(|ledger| ledger.expire(now));
    }

    #[inline]
    pub(super) fn ledger_mut(&mut self, quota: Quota) -> Option<&mut Ledger> {
        let window_ms = quota.window_ms();
        self.ledgers_mut().iter_mut().find(|ledger| ledger.window.ms() == window_ms)
    }

    /// The ledger for the quota's window, begun if need be.
    #[inline]
    pub(super) fn ledger_or_new(&mut self, quota: Quota, now: Timestamp) -> &mut Ledger {
        let mut ledgers = self.ledgers().iter();
        let i = ledgers.position(|ledger| ledger.window.ms() == quota.window_ms());
        let i = i.unwrap_or_else(|| {
            self.expire(now);
            self.push(Ledger::new(quota))
        });
        &mut self.ledgers_mut()[i]
    }

    /// Spends from one ledger, or tells whether that would be possible, and where it stands.
    #[inline]
    pub(super) fn attempt(
        &mut self,
        quota: Quota,
        cost: u32,
        commit: Commit,
        now: Timestamp,
    ) -> (bool, Standing) {
        let ledger = self.ledger_or_new(quota, now);
        ledger.expire_in_order(now);
        if !ledger.admits(quota, cost) {
            return (false, ledger.standing_for(quota, cost, now));
        }
        if commit == Commit::Spend {
            ledger.spend(quota, cost, now);
        }
        (true, ledger.standing(quota, now))
    }

    /// Whether the account has nothing left in any window.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.ledgers().iter().all(|ledger| ledger.is_over(now))
    }

    /// An account of this key with the same standing, in as few entries as can be.
    pub(super) fn condensed(&mut self, key: CompactString, now: Timestamp) -> Self {
        self.expire(now);
        let mut account = Self::new(key);
        self.ledgers().iter().for_each(|ledger| account.add(ledger.condensed()));
        account
    }

    /// Adds another history of the same account to this one.
    pub(super) fn absorb(&mut self, other: &Self, now: Timestamp) {
        // What has left would count towards the entries that a ledger may have.
        self.expire(now);
        other.ledgers().iter().for_each(|ledger| self.add(ledger.clone()));
    }

    /// Adds a ledger to the one of the same window, if there is one.
    pub(super) fn add(&mut self, ledger: Ledger) {
        let mut own = self.ledgers_mut().iter_mut();
        match own.find(|own| own.window.ms() == ledger.window.ms()) {
            Some(own) => *own = own.merged(&ledger),
            None => _ = self.push(ledger),
        }
    }

    /// Adds a ledger in place of those that are empty; tells where it is.
    #[cold]
    fn push(&mut self, ledger: Ledger) -> usize {
        let mut kept = match std::mem::replace(&mut self.ledgers, Ledgers::List(Vec::new())) {
            Ledgers::One(ledger) => vec![ledger],
            Ledgers::List(ledgers) => ledgers,
        };
        kept.retain(|ledger| !ledger.is_empty());
        if kept.len() == MAX_LEDGERS {
            kept.remove(0);
        }
        let i = kept.len();
        self.ledgers = match i {
            0 => Ledgers::One(ledger),
            _ => {
                kept.push(ledger);
                Ledgers::List(kept)
            }
        };
        i
    }
}
