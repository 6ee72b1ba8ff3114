//! What a client writes down of its requests.

use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slidegate::Timestamp;

/// One request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoggedRequest {
    /// The address that it was sent for.
    pub(super) address: Ipv4Addr,
    pub(super) sent: Timestamp,
    pub(super) answered: Timestamp,
    pub(super) outcome: Outcome,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The API answered it.
    Admitted,
    /// The flood guard refused it.
    Flood,
    /// Another policy refused it.
    Refused,
    /// No answer, or an unexpected one.
    Failed,
}

/// A client's requests, in the order of the answers. Written by the client, read by the view.
#[derive(Debug, Default)]
pub(super) struct RequestLog(Mutex<Vec<LoggedRequest>>);

impl LoggedRequest {
    pub(super) fn took(&self) -> Duration {
        self.answered.saturating_since(self.sent)
    }
}

impl RequestLog {
    pub(super) fn add(&self, record: LoggedRequest) {
        self.records().push(record);
    }

    /// All records after the first so many. What was read once need not be copied again.
    pub(super) fn after(&self, first: usize) -> Vec<LoggedRequest> {
        self.records().get(first..).map(<[LoggedRequest]>::to_vec).unwrap_or_default()
    }

    fn records(&self) -> MutexGuard<'_, Vec<LoggedRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
