//! Requests whose charges a cluster keeps in several slots.

use std::collections::BTreeMap;

use slidegate::Timestamp;
use slidegate::limit::{Charge, OnDenial, Receipt, Standings};

use super::{RedisStore, spent_by};
use crate::error::RedisStoreError;
use crate::owned::OwnedCharge;
use crate::script::Mode;

/// The parts of a request, each in one slot of the cluster, in an order that is the same for all
/// requests.
pub(crate) struct CrossSlotSpend(pub(crate) Vec<SlotPart>);

#[derive(Default)]
pub(crate) struct SlotPart {
    pub(crate) slot: u16,
    charges: Vec<OwnedCharge>,
    /// Which charges of the request they are.
    places: Vec<usize>,
}

impl CrossSlotSpend {
    /// The keys are those of the charges' ledgers, in order; all ledgers of a charge are in one slot.
    pub(crate) fn new(
        charges: &[Charge<'_>],
        keys: &[String],
        slot_of: impl Fn(&str) -> u16,
    ) -> Self {
        let mut parts: BTreeMap<u16, SlotPart> = BTreeMap::new();
        let mut keys = keys.iter();
        for (place, charge) in charges.iter().enumerate() {
            let own = keys.by_ref().take(charge.quotas().as_slice().len());
            let slot = own.last().map_or(0, |key| slot_of(key));
            let part = parts.entry(slot).or_default();
            part.slot = slot;
            part.charges.push(charge.into());
            part.places.push(place);
        }
        Self(parts.into_values().collect())
    }

    /// Decides the parts one after the other. If one denies, those before it are taken back.
    pub(crate) async fn decide(
        &self,
        store: &RedisStore,
        mode: Mode,
    ) -> Result<Vec<Receipt>, RedisStoreError> {
        let mut receipts = Vec::with_capacity(self.0.len());
        let mut mode = mode;
        for part in &self.0 {
            let receipt = match store.decide_at_once(mode, &part.charges()).await {
                Ok(receipt) => receipt,
                Err(error) => {
                    self.take_back(store, &receipts).await;
                    return Err(error);
                }
            };
            if mode == Mode::Spend && !receipt.spent {
                self.undo(store, &mut receipts).await?;
                mode = Mode::Deny;
            }
            receipts.push(receipt);
        }
        Ok(receipts)
    }

    /// Takes back what these receipts say was spent, whole.
    pub(crate) async fn take_back(&self, store: &RedisStore, receipts: &[Receipt]) {
        for (part, receipt) in self.0.iter().zip(receipts) {
            store.take_back(&part.charges(), receipt).await;
        }
    }

    /// Takes back what a denied request has spent so far, but for charges that it leaves, and sees
    /// how things stand now. A part that fails keeps none of the others from it.
    async fn undo(
        &self,
        store: &RedisStore,
        receipts: &mut [Receipt],
    ) -> Result<(), RedisStoreError> {
        let mut outcome = Ok(());
        for (part, receipt) in self.0.iter().zip(receipts) {
            outcome = part.undo(store, receipt).await.and(outcome);
        }
        outcome
    }

    /// One receipt of all parts. Each server has its own clock; the receipt has the first one's
    /// time, and that of each charge.
    pub(crate) fn whole(&self, receipts: &[Receipt]) -> Receipt {
        let mut standings: Vec<(usize, Timestamp, Standings)> = Vec::new();
        for (part, receipt) in self.0.iter().zip(receipts) {
            let mut rest = receipt.standings.iter();
            for (charge, place) in part.charges().iter().zip(&part.places) {
                let own = rest.by_ref().take(charge.quotas().as_slice().len());
                standings.push((*place, receipt.at, own.copied().collect()));
            }
        }
        standings.sort_by_key(|(place, ..)| *place);
        Receipt {
            spent: receipts.iter().all(|receipt| receipt.spent),
            at: receipts.first().map(|receipt| receipt.at).unwrap_or_default(),
            times: standings.iter().map(|(_, at, _)| *at).collect(),
            degraded: false,
            standings: standings.into_iter().flat_map(|(.., own)| own).collect(),
        }
    }
}

impl SlotPart {
    pub(crate) fn charges(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(OwnedCharge::as_charge).collect()
    }

    async fn undo(&self, store: &RedisStore, receipt: &mut Receipt) -> Result<(), RedisStoreError> {
        let charges = self.charges();
        let forgets = |charge: &Charge<'_>| charge.on_denial() == OnDenial::Forget;
        let forgotten: Vec<Charge<'_>> = spent_by(&charges, receipt).filter(forgets).collect();
        store.refund_at_once(&forgotten, Some(receipt.at)).await?;
        let mut now = store.decide_at_once(Mode::Peek, &charges).await?;
        // What this part had room for, it had room for, whatever counting the denial has left.
        for (standing, before) in now.standings.iter_mut().zip(&receipt.standings) {
            if !before.is_violated() {
                *standing = standing.with_room();
            }
        }
        *receipt = Receipt { spent: false, ..now };
        Ok(())
    }
}

/// The slot of a key: its hash, or that of the text in its first braces.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        // From CLUSTER KEYSLOT.
        for (key, slot) in
            [("foo", 12182), ("{user1000}.following", 3443), ("{user1000}.followers", 3443)]
        {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!(slot_of("foo{}{bar}"), 8363, "empty braces are no braces");
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{{bar}"));
    }
}
