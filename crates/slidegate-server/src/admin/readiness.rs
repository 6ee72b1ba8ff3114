//! Whether requests can be decided.

use axum::Json;
use http::StatusCode;
use serde::Serialize;
use slidegate::policy::CheckedPolicy;
use slidegate::{OnStoreError, Scope};
use slidegate_redis::{BreakerState, KeyError, ResilienceStats};

use crate::observe::{GateReport, Observer, breaker_word};
use crate::shutdown::Shutdown;

pub(super) fn respond(observer: &Observer, shutdown: &Shutdown) -> (StatusCode, Json<Readiness>) {
    let readiness = Readiness::of(observer.gate(), shutdown.has_begun());
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
    /// Whether the store is in trouble; then policies go by `on_store_error`.
    degraded: bool,
    /// Whether the process is about to end.
    draining: bool,
    /// The kind of store.
    store: &'static str,
    /// Of the breaker before Redis, or `untried` if nothing has been asked of it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// What is wrong with keys of policies, if there was such an error in the last minute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key_errors: Vec<KeyTrouble>,
    /// The policies whose requests are refused, because they say `deny` to a store in trouble.
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
        let store = gate.store();
        let resilience = store.resilience();
        let is_cut_off = resilience.as_ref().is_some_and(|s| s.breaker != BreakerState::Closed);
        let key_errors = resilience.as_ref().map(key_errors).unwrap_or_default();
        let refusing = if is_cut_off { refusing(gate) } else { Vec::new() };
        Self {
            // A key that cannot be counted in concerns some identities of some policies.
            ready: !draining && refusing.is_empty(),
            degraded: is_cut_off || !key_errors.is_empty(),
            draining,
            store: store.kind(),
            state: resilience.as_ref().map(state),
            key_errors,
            refusing,
        }
    }
}

/// The policies that cannot be decided without the store.
fn refusing(gate: &dyn GateReport) -> Vec<String> {
    let refuses = |policy: &&CheckedPolicy| {
        policy.on_store_error == OnStoreError::Deny
            && policy.scope == Scope::Shared
            && !policy.shadow
    };
    let policies = gate.policies();
    policies.iter().filter(refuses).map(|policy| policy.name.to_string()).collect()
}

fn key_errors(stats: &ResilienceStats) -> Vec<KeyTrouble> {
    let recent = stats.key_errors.iter().filter(|error| error.recent);
    let trouble = |error: &KeyError| KeyTrouble {
        policy: error.policy.to_string(),
        reason: error.reason.as_str(),
    };
    recent.map(trouble).collect()
}

fn state(stats: &ResilienceStats) -> &'static str {
    let untried = stats.answered + stats.deadlines + stats.errors == 0;
    match stats.breaker {
        BreakerState::Closed if untried => "untried",
        state => breaker_word(state),
    }
}
