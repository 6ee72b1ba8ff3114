//! What the ledgers of one account hold at one instant.

use std::num::NonZeroU32;

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

    /// How many units are left.
    pub fn remaining(&self) -> u32 {
        self.quota.units().get().saturating_sub(self.spent())
    }

    /// The instant from which so many units more fit if nothing else is spent: `now` if they do
    /// already. They do not fit a tick earlier. None if the quota has fewer units.
    ///
    /// ```
    /// use slidegate::limit::{LedgerEntry, LedgerReading};
    /// use slidegate::{Quota, Timestamp};
    ///
    /// let at = Timestamp::from_millis;
    /// let spent = LedgerEntry { stamp: at(10_000), units: 3 };
    /// let ledger = LedgerReading { quota: Quota::per_minute(5), entries: vec![spent] };
    /// let fits_at = |units: u32| ledger.fits_at(units.try_into().unwrap(), at(12_000));
    /// assert_eq!(fits_at(2), Some(at(12_000)));
    /// assert_eq!(fits_at(3), Some(at(70_000)));
    /// assert_eq!(fits_at(6), None);
    /// ```
    pub fn fits_at(&self, units: NonZeroU32, now: Timestamp) -> Option<Timestamp> {
        let may_stay = self.quota.units().get().checked_sub(units.get())?;
        let mut must_leave = self.spent().saturating_sub(may_stay);
        let mut at = now;
        for entry in &self.entries {
            if must_leave == 0 {
                break;
            }
            must_leave = must_leave.saturating_sub(entry.units);
            at = now.max(entry.stamp + self.quota.window());
        }
        Some(at)
    }

    /// When the next unit is free again. None if all are.
    pub fn next_unit_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.fits_at(NonZeroU32::MIN.saturating_add(self.remaining()), now)
    }

    /// How many units were spent in each of so many equal parts of the window, oldest first.
    pub fn density(&self, now: Timestamp, parts: usize) -> Vec<u32> {
        let (window_ns, mut counts) = (self.quota.window().as_nanos(), vec![0_u32; parts]);
        for entry in &self.entries {
            let age_ns = now.saturating_since(entry.stamp).as_nanos();
            let part = window_ns.saturating_sub(age_ns) * parts as u128 / window_ns;
            // What is stamped now, or with the tick that ends next, is in the last one.
            let last = parts.saturating_sub(1);
            if let Some(count) = counts.get_mut((part as usize).min(last)) {
                *count = count.saturating_add(entry.units);
            }
        }
        counts
    }
}
