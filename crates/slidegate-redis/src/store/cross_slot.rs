//! Requests whose charges a cluster keeps in several slots.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use slidegate::Timestamp;
use slidegate::limit::{Charge, Receipt, Standings};

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

    /// Takes back what a denied request has spent so far, but for charges that count it, and sees
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

    /// When each part was spent, by the clock of its server.
    pub(crate) fn times(&self, receipts: &[Receipt]) -> Vec<(u16, Timestamp)> {
        self.0.iter().zip(receipts).map(|(part, receipt)| (part.slot, receipt.at)).collect()
    }

    /// One receipt of all parts. Each server has its own clock; the receipt has the first one's
    /// time.
    pub(crate) fn whole(&self, receipts: &[Receipt]) -> Receipt {
        let mut standings: Vec<(usize, Standings)> = Vec::new();
        for (part, receipt) in self.0.iter().zip(receipts) {
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
    pub(crate) fn charges(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(OwnedCharge::as_charge).collect()
    }

    async fn undo(&self, store: &RedisStore, receipt: &mut Receipt) -> Result<(), RedisStoreError> {
        let charges = self.charges();
        let counted: Vec<Charge<'_>> =
            spent_by(&charges, receipt).filter(|charge| !charge.counts_denied()).collect();
        store.refund_at_once(&counted, Some(receipt.at)).await?;
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

/// The times of the latest requests that spent on several servers. Each server has its own clock,
/// and a receipt has room for the first one's time only; a refund needs them all.
#[derive(Default)]
pub(crate) struct SpendTimes(Mutex<VecDeque<Vec<(u16, Timestamp)>>>);

/// A refund nearly always follows its request at once.
const MAX_SPEND_TIMES: usize = 4096;

impl SpendTimes {
    /// Keeps the time at each slot, the first of which is the receipt's.
    pub(crate) fn keep(&self, times: Vec<(u16, Timestamp)>) {
        let mut kept = self.0.lock();
        if kept.len() == MAX_SPEND_TIMES {
            kept.pop_front();
        }
        kept.push_back(times);
    }

    /// The time at a slot of a request with some slots, if it is known, else the receipt's.
    pub(crate) fn at(&self, receipt_at: Timestamp, slots: &[u16], slot: u16) -> Timestamp {
        let kept = self.0.lock();
        let of_request = |times: &&Vec<(u16, Timestamp)>| {
            times.first().is_some_and(|(_, at)| *at == receipt_at)
                && slots.iter().all(|slot| times.iter().any(|(known, _)| known == slot))
        };
        let times = kept.iter().rev().find(of_request);
        let found = times.and_then(|times| times.iter().find(|(known, _)| *known == slot));
        found.map_or(receipt_at, |(_, at)| *at)
    }
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
