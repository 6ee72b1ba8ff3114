//! Charges of one request that a cluster keeps in several places.

use std::collections::BTreeMap;

use slidegate::Timestamp;
use slidegate::limit::{Charge, Receipt, Standings};

use crate::error::RedisStoreError;
use crate::owned::OwnedCharge;
use crate::script::Mode;
use crate::slot::slot_of;
use crate::store::RedisStore;

/// The parts of a request, each in one place of the cluster, in an order that is the same for all
/// requests.
pub(crate) struct CrossSlotSpend {
    parts: Vec<SlotPart>,
}

struct SlotPart {
    slot: u16,
    charges: Vec<OwnedCharge>,
    /// Which charges of the request they are.
    places: Vec<usize>,
}

/// Which charges are in which slot; all ledgers of a charge are in one.
pub(crate) fn by_slot(charges: &[Charge<'_>], keys: &[String]) -> BTreeMap<u16, Vec<usize>> {
    let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    let mut keys = keys.iter();
    for (place, charge) in charges.iter().enumerate() {
        let own = keys.by_ref().take(charge.quotas().as_slice().len());
        let slot = own.last().map_or(0, |key| slot_of(key));
        slots.entry(slot).or_default().push(place);
    }
    slots
}

impl CrossSlotSpend {
    pub(crate) fn new(charges: &[Charge<'_>], keys: &[String]) -> Self {
        let part = |(slot, places): (u16, Vec<usize>)| SlotPart {
            slot,
            charges: places.iter().map(|place| OwnedCharge::from(&charges[*place])).collect(),
            places,
        };
        Self { parts: by_slot(charges, keys).into_iter().map(part).collect() }
    }

    /// Decides the parts one after the other. If one denies, those before it are taken back.
    pub(crate) async fn decide(
        &self,
        store: &RedisStore,
        mode: Mode,
    ) -> Result<Vec<Receipt>, RedisStoreError> {
        let mut receipts = Vec::with_capacity(self.parts.len());
        let mut mode = mode;
        for part in &self.parts {
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
        for (part, receipt) in self.parts.iter().zip(receipts) {
            store.take_back(&part.charges(), receipt).await;
        }
    }

    /// Takes back what a denied request has spent so far, but for charges that count it, and sees
    /// how things stand now. A part that fails keeps none of the others from it.
    async fn undo(
        &self,
        store: &RedisStore,
        receipts: &mut [Receipt],
    ) -> Result<(), RedisStoreError> {
        let mut outcome = Ok(());
        for (part, receipt) in self.parts.iter().zip(receipts) {
            match part.undo(store, receipt).await {
                Ok(now) => *receipt = now,
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// When each part was spent, by the clock of its server.
    pub(crate) fn times(&self, receipts: &[Receipt]) -> Vec<(u16, Timestamp)> {
        self.parts.iter().zip(receipts).map(|(part, receipt)| (part.slot, receipt.at)).collect()
    }

    /// One receipt of all parts. Each server has a clock of its own; it tells the first one's time.
    pub(crate) fn whole(&self, receipts: &[Receipt]) -> Receipt {
        let mut standings: Vec<(usize, Standings)> = Vec::new();
        for (part, receipt) in self.parts.iter().zip(receipts) {
            let mut rest = receipt.standings.iter();
            for (charge, place) in part.charges().iter().zip(&part.places) {
                let own = rest.by_ref().take(charge.quotas().as_slice().len());
                standings.push((*place, own.copied().collect()));
            }
        }
        standings.sort_by_key(|(place, _)| *place);
        Receipt {
            spent: receipts.iter().all(|receipt| receipt.spent),
            at: receipts.first().map(|receipt| receipt.at).unwrap_or_default(),
            degraded: false,
            standings: standings.into_iter().flat_map(|(_, own)| own).collect(),
        }
    }
}

impl SlotPart {
    fn charges(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(OwnedCharge::as_charge).collect()
    }

    async fn undo(
        &self,
        store: &RedisStore,
        receipt: &Receipt,
    ) -> Result<Receipt, RedisStoreError> {
        let charges = self.charges();
        let counted: Vec<Charge<'_>> =
            crate::store::spent_by(&charges, receipt).filter(|c| !c.counts_denied()).collect();
        store.refund_at_once(&counted, Some(receipt.at)).await?;
        let mut now = store.decide_at_once(Mode::Peek, &charges).await?;
        // What this part had room for, it had room for, whatever counting the denial has left.
        for (standing, before) in now.standings.iter_mut().zip(&receipt.standings) {
            if !before.is_violated() {
                *standing = standing.with_room();
            }
        }
        Ok(Receipt { spent: false, ..now })
    }
}
