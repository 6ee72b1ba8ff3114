//! The circuit breaker in front of Redis.

use std::time::Duration;

use parking_lot::Mutex;

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
    /// And how many calls in a row have failed.
    state: Mutex<(BreakerState, u32)>,
    opens_after: u32,
}

impl Breaker {
    pub(crate) fn new(opens_after: u32) -> Self {
        Self { state: Mutex::default(), opens_after }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.state.lock().0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state() == BreakerState::Closed
    }

    pub(crate) fn succeeded(&self) {
        self.state.lock().1 = 0;
    }

    /// Returns whether this failure opened the breaker.
    pub(crate) fn failed(&self) -> bool {
        let (state, failures) = &mut *self.state.lock();
        *failures = failures.saturating_add(1);
        let opens = *state == BreakerState::Closed && *failures >= self.opens_after;
        if opens {
            *state = BreakerState::Open;
        }
        opens
    }

    /// Changes the state and resets the failure count.
    pub(crate) fn set(&self, state: BreakerState) {
        *self.state.lock() = (state, 0);
    }
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
