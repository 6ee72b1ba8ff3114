//! What a memory store keeps of one account.

use compact_str::CompactString;

use super::ledgers::Ledgers;
use crate::limit::clock::Timestamp;
use crate::limit::ledger::Ledger;
use crate::limit::name::Name;
use crate::limit::quota::Quota;

/// The ledgers of one account, one for each window.
///
/// One cache line: in a large store, waiting for memory is most of the work.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Book {
    pub(super) policy: Name,
    pub(super) identity: CompactString,
    pub(super) ledgers: Ledgers,
}

const _: () = assert!(size_of::<Book>() == 64);

impl Book {
    pub(super) fn new(policy: &Name, identity: &str) -> Self {
        Self { policy: policy.clone(), identity: identity.into(), ledgers: Ledgers::default() }
    }

    #[inline]
    pub(super) fn is_for(&self, policy: &Name, identity: &[u8]) -> bool {
        self.identity.as_bytes() == identity && self.policy == *policy
    }

    #[inline]
    pub(super) fn settle(&mut self, now: Timestamp) {
        for ledger in self.ledgers.as_mut_slice() {
            ledger.settle(now);
        }
    }

    #[inline]
    pub(super) fn ledger(&self, quota: Quota) -> Option<&Ledger> {
        self.ledgers.as_slice().iter().find(|ledger| ledger.window_ms() == quota.window_ms())
    }

    pub(super) fn ledger_mut(&mut self, quota: Quota) -> Option<&mut Ledger> {
        let window_ms = quota.window_ms();
        self.ledgers.as_mut_slice().iter_mut().find(|ledger| ledger.window_ms() == window_ms)
    }

    /// The ledger for the quota's window, begun if need be.
    #[inline]
    pub(super) fn ledger_or_new(&mut self, quota: Quota) -> &mut Ledger {
        let mut windows = self.ledgers.as_slice().iter().map(Ledger::window_ms);
        let i = match windows.position(|window_ms| window_ms == quota.window_ms()) {
            Some(i) => i,
            None => self.ledgers.push(Ledger::new(quota)),
        };
        &mut self.ledgers.as_mut_slice()[i]
    }

    /// Whether the account has nothing left in any window.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.ledgers.as_slice().iter().all(|ledger| ledger.is_over(now))
    }

    /// The same standing in as few entries as can be.
    pub(super) fn condensed(&self) -> Ledgers {
        self.ledgers.as_slice().iter().map(Ledger::condensed).collect()
    }

    /// Adds another history of the same account to this one.
    pub(super) fn absorb(&mut self, ledgers: impl IntoIterator<Item = Ledger>) {
        for ledger in ledgers {
            let mut own = self.ledgers.as_mut_slice().iter_mut();
            match own.find(|own| own.window_ms() == ledger.window_ms()) {
                Some(own) => *own = own.merged(&ledger),
                None => {
                    self.ledgers.push(ledger);
                }
            }
        }
    }
}
