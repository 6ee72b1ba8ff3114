//! What a client's address alone decides, before anything costly is done for its request.

use std::pin::pin;

use super::{Gate, ready_now};
use crate::decision::Decision;
use crate::hold::SpentIn;
use crate::limit::memory::Commit;
use crate::limit::{Store, Timestamp};
use crate::policy::Facts;
use crate::policy::matching::{Match, Matches};

impl<S: Store> Gate<S> {
    /// The refusal of a request whose address alone is enough to refuse it: it is blocked or banned, or a
    /// local policy that counts by address has no room. For callers that have costly work to do before
    /// they know the rest of the facts, such as checking a signature. If the request may go on, nothing
    /// is spent: [`decide`](Self::decide) follows.
    pub fn refuse_by_address(&self, facts: &Facts<'_>) -> Option<Decision> {
        let active = self.active.load();
        let facts = &self.dated(&active, facts);
        let matches = active.policies.resolve_by_address(facts, self.overrides_now(&active));
        if let Some(decision) = self.decide_uncharged(&matches) {
            return Some(decision).filter(|decision| !decision.is_allowed());
        }
        if self.has_room(&matches) {
            return None;
        }
        let decision = ready_now(pin!(self.charge(&matches, Commit::Spend))).ok()?;
        if decision.is_allowed() {
            // A unit came back in between.
            let _ = ready_now(pin!(self.settle(&decision.hold(), |_| 0, None)));
            return None;
        }
        Some(decision)
    }

    /// Whether [`refuse_by_address`](Self::refuse_by_address) would refuse the request. Counts nothing.
    pub fn is_refused_by_address(&self, facts: &Facts<'_>) -> bool {
        let active = self.active.load();
        let facts = &self.dated(&active, facts);
        let matches = active.policies.resolve_by_address(facts, self.overrides_now(&active));
        match self.decide_uncharged(&matches) {
            Some(decision) => !decision.is_allowed(),
            None => !self.has_room(&matches),
        }
    }

    fn has_room(&self, matches: &Matches<'_>) -> bool {
        let charges = matches.charges(|_| true);
        charges.is_empty() || self.local.peek_now(&charges).is_ok_and(|receipt| receipt.spent)
    }

    /// Charges a request that is refused for its credentials to the policies that count by address alone,
    /// so that inventing credentials is not free. Their denial, if they have no room.
    pub(super) fn charge_by_address(&self, matches: &Matches<'_>) -> Option<Decision> {
        let by_address = |matched: &Match<'_>| matched.policy.is_by_address();
        let charges = matches.charges(by_address);
        if charges.is_empty() {
            return None;
        }
        let receipt = self.local.attempt(&charges, Commit::Spend).ok()?;
        let mut decision = Decision::default();
        let spent = Commit::Spend.spent(SpentIn::Local as fn(Timestamp) -> SpentIn);
        decision.add(&receipt, matches, by_address, spent);
        Some(decision).filter(|decision| !decision.is_allowed())
    }
}
