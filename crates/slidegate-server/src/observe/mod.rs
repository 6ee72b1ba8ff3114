//! What is seen from outside: metrics, logs and the audit trail.

mod audit;
mod customer_metrics;
mod gate_metrics;
mod histogram;
mod observer;
mod operations;
mod page;
mod peek_detector;
mod policy_metrics;
mod process;
mod request_log;
mod request_metrics;
mod series;
mod span_export;
#[cfg(test)]
mod tests;
mod token_failures;
mod top_accounts;
mod trace;

use std::net::IpAddr;

use http::{Method, StatusCode};
use slidegate::{Block, Decision, Timestamp, Verdict};

pub(crate) use self::audit::{Trail, TrailLines, read_tail};
pub(crate) use self::histogram::DurationCounts;
pub(crate) use slidegate_proxy::{UpstreamError, UpstreamOutcome};

pub(crate) use self::gate_metrics::breaker_word;
pub(crate) use self::observer::{Observer, PolicyConflict, ReloadState};
pub(crate) use self::operations::{Operation, OperationOutcome, SettlementOutcome};
pub(crate) use self::page::MetricsFormat;
pub(crate) use self::policy_metrics::PolicyTotals;
pub(crate) use self::request_metrics::RequestTotals;
pub(crate) use self::series::{STEP, Sampler};
pub(crate) use self::span_export::check_collector;
pub(crate) use self::token_failures::TokenFailures;
pub(crate) use self::top_accounts::SeenAccount;
pub(crate) use self::trace::{TracedRequest, Tracer};

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
    /// When the request came: its head over HTTP, the message over gRPC, the command of a Redis client.
    pub(crate) began: Timestamp,
    /// When it had been read as far as the gate needs it, and the gate was asked.
    pub(crate) asked: Timestamp,
    /// When the gate had decided, and the refusal was made if there is one; `None` if it was not asked.
    pub(crate) decided: Option<Timestamp>,
    /// When the response was ready to be sent.
    pub(crate) ended: Timestamp,
}

/// Which listener a request came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ListenerKind {
    Gateway,
    Decisions,
    Resp,
    Rls,
    /// Only its connections are counted.
    Admin,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VerdictLabel {
    Allow,
    /// A quota was used up.
    Deny,
    /// Units that were already used exceeded a quota. Nothing was refused.
    Recorded,
    Block,
    /// The store failed, and a policy has `on_store_error = "deny"`.
    Unavailable,
    /// The gate was not asked.
    None,
}

/// Why a request may not pass, whatever its quotas have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockReason {
    Listed,
    Cost,
    Banned,
    /// By an operator's override.
    Suspended,
    /// For an API key that was not issued.
    UnknownKey,
    /// For a token that is not valid.
    InvalidToken,
    /// For a key or a token that was not checked, because too many of its address were.
    UncheckedCredentials,
    /// Because the source of its key or token could not be reached.
    KeysUnavailable,
    /// One that this version has no name for.
    Other,
}

impl ListenerKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Decisions => "decisions",
            Self::Resp => "resp",
            Self::Rls => "rls",
            Self::Admin => "admin",
        }
    }
}

impl VerdictLabel {
    /// In the order of the variants.
    const NAMES: [&str; 6] = ["allow", "deny", "recorded", "block", "unavailable", "none"];

    fn of(outcome: &RequestOutcome<'_>) -> Self {
        match outcome.decision.map(|decision| (decision.verdict(), decision.is_recorded())) {
            Some((Verdict::Allow, _)) => Self::Allow,
            Some((Verdict::Deny { .. }, true)) => Self::Recorded,
            Some((Verdict::Deny { .. }, false)) => Self::Deny,
            Some(_) => Self::Block,
            None if outcome.status == StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            None => Self::None,
        }
    }

    fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl BlockReason {
    /// In the order of the variants.
    const NAMES: [&str; 9] = [
        "listed",
        "cost",
        "banned",
        "suspended",
        "unknown-key",
        "invalid-token",
        "unchecked-credentials",
        "keys-unavailable",
        "other",
    ];

    /// None if the request was not blocked.
    pub(crate) fn of(decision: &Decision) -> Option<Self> {
        let Verdict::Block(block) = decision.verdict() else { return None };
        Some(match block {
            Block::Listed => Self::Listed,
            Block::CostAboveUnits => Self::Cost,
            Block::Banned { .. } => Self::Banned,
            Block::Suspended { .. } => Self::Suspended,
            Block::UnknownKey => Self::UnknownKey,
            Block::InvalidToken => Self::InvalidToken,
            Block::UncheckedCredentials { .. } => Self::UncheckedCredentials,
            Block::KeysUnavailable => Self::KeysUnavailable,
            _ => Self::Other,
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}
