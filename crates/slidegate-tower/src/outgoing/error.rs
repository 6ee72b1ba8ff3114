//! Why a call did not go out.

use std::time::Duration;

use slidegate::{Decision, StoreError};

/// Why a call was held back. Nothing was spent on it, unless a policy counts denied requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RateLimited {
    /// It may not go out within the time that it was to wait.
    #[error("no quota for the call within the time that it may wait")]
    Denied(Box<Decision>),
    /// It would have had to wait, and as many as may wait are waiting.
    #[error("no quota for the call, and too many calls wait already")]
    QueueFull(Box<Decision>),
    /// The store could not count, and a policy says `deny` to that.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RateLimited {
    /// The last decision about the call. Of one that failed while others were before it, this is
    /// how things stood then, as by [`Gate::peek`](slidegate::Gate::peek).
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Denied(decision) | Self::QueueFull(decision) => Some(decision),
            Self::Store(_) => None,
        }
    }

    /// How long that decision says to wait, if waiting helps.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }
}

/// Why an outgoing call failed: it was held back, or it went out and the inner service failed.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError<E> {
    /// It did not go out.
    #[error(transparent)]
    RateLimited(#[from] RateLimited),
    /// The inner service's error.
    #[error("the call failed")]
    Inner(#[source] E),
}
