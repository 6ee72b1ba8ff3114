//! Policies in virtual time that decide described requests.

use std::sync::Arc;

use slidegate::policy::BadRequest;
use slidegate::{
    Decision, Facts, Gate, HeldCharge, ManualClock, MemoryStore, Policies, StoreError, Timestamp,
};
use slidegate_tower::ClientAddress;

use crate::described_request::DescribedRequest;
use crate::described_response::DescribedResponse;

/// The rules that requests are decided by.
#[derive(Debug)]
pub struct RuleSet {
    /// The policies.
    pub policies: Policies,
    /// How the client's address is found from the peer and the headers.
    pub client_address: ClientAddress,
}

/// Policies that decide by a clock which the caller sets, with accounts in memory.
///
/// ```
/// use slidegate::{Policies, Policy, Quota, Timestamp};
/// use slidegate_replay::{DescribedRequest, DescribedResponse, RuleSet, Simulation};
/// use slidegate_tower::ClientAddress;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let api = Policy::new("api").quota(Quota::per_minute(1));
/// let policies = Policies::builder().policy(api).build()?;
/// let rules = RuleSet { policies, client_address: ClientAddress::default() };
/// let simulation = Simulation::new(rules, 1000);
///
/// let request = DescribedRequest { client: Some("203.0.113.7".parse()?), ..Default::default() };
/// let response = DescribedResponse::default();
/// let verdict = |at| Ok::<_, Box<dyn std::error::Error>>(simulation.decide(at, &request, &response)?.is_allowed());
/// assert!(verdict(Timestamp::from_millis(0))?);
/// assert!(!verdict(Timestamp::from_millis(59_999))?);
/// assert!(verdict(Timestamp::from_millis(60_000))?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Simulation {
    gate: Gate<MemoryStore>,
    client_address: ClientAddress,
    clock: ManualClock,
}

/// Why a request was not decided.
#[derive(Debug, thiserror::Error)]
pub enum Undecided {
    /// It is refused with 400.
    #[error("{0}")]
    BadRequest(#[from] BadRequest),
    /// There are more accounts than room, and a policy says `deny` to that.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl Simulation {
    /// Starts at the epoch, with room for so many accounts. Those of local policies have as much
    /// again.
    pub fn new(rules: RuleSet, capacity: usize) -> Self {
        let clock = ManualClock::new(Timestamp::default());
        let store = || MemoryStore::builder().capacity(capacity).clock(clock.clone()).build();
        let RuleSet { policies, client_address } = rules;
        let gate = Gate::with_local(policies, store(), store());
        Self { gate, client_address, clock }
    }

    /// The policies that decide.
    pub fn policies(&self) -> Arc<Policies> {
        self.gate.policies()
    }

    /// How the client's address is found from the peer and the headers.
    pub fn client_address(&self) -> &ClientAddress {
        &self.client_address
    }

    /// Decides a request at an instant, and spends what it costs if it is allowed. At the same instant
    /// the response settles what policies that look at it have held; the decision's standings are those
    /// after it.
    pub fn decide(
        &self,
        at: Timestamp,
        request: &DescribedRequest,
        response: &DescribedResponse,
    ) -> Result<Decision, Undecided> {
        self.decide_facts(at, &request.facts(&self.client_address), response)
    }

    /// The same of facts that are made already.
    pub fn decide_facts(
        &self,
        at: Timestamp,
        facts: &Facts<'_>,
        response: &DescribedResponse,
    ) -> Result<Decision, Undecided> {
        self.clock.set(at);
        self.gate.check(facts)?;
        let mut decision = self.gate.decide_now(facts)?;
        self.settle(&mut decision, response)?;
        Ok(decision)
    }

    fn settle(
        &self,
        decision: &mut Decision,
        response: &DescribedResponse,
    ) -> Result<(), StoreError> {
        let Some(hold) = decision.response_hold().filter(|_| decision.is_allowed()) else {
            return Ok(());
        };
        let cost_of = |charge: &HeldCharge| {
            let held = charge.units.get();
            charge.response.as_ref().map_or(held, |rule| response.cost_under(rule, held))
        };
        self.gate.settle_now(&hold, cost_of)?;
        for charge in &hold.charges {
            decision.note_cost(charge, cost_of(charge));
        }
        Ok(())
    }
}
