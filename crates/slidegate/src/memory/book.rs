//! What a memory store keeps of one account.

use compact_str::CompactString;
use smallvec::SmallVec;

use crate::clock::Timestamp;
use crate::ledger::Ledger;
use crate::name::Name;
use crate::quota::Quota;

/// The ledgers of one account, one for each window.
///
/// Aligned to the two cache lines that processors fetch together: in a large store, finding a book
/// is most of the work.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Book {
    pub(super) policy: Name,
    pub(super) identity: CompactString,
    pub(super) ledgers: SmallVec<[Ledger; 1]>,
}

impl Book {
    pub(super) fn new(policy: &Name, identity: &str) -> Self {
        Self { policy: policy.clone(), identity: identity.into(), ledgers: SmallVec::new() }
    }

    pub(super) fn is_for(&self, policy: &Name, identity: &[u8]) -> bool {
        self.identity.as_bytes() == identity && self.policy == *policy
    }

    #[inline]
    pub(super) fn settle(&mut self, now: Timestamp) {
        for ledger in &mut self.ledgers {
            ledger.settle(now);
        }
    }

    pub(super) fn ledger(&self, quota: Quota) -> Option<&Ledger> {
        self.ledgers.iter().find(|ledger| ledger.window_ms() == quota.window_ms())
    }

    pub(super) fn ledger_mut(&mut self, quota: Quota) -> Option<&mut Ledger> {
        self.ledgers.iter_mut().find(|ledger| ledger.window_ms() == quota.window_ms())
    }

    /// The ledger for the quota's window, begun if need be.
    pub(super) fn ledger_or_new(&mut self, quota: Quota) -> &mut Ledger {
        let found = self.ledgers.iter().position(|l| l.window_ms() == quota.window_ms());
        let i = found.unwrap_or_else(|| {
            // Windows that policies no longer have must not pile up.
            self.ledgers.retain(|ledger| !ledger.is_empty());
            self.ledgers.push(Ledger::new(quota));
            self.ledgers.len() - 1
        });
        &mut self.ledgers[i]
    }

    /// Whether the account has nothing left in any window.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.ledgers.iter().all(|ledger| ledger.is_over(now))
    }

    /// Adds another history of the same account to this one.
    pub(super) fn absorb(&mut self, ledgers: impl IntoIterator<Item = Ledger>) {
        for ledger in ledgers {
            match self.ledgers.iter_mut().find(|own| own.window_ms() == ledger.window_ms()) {
                Some(own) => *own = own.merged(&ledger),
                None => self.ledgers.push(ledger),
            }
        }
    }
}
