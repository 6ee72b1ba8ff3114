//! One gateway of a fleet: a gate and its stores, as the server has them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::Method;
use slidegate::{Clock, Decision, Facts, Gate, SpentIn, StoreError, Timestamp};
use slidegate_redis::{LeasedStore, RedisStore, ResilientStore};
use tokio::time::Instant;

use crate::VirtualClock;
use crate::network::Network;
use crate::scenario::Scenario;

pub(crate) struct Gateway {
    gate: Gate<LeasedStore>,
    pub(crate) network: Arc<Network>,
    /// The clock of Redis, which no part of the product sees.
    true_time: VirtualClock,
}

/// What became of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// How long it waited for the store; none if it did not have to.
    pub(crate) waited: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Verdict {
    /// At this time by the clock of Redis.
    Admitted(Timestamp),
    Denied,
    /// The store was not reached in time.
    Failed,
}

impl Gateway {
    /// Its clock differs from that of Redis.
    pub(crate) fn new(
        scenario: &Scenario,
        network: Arc<Network>,
        clock: VirtualClock,
        true_time: VirtualClock,
    ) -> Self {
        let way = network.clone();
        let redis = RedisStore::builder("redis://simulated")
            .connector(move || way.clone().connect())
            .deadline(scenario.deadline)
            .build()
            .expect("the address is one server's");
        let store = ResilientStore::builder(redis).clock(clock).hash_seed(scenario.seed).build();
        let gate = Gate::new(scenario.policies(), LeasedStore::with_clock(store, clock));
        Self { gate, network, true_time }
    }

    /// Decides without waiting if it can; else returns what is to be awaited.
    pub(crate) fn decide(
        self: Arc<Self>,
        user: Arc<str>,
    ) -> Result<Outcome, impl Future<Output = Outcome> + Send + 'static> {
        let gateway = self.clone();
        let mut deciding = Box::pin(async move {
            gateway.gate.decide(&Facts::new(&Method::GET, "/").user(&user)).await
        });
        if let Some(decided) = deciding.as_mut().now_or_never() {
            let now = self.true_time.now();
            let verdict = Verdict::of(decided, |_| now);
            return Ok(Outcome { verdict, waited: None });
        }
        let asked = Instant::now();
        Err(async move {
            let verdict = Verdict::of(deciding.await, stamped);
            Outcome { verdict, waited: Some(asked.elapsed()) }
        })
    }
}

impl Verdict {
    fn of(
        decided: Result<Decision, StoreError>,
        admitted_at: impl FnOnce(&Decision) -> Timestamp,
    ) -> Self {
        match decided {
            Ok(decision) if decision.is_allowed() => Self::Admitted(admitted_at(&decision)),
            Ok(_) => Self::Denied,
            Err(_) => Self::Failed,
        }
    }
}

/// When Redis has spent the units of a decision that waited for it.
fn stamped(decision: &Decision) -> Timestamp {
    match decision.hold().charges.first().map(|charge| charge.spent) {
        Some(SpentIn::Shared(at)) => at,
        _ => unreachable!("one shared policy has decided"),
    }
}
