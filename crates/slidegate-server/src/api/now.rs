//! What a server is doing now.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::calendar::Rfc3339;

/// The JSON of `GET /v1/now`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NowView {
    pub(crate) version: String,
    /// When the answer was made: at most a second ago.
    pub(crate) at: Rfc3339,
    pub(crate) started: Rfc3339,
    pub(crate) reload: ReloadView,
    pub(crate) store: StoreView,
    /// Those that share the store, this one first.
    pub(crate) gateways: Vec<GatewayView>,
    /// How long a step of the lists is.
    pub(crate) step_ms: u64,
    /// Requests at this gateway, each once, however many policies it falls under.
    #[serde(default)]
    pub(crate) requests: RequestSeries,
    /// Decisions of each policy at this gateway.
    pub(crate) policies: Vec<PolicySeries>,
    pub(crate) decision_time: DecisionTimeSeries,
}

/// How the configuration in force came about.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReloadView {
    /// When the configuration in force was read.
    pub(crate) last: Rfc3339,
    /// Reloads that failed since that one.
    pub(crate) failures: u64,
    /// The sections of the file that have changed and that only a restart applies.
    pub(crate) restart_needed: Vec<String>,
}

/// How the store is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoreView {
    /// `memory` or `redis`.
    pub(crate) kind: String,
    /// `ready`, or `degraded` for a reason.
    pub(crate) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Accounts in memory, if that is where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accounts: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<usize>,
    /// Where Redis is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// The state of its circuit breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) breaker: Option<String>,
    /// Requests decided without Redis since the start: counted in this process, or let through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decided_locally: Option<u64>,
}

/// A gateway, as its last heartbeat has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GatewayView {
    /// Host and process.
    pub(crate) name: String,
    /// Whether it is the one that answers.
    pub(crate) this: bool,
    pub(crate) version: String,
    pub(crate) started: Rfc3339,
    /// How long ago its last heartbeat was.
    pub(crate) seen_ms: u64,
}

/// Requests of all listeners in each step, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestSeries {
    pub(crate) allowed: VecDeque<u32>,
    /// Denied by a quota, banned or blocked.
    pub(crate) refused: VecDeque<u32>,
    /// Refused because the store could not count them.
    pub(crate) unavailable: VecDeque<u32>,
}

/// Decisions of a policy in each step, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicySeries {
    pub(crate) policy: String,
    pub(crate) allowed: VecDeque<u32>,
    /// Denials, and requests of identities that the policy has banned.
    pub(crate) refused: VecDeque<u32>,
    /// What the policy would have refused if it were not a shadow policy.
    pub(crate) shadow: VecDeque<u32>,
    /// What the policy's candidate quotas would have refused.
    pub(crate) candidate: VecDeque<u32>,
    /// Decisions that the store could not count.
    pub(crate) failed: VecDeque<u32>,
}

/// Quantiles of the decision time in each step, in microseconds and too high by at most an eighth;
/// none where there was no decision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecisionTimeSeries {
    pub(crate) p50_us: VecDeque<Option<f64>>,
    pub(crate) p99_us: VecDeque<Option<f64>>,
}
