//! Local ledgers, used while Redis is unavailable.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use slidegate::limit::{
    Charge, Charges, Difference, OnDenial, Quotas, Receipt, Settlement, Spent, Standings,
};
use slidegate::{Clock, MemoryStore, OnStoreError, Quota, Standing, StoreError};

use crate::owned::{OwnedCharge, charges};
use crate::script::Mode;
use crate::store::written_by;

/// The spends of this process, whether Redis or the local ledgers decided them.
pub(crate) struct LocalLedgers {
    pub(crate) store: MemoryStore,
    share: LocalShare,
}

impl LocalLedgers {
    pub(crate) fn new(capacity: usize, share: LocalShare, clock: Arc<dyn Clock>) -> Self {
        Self { store: MemoryStore::builder().capacity(capacity).clock(clock).build(), share }
    }

    /// Records charges that Redis has written. It has admitted them even if they do not fit here: the
    /// clocks differ by the network latency.
    pub(crate) fn learn<'a>(&self, written: impl Iterator<Item = Charge<'a>>) {
        for charge in written.filter(is_local) {
            if let Err(error) = self.store.spend_now(&charge.record(charge.cost()).into()) {
                tracing::debug!(%error, "cannot record an admission in the local ledgers");
            }
        }
    }

    /// Settles what Redis has settled. Of units to be refunded, the newest stand in for those of Redis,
    /// whose clock is another.
    pub(crate) fn settled_elsewhere(&self, charges: &Charges<'_>, settlement: Settlement<'_>) {
        for charge in charges.as_slice() {
            match settlement.difference(charge) {
                Difference::None => {}
                Difference::Refund(units) => {
                    let unused = charge.with_cost(units).expect("less than the charge has cost");
                    self.store.refund_now(&unused.into(), Spent::Newest);
                }
                Difference::Record(units) => {
                    self.learn(std::iter::once(charge.record(units)));
                }
            }
        }
    }

    /// Decides with the local ledgers, within the local share. Returns the receipt and the charges
    /// that were spent locally.
    pub(crate) fn decide<'a>(
        &self,
        mode: Mode,
        asked: &Charges<'a>,
    ) -> Result<(Receipt, Charges<'a>), StoreError> {
        let counted = charges(asked.as_slice().iter().filter(|charge| is_local(charge)).copied());
        let share = |charge| {
            let mut share = OwnedCharge::from(charge);
            share.quotas = self.share.of(charge);
            share
        };
        let cut: Vec<OwnedCharge> = counted.as_slice().iter().map(share).collect();
        let shares = charges(cut.iter().map(OwnedCharge::as_charge));
        let receipt = match mode {
            Mode::Peek => self.store.peek_now(&shares)?,
            Mode::Spend | Mode::Deny => self.store.spend_now(&shares)?,
        };
        let spent = receipt.spent || counted.is_empty();
        let spends = match mode {
            Mode::Peek => Charges::new(),
            Mode::Spend | Mode::Deny => charges(written_by(counted.as_slice(), &receipt)),
        };
        let standings = standings(asked, &receipt);
        Ok((Receipt { spent, degraded: true, standings, ..receipt }, spends))
    }
}

/// What is already used is counted whatever the policy says.
fn is_local(charge: &Charge<'_>) -> bool {
    charge.store_error_action() != OnStoreError::Allow || charge.on_denial() == OnDenial::Record
}

/// The standings of all charges: local ones where counted, untouched ones elsewhere. They show the
/// whole quota, not the share.
fn standings(asked: &Charges<'_>, receipt: &Receipt) -> Standings {
    let mut found = receipt.standings.iter();
    let quotas = asked
        .as_slice()
        .iter()
        .flat_map(|charge| charge.quotas().as_slice().iter().map(move |quota| (charge, quota)));
    quotas
        .map(|(charge, quota)| match is_local(charge).then(|| found.next()).flatten() {
            Some(standing) => standing.with_quota(*quota),
            None => Standing::untouched(*quota),
        })
        .collect()
}

/// The part of each quota that one process admits while Redis is unavailable: one of a number of
/// equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalShare(NonZeroU32);

impl LocalShare {
    /// The whole quota.
    pub const WHOLE: Self = Self(NonZeroU32::MIN);

    /// One of `parts` equal parts.
    pub const fn one_of(parts: NonZeroU32) -> Self {
        Self(parts)
    }

    /// The charge's quotas reduced to the share, but not below the cost of one request, which would
    /// never fit.
    fn of(self, charge: &Charge<'_>) -> Quotas {
        let cut = |quota: &Quota| {
            let cost = charge.cost_in(*quota);
            let units = NonZeroU32::new(quota.units().get() / self.0).map_or(cost, |u| u.max(cost));
            Quota::new(units, quota.window()).expect("a window that is in use")
        };
        let quotas = charge.quotas().as_slice().iter().map(cut);
        Quotas::new(quotas).expect("windows that stand together already")
    }
}

impl fmt::Display for LocalShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.0)
    }
}

impl FromStr for LocalShare {
    type Err = LocalShareError;

    fn from_str(text: &str) -> Result<Self, LocalShareError> {
        let parts = text.strip_prefix("1/").and_then(|parts| parts.parse().ok());
        parts.map(Self).ok_or_else(|| LocalShareError(text.to_owned()))
    }
}

/// Why a text is not a valid local share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid share {0:?}: expected a fraction such as 1/4")]
pub struct LocalShareError(String);

#[cfg(test)]
mod tests {
    use slidegate::{Identity, Name};

    use super::*;

    #[test]
    fn a_share_is_rounded_down_but_a_request_can_be_paid() {
        let (policy, identity): (Name, _) = ("api".parse().unwrap(), Identity::everyone());
        let quotas = Quotas::new([Quota::per_second(2), Quota::per_minute(10)]).unwrap();
        let charge = Charge::new(&policy, &identity, &quotas);
        let share: LocalShare = "1/4".parse().unwrap();
        let units = |charge: &Charge<'_>| {
            share.of(charge).as_slice().iter().map(|q| q.units().get()).collect::<Vec<_>>()
        };
        assert_eq!(units(&charge), [1, 2]);
        assert_eq!(units(&charge.with_cost(NonZeroU32::new(2).unwrap()).unwrap()), [2, 2]);
        for text in ["", "1/0", "2/4", "0.5", "1/-1"] {
            assert_eq!(text.parse::<LocalShare>(), Err(LocalShareError(text.to_owned())));
        }
    }
}
