//! What the ledgers of one account hold at one instant.

use crate::limit::{Quota, Timestamp};

/// The ledgers of an account, as [`Store::read`](crate::Store::read) finds them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountReading {
    /// The instant of the call, on the store's clock.
    pub at: Timestamp,
    /// Whether the account could not be read, and these are the spends that stand in for it: those
    /// that this process knows of, or those of all who share an account of a full store.
    pub degraded: bool,
    /// One for each quota of the charge, in order.
    pub ledgers: Vec<LedgerReading>,
}

/// What is spent in the window of one quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerReading {
    /// The quota.
    pub quota: Quota,
    /// Oldest first, each with a later stamp than the one before; at most 4097.
    pub entries: Vec<LedgerEntry>,
}

/// Units that leave the window together, when `now ≥ stamp + window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The first [tick](Quota::tick) at or after the instant at which they were spent.
    pub stamp: Timestamp,
    /// How many.
    pub units: u32,
}

impl AccountReading {
    /// A reading of ledgers in which nothing is spent.
    pub fn untouched(at: Timestamp, quotas: &[Quota]) -> Self {
        let untouched = |quota: &Quota| LedgerReading { quota: *quota, entries: Vec::new() };
        Self { at, degraded: false, ledgers: quotas.iter().map(untouched).collect() }
    }
}

impl LedgerReading {
    /// The units of all entries. They may be more than the quota's, if it had more before.
    pub fn spent(&self) -> u32 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.units))
    }
}
