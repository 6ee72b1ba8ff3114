//! What this process knows by itself, kept local for when Redis cannot be asked.

use std::sync::Arc;

use slidegate::limit::{Charge, Charges, Quotas, Receipt, Spent, Standings};
use slidegate::{Clock, MemoryStore, OnStoreError, Standing, StoreError, Timestamp};

use super::local_share::LocalShare;
use crate::owned::charges;
use crate::script::Mode;
use crate::store::spent_by;

/// The spends of this process alone, whoever decided them.
pub(crate) struct LocalLedgers {
    store: MemoryStore,
    share: LocalShare,
}

/// A request that was decided here.
pub(crate) struct LocalDecision<'a> {
    receipt: Receipt,
    /// What was spent here.
    spends: Charges<'a>,
}

impl LocalLedgers {
    pub(crate) fn new(capacity: usize, share: LocalShare, clock: Arc<dyn Clock>) -> Self {
        Self { store: MemoryStore::builder().capacity(capacity).clock(clock).build(), share }
    }

    /// Writes down what Redis has admitted.
    pub(crate) fn learn(&self, admitted: &Charges<'_>) {
        // Redis has let them in, whether or not they fit here: its moment and ours differ by the
        // way between. So they are recorded as a denied request would be, fitting or not.
        let known = admitted.as_slice().iter().filter(|charge| is_local(charge));
        let known = charges(known.map(|charge| charge.count_denied(true)));
        if !known.is_empty()
            && let Err(error) = self.store.spend_now(&known)
        {
            tracing::debug!(%error, "this process could not write down an admission");
        }
    }

    /// Decides by what this process knows.
    pub(crate) fn decide<'a>(
        &self,
        mode: Mode,
        asked: &Charges<'a>,
    ) -> Result<LocalDecision<'a>, StoreError> {
        let counted = charges(asked.as_slice().iter().filter(|charge| is_local(charge)).copied());
        let receipt = if self.share.is_whole() {
            self.ask(mode, &counted)?
        } else {
            self.ask_within_share(mode, &counted)?
        };
        let spent = receipt.spent || counted.is_empty();
        let spends = match mode {
            Mode::Spend if spent => charges(spent_by(counted.as_slice(), &receipt)),
            _ => Charges::new(),
        };
        let standings = standings(asked, &receipt);
        let receipt = Receipt { spent, degraded: true, standings, at: receipt.at };
        Ok(LocalDecision { receipt, spends })
    }

    fn ask(&self, mode: Mode, counted: &Charges<'_>) -> Result<Receipt, StoreError> {
        match mode {
            Mode::Peek => self.store.peek_now(counted),
            Mode::Spend | Mode::Deny => self.store.spend_now(counted),
        }
    }

    fn ask_within_share(&self, mode: Mode, counted: &Charges<'_>) -> Result<Receipt, StoreError> {
        let cut: Vec<Quotas> =
            counted.as_slice().iter().map(|charge| self.share.of(charge)).collect();
        let shares = counted.as_slice().iter().zip(&cut).map(|(charge, quotas)| {
            Charge::new(charge.policy(), charge.identity(), quotas)
                .with_cost(charge.cost())
                .expect("a share has room for a request")
                .count_denied(charge.counts_denied())
                .shadow(charge.is_shadow())
        });
        self.ask(mode, &charges(shares))
    }

    pub(crate) fn refund(&self, charge: &Charge<'_>, spent: Spent) {
        self.store.refund_now(&(*charge).into(), spent);
    }

    pub(crate) fn reset(&self, charges: &Charges<'_>) {
        self.store.reset_now(charges);
    }

    /// Forgets what was spent up to `at`.
    pub(crate) fn reset_as_of(&self, charges: &Charges<'_>, at: Timestamp) {
        self.store.reset_as_of(charges, at);
    }
}

impl<'a> LocalDecision<'a> {
    /// What was spent here and when.
    pub(crate) fn spent(&self) -> impl Iterator<Item = (Charge<'a>, Timestamp)> + '_ {
        self.spends.as_slice().iter().map(|charge| (*charge, self.receipt.at))
    }

    pub(crate) fn into_receipt(self) -> Receipt {
        self.receipt
    }
}

fn is_local(charge: &Charge<'_>) -> bool {
    charge.store_error_action() != OnStoreError::Allow
}

/// The standings of all charges: as found here, and untouched where nothing is counted. A share is
/// told as what it is a share of.
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
