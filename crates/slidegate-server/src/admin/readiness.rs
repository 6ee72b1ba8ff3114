//! Whether requests can be decided.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Serialize;
use slidegate::{OnStoreError, PolicyOutline, Scope};
use slidegate_redis::{BreakerState, ResilienceStats};

use crate::observe::{GateReport, Observer, breaker_word};
use crate::shutdown::Shutdown;

pub(super) fn answer(observer: &Observer, shutdown: &Shutdown) -> Response {
    let readiness = Readiness::of(observer.gate(), shutdown.has_begun());
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, [(header::CACHE_CONTROL, "no-store")], axum::Json(readiness)).into_response()
}

/// What `/readyz` says.
#[derive(Debug, Serialize)]
struct Readiness {
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
    /// The policies whose requests are refused, because they say `deny` to a store in trouble.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusing: Vec<String>,
}

impl Readiness {
    fn of(gate: &dyn GateReport, draining: bool) -> Self {
        let store = gate.store();
        let resilience = store.resilience();
        let degraded = resilience.as_ref().is_some_and(|s| s.breaker != BreakerState::Closed);
        let refusing = if degraded { refusing(gate) } else { Vec::new() };
        Self {
            ready: !draining && refusing.is_empty(),
            degraded,
            draining,
            store: store.kind(),
            state: resilience.as_ref().map(state),
            refusing,
        }
    }
}

/// The policies that cannot be decided without the store.
fn refusing(gate: &dyn GateReport) -> Vec<String> {
    let refuses = |policy: &PolicyOutline| {
        policy.on_store_error == OnStoreError::Deny
            && policy.scope == Scope::Shared
            && !policy.shadow
    };
    let policies = gate.policies();
    policies.outlines().filter(refuses).map(|policy| policy.name.to_string()).collect()
}

fn state(stats: &ResilienceStats) -> &'static str {
    let untried = stats.answered + stats.deadlines + stats.errors == 0;
    match stats.breaker {
        BreakerState::Closed if untried => "untried",
        state => breaker_word(state),
    }
}
