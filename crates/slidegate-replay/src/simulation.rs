//! Policies in virtual time that decide described requests.

use std::sync::Arc;

use slidegate::policy::BadRequest;
use slidegate::{Decision, Facts, Gate, ManualClock, MemoryStore, Policies, StoreError, Timestamp};
use slidegate_tower::ClientAddress;

use crate::described_request::DescribedRequest;

/// The rules that requests are decided by.
#[derive(Debug)]
pub struct RuleSet {
    /// The policies.
    pub policies: Policies,
    /// How the client's address is found from the peer and the headers.
    pub client_address: ClientAddress,
}

/// Policies that decide by a clock which the caller sets, with accounts in memory.
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

    /// Decides a request at an instant, and spends what it costs if it is allowed.
    pub fn decide(&self, at: Timestamp, request: &DescribedRequest) -> Result<Decision, Undecided> {
        self.decide_facts(at, &request.facts(&self.client_address))
    }

    /// The same of facts that are made already.
    pub fn decide_facts(&self, at: Timestamp, facts: &Facts<'_>) -> Result<Decision, Undecided> {
        self.clock.set(at);
        self.gate.check(facts)?;
        Ok(self.gate.decide_now(facts)?)
    }
}
