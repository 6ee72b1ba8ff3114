//! Waiting until a gate allows a call.

use std::sync::Arc;
use std::time::Duration;

use slidegate::{Decision, Facts, Gate, MemoryStore, Store, Verdict};
use tokio::time::{Instant, sleep, timeout_at};

use crate::outgoing::RateLimited;
use crate::outgoing::account_queues::{AccountQueues, QueueSlot};

/// Lets calls through as a gate allows them; the others wait, up to a bound, or fail at once.
///
/// Calls that wait for one account go in the order in which they joined its queue, and a later call
/// that could go waits behind them. So, where each call is counted on one account, no call is
/// overtaken, and none starves as long as units come back within the longest wait.
///
/// A call that is counted on several accounts waits in one queue at a time, for the account that
/// holds it up longest. If that is another account when its turn comes, it moves to the end of the
/// other's queue, so that the calls behind it need not wait for what only it lacks. When its turn
/// comes there, it may go out before calls in the queues of its other accounts.
///
/// A call that is dropped while it waits has spent nothing and spends nothing later, and the next
/// in the queue moves up. (If it is dropped while the store itself is waited for, the store may
/// still spend its cost.)
///
/// Waiting needs a Tokio runtime with its timer; failing at once does not.
///
/// ```
/// use std::time::Duration;
///
/// use http::Method;
/// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Quota, Source};
/// use slidegate_tower::OutgoingQueue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let vendor = Policy::new("vendor").identity([Source::Everyone]).quota(Quota::per_second(5));
/// let gate = Gate::new(Policies::builder().policy(vendor).build()?, MemoryStore::new());
/// let queue = OutgoingQueue::new(gate).wait_up_to(Duration::from_secs(10));
///
/// queue.pass(&Facts::new(&Method::GET, "/v1/mails")).await?;
/// // Now the call may be sent.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OutgoingQueue<S = MemoryStore> {
    gate: Arc<Gate<S>>,
    longest: Duration,
    queues: AccountQueues,
}

/// The default bound: more calls than a busy service has in flight, and few kilobytes of memory.
const MAX_WAITING: usize = 1024;

impl<S: Store> OutgoingQueue<S> {
    /// Decides by this gate; no call waits.
    pub fn new(gate: impl Into<Arc<Gate<S>>>) -> Self {
        let (longest, queues) = (Duration::ZERO, AccountQueues::new(MAX_WAITING));
        Self { gate: gate.into(), longest, queues }
    }

    /// Lets a call wait this long. One that its quotas alone would hold up for longer fails at once;
    /// one that others before it hold up too long fails when the time is over.
    #[must_use]
    pub fn wait_up_to(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Lets at most this many calls wait at the same time, by default 1024. One more fails at once
    /// with [`RateLimited::QueueFull`].
    #[must_use]
    pub fn max_waiting(self, calls: usize) -> Self {
        Self { queues: AccountQueues::new(calls), ..self }
    }

    /// Returns when the call may go out, and has spent what it costs.
    pub async fn pass(&self, facts: &Facts<'_>) -> Result<Decision, RateLimited> {
        if let Some(decision) = self.peek_behind_others(facts).await? {
            return self.wait(facts, decision).await;
        }
        let decision = self.gate.decide(facts).await?;
        if decision.is_allowed() {
            return Ok(decision);
        }
        self.wait(facts, decision).await
    }

    /// Where the call stands, if others wait for the same account: it may not overtake them.
    async fn peek_behind_others(&self, facts: &Facts<'_>) -> Result<Option<Decision>, RateLimited> {
        if self.queues.are_empty() {
            return Ok(None);
        }
        let decision = self.gate.peek(facts).await?;
        Ok(self.queues.are_ahead_of(&decision).then_some(decision))
    }

    async fn wait(&self, facts: &Facts<'_>, decision: Decision) -> Result<Decision, RateLimited> {
        if !self.is_worth_waiting(&decision) {
            return Err(RateLimited::Denied(decision.into()));
        }
        let Some(mut slot) = self.queues.join(&decision) else {
            return Err(RateLimited::QueueFull(decision.into()));
        };
        let last_moment = sleep(self.longest).deadline();
        loop {
            let Ok(turn) = timeout_at(last_moment, slot.turn.lock()).await else {
                return Err(RateLimited::Denied(self.gate.peek(facts).await?.into()));
            };
            let decision = self.wait_at_the_head(facts, &slot, last_moment).await?;
            if decision.is_allowed() {
                return Ok(decision);
            }
            drop(turn);
            slot.change_queue(&decision);
        }
    }

    fn is_worth_waiting(&self, decision: &Decision) -> bool {
        match decision.verdict() {
            Verdict::Allow => true,
            Verdict::Deny { retry_after } => retry_after <= self.longest,
            _ => false,
        }
    }

    /// Returns when the call may go out, or with the denial that it has to wait out elsewhere.
    async fn wait_at_the_head(
        &self,
        facts: &Facts<'_>,
        slot: &QueueSlot<'_>,
        last_moment: Instant,
    ) -> Result<Decision, RateLimited> {
        loop {
            let decision = self.gate.decide(facts).await?;
            let Verdict::Deny { retry_after } = decision.verdict() else {
                let allowed = decision.is_allowed();
                return if allowed {
                    Ok(decision)
                } else {
                    Err(RateLimited::Denied(decision.into()))
                };
            };
            let nap = sleep(retry_after);
            if nap.deadline() > last_moment {
                return Err(RateLimited::Denied(decision.into()));
            }
            if slot.is_in_wrong_queue_for(&decision) {
                return Ok(decision);
            }
            nap.await;
        }
    }
}
