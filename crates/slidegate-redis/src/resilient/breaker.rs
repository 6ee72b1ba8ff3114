//! The circuit breaker in front of Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The state of the circuit breaker in front of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BreakerState {
    /// Redis decides.
    #[default]
    Closed,
    /// Redis has failed too often in a row. Only the recovery task probes it; no request waits.
    Open,
    /// Redis responds again, and the journal is being replayed.
    Recovering,
}

/// Counts consecutive failures and opens when there are too many.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// The state, and above [`FAILURES`] how many calls in a row have failed. One number, so that calls
    /// share no lock, and none writes to it while Redis is well.
    state: AtomicU64,
    opens_after: u32,
}

/// The bit at which the number of failures begins.
const FAILURES: u32 = 32;

impl Breaker {
    pub(crate) fn new(opens_after: u32) -> Self {
        Self { state: AtomicU64::new(bits(BreakerState::default(), 0)), opens_after }
    }

    pub(crate) fn state(&self) -> BreakerState {
        parts(self.state.load(Ordering::Acquire)).0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state() == BreakerState::Closed
    }

    pub(crate) fn succeeded(&self) {
        self.update(|state, failures| (failures > 0).then_some((state, 0)));
    }

    /// Returns whether this failure opened the breaker.
    pub(crate) fn failed(&self) -> bool {
        let opens_after = self.opens_after;
        let opens = |state, failures: u32| {
            state == BreakerState::Closed && failures.saturating_add(1) >= opens_after
        };
        let before = self.update(|state, failures| {
            let state = if opens(state, failures) { BreakerState::Open } else { state };
            Some((state, failures.saturating_add(1)))
        });
        opens(before.0, before.1)
    }

    /// Changes the state and resets the failure count.
    pub(crate) fn set(&self, state: BreakerState) {
        self.state.store(bits(state, 0), Ordering::Release);
    }

    /// Changes both, unless there is nothing to change, and returns what they were.
    fn update(
        &self,
        change: impl Fn(BreakerState, u32) -> Option<(BreakerState, u32)>,
    ) -> (BreakerState, u32) {
        let changed = |before| {
            let (state, failures) = parts(before);
            change(state, failures).map(|(state, failures)| bits(state, failures))
        };
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
        parts(before.unwrap_or_else(|unchanged| unchanged))
    }
}

fn bits(state: BreakerState, failures: u32) -> u64 {
    (u64::from(failures) << FAILURES) | state as u64
}

fn parts(bits: u64) -> (BreakerState, u32) {
    const OPEN: u64 = BreakerState::Open as u64;
    const RECOVERING: u64 = BreakerState::Recovering as u64;
    let state = match bits & u64::from(u32::MAX) {
        OPEN => BreakerState::Open,
        RECOVERING => BreakerState::Recovering,
        _ => BreakerState::Closed,
    };
    (state, (bits >> FAILURES) as u32)
}

const MIN_PROBE_DELAY: Duration = Duration::from_millis(100);
const MAX_PROBE_DELAY: Duration = Duration::from_secs(3);

/// The delay before the next probe: exponential backoff up to `MAX_PROBE_DELAY`, with jitter.
pub(crate) fn probe_wait(waits: u32) -> Duration {
    let longest = MIN_PROBE_DELAY.saturating_mul(2_u32.saturating_pow(waits)).min(MAX_PROBE_DELAY);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_open_a_breaker_unless_a_success_is_between() {
        let breaker = Breaker::new(3);
        assert!(!breaker.failed());
        assert!(!breaker.failed());
        breaker.succeeded();
        assert!(!breaker.failed());
        assert!(!breaker.failed());
        assert!(breaker.failed(), "the third opens it");
        assert!(!breaker.failed(), "and only the third");
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.set(BreakerState::Recovering);
        assert!(!breaker.is_closed());
        breaker.set(BreakerState::Closed);
        assert!(!breaker.failed(), "failures are counted from the start");
        assert!(breaker.is_closed());
    }

    #[test]
    fn waits_grow_to_a_bound_and_differ() {
        let waits: Vec<Duration> = (0..20).chain([u32::MAX]).map(probe_wait).collect();
        assert!(waits[0] >= MIN_PROBE_DELAY / 2 && waits[0] <= MIN_PROBE_DELAY);
        assert!(waits.iter().all(|wait| *wait <= MAX_PROBE_DELAY));
        assert!(waits[10..].iter().all(|wait| *wait >= MAX_PROBE_DELAY / 2));
        assert!(waits[10..].windows(2).any(|pair| pair[0] != pair[1]), "they are not in step");
    }
}
