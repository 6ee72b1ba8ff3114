//! What a decision has spent, until it is settled.

use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::{Name, Quotas, Timestamp};
use crate::policy::{Identity, ResponseRule};

/// The charges that a decision has spent, each of which can be settled once:
/// [`Gate::settle`](crate::Gate::settle).
///
/// ```
/// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy};
///
/// let tokens = Policy::new("tokens").quota("100/min").cost(10);
/// let gate = Gate::new(Policies::builder().policy(tokens).build()?, MemoryStore::new());
/// let facts = Facts::new(&http::Method::POST, "/chat").client("203.0.113.7".parse()?);
///
/// let hold = gate.decide_now(&facts)?.hold();
/// assert_eq!(hold.charges[0].units.get(), 10);
/// gate.settle_now(&hold, |_| 3)?; // it has cost three
///
/// let now = gate.peek_now(&facts)?;
/// let (_, standing) = now.tightest().expect("a policy took part");
/// assert_eq!(standing.remaining(), 97);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hold {
    /// One for each account.
    pub charges: SmallVec<[HeldCharge; 1]>,
}

/// Units of one account that a decision has spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCharge {
    /// The policy's name.
    pub policy: Name,
    /// Whose account it is.
    pub identity: Identity,
    /// The quotas that it was decided by.
    pub quotas: Quotas,
    /// Whether they came with the [charge](crate::NamedCharge::quotas).
    pub caller_quotas: bool,
    /// How many units are held.
    pub units: NonZeroU32,
    /// In which store they were spent, and when.
    pub spent: SpentIn,
    /// What the response changes about them.
    pub response: Option<Arc<ResponseRule>>,
}

/// Where a charge was spent, and when, by that store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpentIn {
    /// The gate's own store.
    Local(Timestamp),
    /// The store that the gate was given.
    Shared(Timestamp),
}

impl Hold {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Keeps only the charges that `is_kept` picks.
    pub fn retain(&mut self, is_kept: impl FnMut(&mut HeldCharge) -> bool) {
        self.charges.retain(is_kept);
    }
}
