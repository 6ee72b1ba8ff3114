//! Whether the database answers, and when it is asked again if it does not.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::session::PgError;
use crate::status::SourceStatus;

/// The longest pause between two attempts, also if polls are further apart: a key that was revoked
/// during an outage works for this long after it. A connection that is refused costs little.
const MAX_RETRY: Duration = Duration::from_secs(5);

/// The state of both kinds of reading. One line is logged when the first of them fails, and one
/// when both have succeeded again.
#[derive(Debug, Default)]
pub(super) struct SourceHealth {
    state: Mutex<HealthState>,
}

#[derive(Debug, Default)]
struct HealthState {
    answered: [Option<Instant>; 2],
    failing: [Option<Failing>; 2],
}

#[derive(Debug)]
struct Failing {
    error: String,
    attempts: u32,
}

/// What is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reading {
    All,
    Changes,
}

/// What a success ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Failing,
    Well,
}

impl SourceHealth {
    pub(super) fn succeeded(&self, reading: Reading) -> Before {
        let mut state = self.state.lock();
        state.answered[reading as usize] = Some(Instant::now());
        if state.failing[reading as usize].take().is_none() {
            return Before::Well;
        }
        if state.failing.iter().all(Option::is_none) {
            tracing::info!("key source answers again");
        }
        Before::Failing
    }

    /// Returns how long to wait before the next attempt.
    pub(super) fn failed(&self, reading: Reading, error: &PgError, poll: Duration) -> Duration {
        let error = error.to_string();
        let mut state = self.state.lock();
        if state.failing.iter().all(Option::is_none) {
            tracing::warn!(error, "key source failed; known keys stay as they are");
        }
        let failing = &mut state.failing[reading as usize];
        let attempts = failing.as_ref().map_or(0, |failing| failing.attempts).saturating_add(1);
        *failing = Some(Failing { error, attempts });
        pause(attempts, poll).mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.state.lock().failing.iter().any(Option::is_some)
    }

    pub(super) fn status(&self, keys: usize) -> SourceStatus {
        let state = self.state.lock();
        let error = state.failing.iter().flatten().next().map(|failing| failing.error.clone());
        let [all, changes] = state.answered;
        // Polls do not see which rows were deleted.
        let is_overdue = state.failing[Reading::All as usize].is_some();
        let answered = if is_overdue { all } else { all.max(changes) };
        SourceStatus { answered_ago: answered.map(|at| at.elapsed()), error, keys }
    }
}

/// Doubles with each attempt, without jitter.
pub(super) fn pause(attempts: u32, first: Duration) -> Duration {
    let doubled = first.saturating_mul(1 << attempts.saturating_sub(1).min(20));
    doubled.min(MAX_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_ever_further_apart_up_to_five_seconds() {
        let seconds = |attempts, poll| pause(attempts, Duration::from_secs(poll)).as_secs();
        let pauses: Vec<u64> = (1..8).map(|attempts| seconds(attempts, 2)).collect();
        assert_eq!(pauses, [2, 4, 5, 5, 5, 5, 5]);
        assert_eq!(seconds(u32::MAX, 2), 5);
        assert_eq!((seconds(1, 300), seconds(5, 300)), (5, 5));
    }

    #[test]
    fn an_error_stays_until_what_failed_has_succeeded() {
        let health = SourceHealth::default();
        let error = PgError::NotASelect;
        let poll = Duration::from_secs(2);
        let pause = health.failed(Reading::All, &error, poll);
        assert!((1.5..=2.5).contains(&pause.as_secs_f64()), "{pause:?}");
        assert_eq!(health.succeeded(Reading::Changes), Before::Well);
        assert!(health.status(0).is_degraded());
        assert_eq!(health.succeeded(Reading::All), Before::Failing);
        assert!(!health.status(0).is_degraded());
    }
}
