//! Whether requests can be decided.

use axum::Json;
use http::StatusCode;
use slidegate::limit::MemoryStats;
use slidegate::policy::CheckedPolicy;
use slidegate::{OnStoreError, Scope};
use slidegate_redis::{BreakerState, ServerWarning};
use tokio_util::sync::CancellationToken;

use crate::api::{KeyTrouble, Readiness};
use crate::observe::{Observer, breaker_word};
use crate::store::StoreStats;

const CLOSED: &str = breaker_word(BreakerState::Closed);

/// The state of a Redis that has decided nothing yet, and replies.
const UNTRIED: &str = "untried";
/// The state of a Redis that has decided nothing yet, and does not reply.
const UNREACHED: &str = "unreached";

pub(super) fn respond(
    observer: &Observer,
    draining: &CancellationToken,
) -> (StatusCode, Json<Readiness>) {
    let readiness = Readiness::of(observer, draining.is_cancelled());
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(readiness))
}

impl Readiness {
    pub(super) fn of(observer: &Observer, draining: bool) -> Self {
        let gate = observer.gate();
        let warnings = warnings(observer);
        let StoreStats { kind, redis, .. } = gate.store().stats();
        let state = redis.as_ref().map(|stats| match stats.breaker {
            BreakerState::Closed if stats.answered + stats.deadlines + stats.errors == 0 => {
                if observer.redis_replies() {
                    UNTRIED
                } else {
                    UNREACHED
                }
            }
            state => breaker_word(state),
        });
        let is_cut_off = state.is_some_and(is_cut_off);
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
            degraded: is_cut_off || !key_errors.is_empty() || !warnings.is_empty(),
            draining,
            store: kind.to_owned(),
            state: state.map(str::to_owned),
            key_errors,
            warnings,
            refusing,
        }
    }

    /// Why it is degraded, in words.
    pub(crate) fn reason(&self) -> Option<String> {
        let state = self.state.as_deref().unwrap_or_default();
        let errors = self.key_errors.iter();
        let errors = errors.map(|KeyTrouble { policy, reason }| format!("{policy} ({reason})"));
        let redis = match state {
            UNREACHED => "Redis has not replied yet".to_owned(),
            state => format!("Redis circuit breaker {state}"),
        };
        match (self.degraded, errors.collect::<Vec<_>>()) {
            (false, _) => None,
            (true, errors) if self.state.is_none() || !is_cut_off(state) => {
                let keys = format!("Redis cannot count in keys of {}", errors.join(", "));
                let keys = Some(keys).filter(|_| !errors.is_empty());
                let reasons: Vec<String> = keys.into_iter().chain(self.warnings.clone()).collect();
                Some(reasons.join("; "))
            }
            (true, _) if self.refusing.is_empty() => {
                Some(format!("{redis}; each policy's on_store_error applies"))
            }
            (true, _) => {
                let refusing = self.refusing.join(", ");
                Some(format!("{redis}; refusing requests under {refusing}"))
            }
        }
    }
}

/// Whether requests are decided without Redis.
fn is_cut_off(state: &str) -> bool {
    ![CLOSED, UNTRIED].contains(&state)
}

/// Why what the store counts is in doubt although it answers.
fn warnings(observer: &Observer) -> Vec<String> {
    let gate = observer.gate();
    let StoreStats { memory, redis, .. } = gate.store().stats();
    let mut warnings = Vec::new();
    for (stats, store) in
        [(memory, "memory store"), (Some(gate.local_store().stats()), "store of local policies")]
    {
        let Some(stats) = stats.filter(MemoryStats::is_crowded) else { continue };
        let (accounts, capacity) = (stats.accounts, stats.capacity);
        let effect = match accounts >= capacity {
            true => "new accounts are decided by on_store_error",
            false => "new API keys and other identities that clients choose are counted by address",
        };
        warnings.push(format!("the {store} has {accounts} of {capacity} accounts: {effect}"));
    }
    for warning in redis.iter().flat_map(|stats| &stats.server.warnings) {
        if let ServerWarning::Evicts(policy) = warning {
            warnings.push(format!(
                "Redis drops keys, and what they have counted, when its memory is full \
                 (maxmemory-policy {policy})"
            ));
        }
    }
    let conflicting = observer.conflicting_policies();
    if !conflicting.is_empty() {
        let names = conflicting.join(", ");
        warnings.push(format!("another gateway on this Redis defines {names} in another way"));
    }
    warnings
}
