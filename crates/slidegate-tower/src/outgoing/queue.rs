//! Waiting until a gate allows a call.

use std::sync::Arc;
use std::time::Duration;

use slidegate::{Decision, Facts, Gate, MemoryStore, Store, Verdict};
use tokio::time::{sleep, timeout_at};

use crate::outgoing::error::HeldBack;
use crate::outgoing::lines::{Lines, Place};

/// Lets calls through as a gate allows them; the others wait, up to a bound, or fail at once.
///
/// Those who wait for one account go in the order in which they came, and nobody overtakes them:
/// who comes later waits behind them. So nobody starves as long as units come back within the time
/// that they may wait. Who is counted on several accounts waits in the line of one of them, and
/// there the order holds.
///
/// A call that is dropped while it waits has taken nothing, takes nothing later, and the next in
/// line moves up. (If the store itself has to be waited for, and the call is dropped just then,
/// the store may still spend what it was asked for.)
///
/// Waiting needs a Tokio runtime with its timer; failing at once does not.
#[derive(Debug)]
pub struct Queue<S = MemoryStore> {
    gate: Arc<Gate<S>>,
    longest: Duration,
    lines: Lines,
}

/// How many calls may wait unless it is said otherwise: as many as a busy service has under way,
/// and few enough to be worth a shrug in memory.
const MOST_WAITING: usize = 1024;

impl<S: Store> Queue<S> {
    /// Asks this gate, and has nobody wait.
    pub fn new(gate: impl Into<Arc<Gate<S>>>) -> Self {
        let (longest, lines) = (Duration::ZERO, Lines::new(MOST_WAITING));
        Self { gate: gate.into(), longest, lines }
    }

    /// Lets a call wait so long. One that would have to wait longer fails at once.
    #[must_use]
    pub fn wait_up_to(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Lets at most so many calls wait at the same time, 1024 if this is not said. One more fails
    /// at once with [`HeldBack::Crowded`].
    #[must_use]
    pub fn most_waiting(self, calls: usize) -> Self {
        Self { lines: Lines::new(calls), ..self }
    }

    /// Returns when the call may go out, and has spent what it costs.
    pub async fn pass(&self, facts: &Facts<'_>) -> Result<Decision, HeldBack> {
        if let Some(decision) = self.peek_behind_others(facts).await? {
            return self.wait(facts, decision).await;
        }
        let decision = self.gate.decide(facts).await?;
        match decision.verdict() {
            Verdict::Allow => Ok(decision),
            Verdict::Deny { retry_after } if retry_after <= self.longest => {
                self.wait(facts, decision).await
            }
            _ => Err(HeldBack::Denied(decision.into())),
        }
    }

    /// Where the call stands, if others wait for the same account: it may not overtake them.
    async fn peek_behind_others(&self, facts: &Facts<'_>) -> Result<Option<Decision>, HeldBack> {
        if self.lines.are_empty() {
            return Ok(None);
        }
        let decision = self.gate.peek(facts).await?;
        Ok(self.lines.are_ahead_of(&decision).then_some(decision))
    }

    async fn wait(&self, facts: &Facts<'_>, decision: Decision) -> Result<Decision, HeldBack> {
        let Some(place) = self.lines.join(&decision) else {
            return Err(HeldBack::Crowded(decision.into()));
        };
        let Place { turn, .. } = &place;
        let last_moment = sleep(self.longest).deadline();
        let Ok(_turn) = timeout_at(last_moment, turn.lock()).await else {
            return Err(HeldBack::Denied(self.gate.peek(facts).await?.into()));
        };
        loop {
            let decision = self.gate.decide(facts).await?;
            let Verdict::Deny { retry_after } = decision.verdict() else {
                let allowed = decision.is_allowed();
                return if allowed { Ok(decision) } else { Err(HeldBack::Denied(decision.into())) };
            };
            let nap = sleep(retry_after);
            if nap.deadline() > last_moment {
                return Err(HeldBack::Denied(decision.into()));
            }
            nap.await;
        }
    }
}
