//! Whether requests can be decided.

use axum::Json;
use http::StatusCode;
use serde::Serialize;
use slidegate::policy::CheckedPolicy;
use slidegate::{OnStoreError, Scope};
use slidegate_redis::BreakerState;
use tokio_util::sync::CancellationToken;

use crate::observe::{GateReport, Observer, StoreStats, breaker_word};

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
#[derive(Debug, Serialize)]
pub(super) struct Readiness {
    /// Whether requests should be sent here.
    ready: bool,
    /// Whether the store fails; then each policy's `on_store_error` applies.
    degraded: bool,
    /// Whether the process is shutting down.
    draining: bool,
    /// The kind of store.
    store: &'static str,
    /// The state of Redis's circuit breaker, or `untried` before the first call.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// Errors of the last minute that concern single keys in Redis.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key_errors: Vec<KeyTrouble>,
    /// The policies whose requests are refused, because their `on_store_error` is `deny`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusing: Vec<String>,
}

/// Requests under a policy that Redis cannot count because of a key.
#[derive(Debug, Serialize)]
struct KeyTrouble {
    policy: String,
    reason: &'static str,
}

impl Readiness {
    fn of(gate: &dyn GateReport, draining: bool) -> Self {
        let StoreStats { kind, redis, .. } = gate.store_stats();
        let is_cut_off = redis.as_ref().is_some_and(|stats| stats.breaker != BreakerState::Closed);
        let recent_errors = redis.iter().flat_map(|stats| &stats.key_errors);
        let key_errors: Vec<KeyTrouble> = recent_errors
            .filter(|error| error.recent)
            .map(|error| KeyTrouble {
                policy: error.policy.to_string(),
                reason: error.reason.as_str(),
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
            store: kind,
            state: redis.map(|stats| match stats.breaker {
                BreakerState::Closed if stats.answered + stats.deadlines + stats.errors == 0 => {
                    "untried"
                }
                state => breaker_word(state),
            }),
            key_errors,
            refusing,
        }
    }
}
