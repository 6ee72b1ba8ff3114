//! What upstream has answered, or why it has not.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::StatusCode;

use super::exposition::Page;
use super::per_thread::{PerThread, count_own};
use super::timing::Timing;

/// Why there is no response of upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamError {
    /// There was no connection to be had.
    Connect,
    /// There was no connection, or no head of a response, in time.
    Timeout,
    /// The connection broke before the head of a response.
    Broken,
    /// As many requests wait for upstream as may.
    Crowded,
    /// The response began and did not end.
    Body,
}

/// What upstream did for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum UpstreamOutcome {
    /// The request was not for it.
    #[default]
    NotCalled,
    /// The response is upstream's.
    Answered,
    Failed(UpstreamError),
}

impl UpstreamOutcome {
    pub(super) fn error(self) -> Option<UpstreamError> {
        match self {
            Self::Failed(error) => Some(error),
            Self::NotCalled | Self::Answered => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct UpstreamMetrics(PerThread<Results>);

#[derive(Debug, Default)]
struct Results {
    classes: [AtomicU64; CLASSES.len()],
    errors: [AtomicU64; UpstreamError::NAMES.len()],
    timing: Timing,
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl UpstreamError {
    const NAMES: [&str; 5] = ["connect", "timeout", "broken", "crowded", "body"];

    pub(super) fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl UpstreamMetrics {
    pub(super) fn answered(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        let own = self.0.own();
        count_own(&own.classes[class]);
        own.timing.add(took);
    }

    pub(super) fn failed(&self, error: UpstreamError) {
        count_own(&self.0.own().errors[error as usize]);
    }

    pub(super) fn expose(&self, page: &mut Page<'_>) -> fmt::Result {
        let class = |(i, name)| ([("class", name)], self.0.sum(|own| &own.classes[i]));
        page.counters(
            "slidegate_upstream_responses",
            "Upstream responses, by status class.",
            CLASSES.into_iter().enumerate().map(class),
        )?;
        let reason = |(i, name)| ([("reason", name)], self.0.sum(|own| &own.errors[i]));
        page.counters(
            "slidegate_upstream_errors",
            "Requests without a complete upstream response, by reason.",
            UpstreamError::NAMES.into_iter().enumerate().map(reason),
        )?;
        page.histogram(
            "slidegate_upstream_seconds",
            "Time from the gate's decision to the head of upstream's response.",
            &Timing::histogram(&self.0, |own| &own.timing),
        )
    }
}
