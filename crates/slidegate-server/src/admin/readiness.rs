//! Whether requests can be decided.

use axum::Json;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use slidegate::policy::CheckedPolicy;
use slidegate::{OnStoreError, Scope};
use slidegate_redis::BreakerState;
use tokio_util::sync::CancellationToken;

use crate::observe::{GateReport, Observer, StoreStats, breaker_word};

/// The state of a Redis that was not called yet.
const UNTRIED: &str = "untried";

pub(super) fn respond(
    observer: &Observer,
    shutdown: &CancellationToken,
) -> (StatusCode, Json<Readiness>) {
    let readiness = Readiness::of(observer.gate(), shutdown.is_cancelled());
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(readiness))
}

/// The JSON of `/readyz`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Readiness {
    /// Whether requests should be sent here.
    pub(crate) ready: bool,
    /// Whether the store fails; then each policy's `on_store_error` applies.
    pub(crate) degraded: bool,
    /// Whether the process is shutting down.
    pub(crate) draining: bool,
    /// The kind of store.
    pub(crate) store: String,
    /// The state of Redis's circuit breaker, or `untried` before the first call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// Errors of the last minute that concern single keys in Redis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    key_errors: Vec<KeyTrouble>,
    /// The policies whose requests are refused, because their `on_store_error` is `deny`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    refusing: Vec<String>,
}

/// Requests under a policy that Redis cannot count because of a key.
#[derive(Debug, Serialize, Deserialize)]
struct KeyTrouble {
    policy: String,
    reason: String,
}

impl Readiness {
    pub(super) fn of(gate: &dyn GateReport, draining: bool) -> Self {
        let StoreStats { kind, redis, .. } = gate.store_stats();
        let is_cut_off = redis.as_ref().is_some_and(|stats| stats.breaker != BreakerState::Closed);
        let recent_errors = redis.iter().flat_map(|stats| &stats.key_errors);
        let key_errors: Vec<KeyTrouble> = recent_errors
            .filter(|error| error.recent)
            .map(|error| KeyTrouble {
                policy: error.policy.to_string(),
                reason: error.reason.as_str().to_owned(),
            })
            .collect();
        let refuses = |policy: &&CheckedPolicy| {
            is_cut_off
                && policy.on_store_error == OnStoreError::Deny
                && policy.scope == Scope::Shared
                && !policy.shadow
        };
        let policies = gate.policies();
        let refusing = policies.iter().filter(refuses).map(|policy| policy.name.to_string());
        let refusing: Vec<String> = refusing.collect();
        Self {
            // A key error concerns some identities of some policies.
            ready: !draining && refusing.is_empty(),
            degraded: is_cut_off || !key_errors.is_empty(),
            draining,
            store: kind.to_owned(),
            state: redis.map(|stats| match stats.breaker {
                BreakerState::Closed if stats.answered + stats.deadlines + stats.errors == 0 => {
                    UNTRIED.to_owned()
                }
                state => breaker_word(state).to_owned(),
            }),
            key_errors,
            refusing,
        }
    }

    /// Why it is degraded, in words.
    pub(crate) fn reason(&self) -> Option<String> {
        let state = self.state.as_deref().unwrap_or_default();
        let errors = self.key_errors.iter();
        let errors = errors.map(|KeyTrouble { policy, reason }| format!("{policy} ({reason})"));
        match (self.degraded, errors.collect::<Vec<_>>()) {
            (false, _) => None,
            (true, errors) if state == breaker_word(BreakerState::Closed) => {
                Some(format!("Redis cannot count in keys of {}", errors.join(", ")))
            }
            (true, _) if self.refusing.is_empty() => {
                Some(format!("Redis circuit breaker {state}; each policy's on_store_error applies"))
            }
            (true, _) => {
                let refusing = self.refusing.join(", ");
                Some(format!("Redis circuit breaker {state}; refusing requests under {refusing}"))
            }
        }
    }
}
