//! Whether the service answers.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::LookUpError;
use crate::status::SourceStatus;

/// A service that fails and recovers all the time is worth two log lines a minute.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The outcome of the latest look-ups.
pub(super) struct ServiceHealth {
    service: String,
    outcomes: Mutex<Outcomes>,
}

#[derive(Default)]
struct Outcomes {
    answered: Option<Instant>,
    error: Option<String>,
    warned: Option<Instant>,
    /// Whether the last log line is the warning.
    is_announced: bool,
}

impl ServiceHealth {
    pub(super) fn new(service: String) -> Self {
        Self { service, outcomes: Mutex::default() }
    }

    pub(super) fn answered(&self) {
        let mut outcomes = self.outcomes.lock();
        outcomes.answered = Some(Instant::now());
        outcomes.error = None;
        let is_announced = std::mem::take(&mut outcomes.is_announced);
        drop(outcomes);
        if is_announced {
            tracing::info!(service = %self.service, "key service answers again");
        }
    }

    pub(super) fn failed(&self, error: &LookUpError) {
        let mut outcomes = self.outcomes.lock();
        outcomes.error = Some(error.to_string());
        let is_due = outcomes.warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL);
        if outcomes.is_announced || !is_due {
            return;
        }
        outcomes.is_announced = true;
        outcomes.warned = Some(Instant::now());
        drop(outcomes);
        tracing::warn!(
            service = %self.service,
            %error,
            "key look-up failed; serving known keys from the cache"
        );
    }

    pub(super) fn status(&self, keys: usize) -> SourceStatus {
        let outcomes = self.outcomes.lock();
        let answered_ago = outcomes.answered.map(|at| at.elapsed());
        SourceStatus { answered_ago, error: outcomes.error.clone(), keys }
    }
}
