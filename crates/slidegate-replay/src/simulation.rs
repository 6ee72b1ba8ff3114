//! Requests that are described instead of sent, and policies in virtual time that decide them.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use http::{HeaderMap, Method};
use slidegate::policy::BadRequest;
use slidegate::{Decision, Facts, Gate, ManualClock, MemoryStore, Policies, StoreError, Timestamp};
use slidegate_tower::{AddressSource, ClientAddress};

/// The rules that requests are decided by.
#[derive(Debug)]
pub struct RuleSet {
    /// The policies.
    pub policies: Policies,
    /// How the client's address is found from the peer and the headers.
    pub client_address: ClientAddress,
}

/// A request described by its parts, as a log or a test case has them.
#[derive(Debug, Clone, Default)]
pub struct DescribedRequest {
    /// Its method.
    pub method: Method,
    /// Its path, with or without a query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Without it, the client is found by the peer and the headers.
    pub client: Option<IpAddr>,
    /// The other end of the connection: the client, or a proxy.
    pub peer: Option<IpAddr>,
    /// The user, as if an application had authenticated one.
    pub user: Option<String>,
    /// The plan, as if an application had named it.
    pub plan: Option<String>,
    /// What it costs, for policies that do not fix it.
    pub cost: Option<NonZeroU32>,
}

/// Turns described requests into facts.
#[derive(Debug, Clone)]
pub struct RequestReading {
    /// How the client's address is found from the peer and the headers.
    pub client_address: ClientAddress,
}

impl RequestReading {
    /// The client's address, if it can be known.
    pub fn client(&self, request: &DescribedRequest) -> Option<IpAddr> {
        request.client.or_else(|| self.client_address.resolve(request.peer, &request.headers))
    }

    /// The client's address and how it is known, if it can be.
    pub fn explain_client(&self, request: &DescribedRequest) -> Option<String> {
        let (client, trust) = (self.client(request)?, &self.client_address);
        let source = trust.source();
        Some(match request.peer {
            _ if request.client.is_some() => format!("{client}, as given"),
            Some(peer) if !trust.trusts(peer) && source != AddressSource::Peer => {
                format!(
                    "{client}, the peer, whose {source} is not believed: it is no trusted proxy"
                )
            }
            Some(peer) if peer.to_canonical() != client => {
                format!("{client}, by {source} of the trusted proxy {peer}")
            }
            _ => format!("{client}, the peer"),
        })
    }

    /// What policies are matched with.
    pub fn facts<'f>(&self, request: &'f DescribedRequest) -> Facts<'f> {
        let mut facts = Facts::new(&request.method, &request.path).headers(&request.headers);
        let peer = request.peer.or(request.client);
        if peer.is_some_and(|peer| self.client_address.trusts(peer)) {
            facts = facts.headers_trusted();
        }
        if let Some(client) = self.client(request) {
            facts = facts.client(client);
        }
        if let Some(user) = &request.user {
            facts = facts.user(user);
        }
        if let Some(plan) = &request.plan {
            facts = facts.plan(plan);
        }
        request.cost.map_or(facts, |cost| facts.cost(cost))
    }
}

/// Policies that decide by a clock which the caller sets, with accounts in memory.
#[derive(Debug)]
pub struct Simulation {
    gate: Gate<MemoryStore>,
    reading: RequestReading,
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
        Self { gate, reading: RequestReading { client_address }, clock }
    }

    /// The policies that decide.
    pub fn policies(&self) -> Arc<Policies> {
        self.gate.policies()
    }

    /// How requests are turned into facts.
    pub fn reading(&self) -> &RequestReading {
        &self.reading
    }

    /// Decides a request at an instant, and spends what it costs if it is allowed.
    pub fn decide(&self, at: Timestamp, request: &DescribedRequest) -> Result<Decision, Undecided> {
        self.decide_facts(at, &self.reading.facts(request))
    }

    /// The same of facts that are made already.
    pub fn decide_facts(&self, at: Timestamp, facts: &Facts<'_>) -> Result<Decision, Undecided> {
        self.clock.set(at);
        self.gate.check(facts)?;
        Ok(self.gate.decide_now(facts)?)
    }
}
