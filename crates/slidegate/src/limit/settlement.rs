//! What becomes of units that were held until their true cost was known.

use std::cmp::Ordering;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::limit::{Charge, Timestamp};

/// The true cost of charges that were spent before it was known.
///
/// Units that were held and not used are refunded at the instant at which they were held; units above
/// the hold are [recorded](Charge::record) now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement<'a> {
    /// When the charges were spent, by [`Receipt::at`](crate::limit::Receipt::at).
    pub at: Timestamp,
    /// How many units each of them turned out to cost. Zero is a refund.
    pub units: u32,
    /// Settles under this name at most once. Without it, the caller settles once.
    pub once: Option<Once<'a>>,
}

/// A name under which an account is settled at most once, by whichever process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Once<'a> {
    /// The name, which no other settlement has.
    pub id: &'a str,
    /// How long the store has to remember it. Callers do not present the name later.
    pub within: Duration,
}

/// Whether a settlement changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It was settled by this call.
    Now,
    /// It had been settled under this name before, and nothing was changed.
    Before,
}

/// What a settlement does to one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// The hold was right.
    None,
    /// These units were held and not used.
    Refund(NonZeroU32),
    /// These units were used and not held.
    Record(NonZeroU32),
}

impl Settlement<'_> {
    /// The difference between the true cost and what a charge held.
    pub fn difference(&self, charge: &Charge<'_>) -> Difference {
        let held = charge.cost().get();
        let of = |units: u32| NonZeroU32::new(units).expect("they differ");
        match self.units.cmp(&held) {
            Ordering::Equal => Difference::None,
            Ordering::Less => Difference::Refund(of(held - self.units)),
            Ordering::Greater => Difference::Record(of(self.units - held)),
        }
    }
}

impl Settled {
    /// What several calls have done as one.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::Now { self } else { other }
    }
}
