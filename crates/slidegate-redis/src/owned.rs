//! Owned charges, which outlive the call that passed them.

use std::num::NonZeroU32;
use std::time::Duration;

use slidegate::limit::{Charge, Charges, OnDenial, Quotas};
use slidegate::{Identity, Name, OnStoreError};

/// A charge that owns its data.
#[derive(Debug, Clone)]
pub(crate) struct OwnedCharge {
    policy: Name,
    identity: Identity,
    pub(crate) quotas: Quotas,
    cost: NonZeroU32,
    on_denial: OnDenial,
    shadow: bool,
    on_store_error: OnStoreError,
    lease: Option<Duration>,
}

impl OwnedCharge {
    pub(crate) fn as_charge(&self) -> Charge<'_> {
        let charge = Charge::new(&self.policy, &self.identity, &self.quotas);
        let payable = || charge.with_cost(self.cost).expect("the cost of a charge can be paid");
        let charge = match self.on_denial {
            OnDenial::Forget => payable(),
            OnDenial::Count => payable().count_denied(true),
            OnDenial::Record => charge.record(self.cost),
        };
        charge.shadow(self.shadow).on_store_error(self.on_store_error).leased(self.lease)
    }
}

impl From<&Charge<'_>> for OwnedCharge {
    fn from(charge: &Charge<'_>) -> Self {
        Self {
            policy: charge.policy().clone(),
            identity: *charge.identity(),
            quotas: charge.quotas().clone(),
            cost: charge.cost(),
            on_denial: charge.on_denial(),
            shadow: charge.is_shadow(),
            on_store_error: charge.store_error_action(),
            lease: charge.lease(),
        }
    }
}

/// Charges to accounts that are all different.
pub(crate) fn charges<'a>(list: impl IntoIterator<Item = Charge<'a>>) -> Charges<'a> {
    let mut charges = Charges::new();
    for charge in list {
        charges.push(charge).expect("they were charges to different accounts before");
    }
    charges
}
