//! What a decision has spent, until it is settled.

use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::decision::{Decision, PolicyStanding};
use crate::limit::{Name, Quotas, Standing, Timestamp};
use crate::policy::{Identity, ResponseRule};

/// The charges that a decision has spent, each of which can be settled once:
/// [`Gate::settle`](crate::Gate::settle).
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

impl HeldCharge {
    fn of(standing: &PolicyStanding) -> Option<Self> {
        let spent = standing.spent.filter(|_| !standing.is_violated())?;
        Some(Self {
            policy: standing.policy.clone(),
            identity: standing.identity,
            quotas: Quotas::new(standing.standings.iter().map(Standing::quota)).ok()?,
            caller_quotas: standing.caller_quotas,
            units: standing.cost,
            spent,
            response: standing.response.clone(),
        })
    }
}

impl Decision {
    /// What the decision has spent. It is empty if the request was refused or exempt.
    pub fn hold(&self) -> Hold {
        Hold { charges: self.policies().iter().filter_map(HeldCharge::of).collect() }
    }

    /// What the decision has spent under policies that look at the response. None if there is no such
    /// policy.
    pub fn response_hold(&self) -> Option<Hold> {
        let mut policies = self.policies().iter();
        if policies.all(|policy| policy.response.is_none()) {
            return None;
        }
        let mut hold = self.hold();
        hold.retain(|charge| charge.response.is_some());
        Some(hold).filter(|hold| !hold.is_empty())
    }

    /// Notes that a charge turned out to cost `units`, so that standings show what is left then.
    ///
    /// It is what follows from the decision alone. What others have spent since is not known here.
    pub fn note_cost(&mut self, charge: &HeldCharge, units: u32) {
        let is_own = |own: &&mut PolicyStanding| {
            own.policy == charge.policy && own.identity == charge.identity
        };
        let Some(own) = self.policies.iter_mut().find(is_own) else { return };
        let held = charge.units.get();
        for standing in &mut own.standings {
            let all = standing.quota().units().get();
            let left = standing.remaining().saturating_add(held).saturating_sub(units).min(all);
            let reset_after = if left == all { Default::default() } else { standing.reset_after() };
            *standing = standing.with_remaining(left).with_reset_after(reset_after);
        }
    }
}
