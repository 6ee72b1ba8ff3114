//! What is seen from outside: metrics and logs of every answer.

mod access;
mod accounts;
mod attempts;
mod audit;
mod connections;
mod denial_log;
mod endpoint;
mod exposition;
mod format;
mod min_remaining;
mod observer;
mod operations;
mod per_thread;
mod policy;
mod process;
mod report;
mod store;
#[cfg(test)]
mod tests;
mod timing;
mod upstream;
mod verdict;

use std::net::IpAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use slidegate::{Decision, Timestamp};

pub(crate) use self::audit::Trail;
pub(crate) use self::connections::ConnectionStats;
pub(crate) use self::format::MetricsFormat;
pub(crate) use self::observer::Observer;
pub(crate) use self::operations::{Operation, OperationOutcome};
pub(crate) use self::report::{GateReport, StoreReport};
pub(crate) use self::store::breaker_word;
pub(crate) use self::upstream::{UpstreamError, UpstreamOutcome};

/// Which listener a request came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ListenerKind {
    Gateway,
    Decisions,
    Admin,
}

/// A request that has been answered.
#[derive(Debug)]
pub(crate) struct RequestOutcome<'a> {
    pub(crate) listener: ListenerKind,
    pub(crate) method: &'a Method,
    /// As it was sent, without the query.
    pub(crate) path: &'a str,
    pub(crate) client: Option<IpAddr>,
    pub(crate) status: StatusCode,
    /// The decision; `None` if the request was exempt or the store failed.
    pub(crate) decision: Option<&'a Decision>,
    pub(crate) upstream: UpstreamOutcome,
    /// When the request's head was there.
    pub(crate) began: Timestamp,
    /// When the gate had decided; `None` if it was not asked.
    pub(crate) decided: Option<Timestamp>,
    /// When the response's head was there.
    pub(crate) ended: Timestamp,
}

impl RequestOutcome<'_> {
    /// From the request's head to the response's.
    fn took(&self) -> Duration {
        self.ended.saturating_since(self.began)
    }
}

/// A figure for a log line, to three decimals.
fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

impl ListenerKind {
    const ALL: [Self; 3] = [Self::Gateway, Self::Decisions, Self::Admin];
    /// Those whose requests are recorded.
    const RECORDED: [Self; 2] = [Self::Gateway, Self::Decisions];

    fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Decisions => "decisions",
            Self::Admin => "admin",
        }
    }
}
