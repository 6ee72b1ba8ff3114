//! Whether requests can be decided.

use std::fmt;

use axum::Json;
use http::StatusCode;
use slidegate::limit::MemoryStats;
use slidegate::policy::CheckedPolicy;
use slidegate::{OnStoreError, Scope};
use slidegate_customers::SourceStatus;
use slidegate_redis::{BreakerState, ServerWarning};
use tokio_util::sync::CancellationToken;

use crate::api::{KeyTrouble, Readiness, SourceTrouble};
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
        let (warnings, sources) = (warnings(observer), sources(observer));
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
            degraded: is_cut_off
                || !key_errors.is_empty()
                || !warnings.is_empty()
                || !sources.is_empty(),
            draining,
            store: kind.to_owned(),
            state: state.map(str::to_owned),
            key_errors,
            warnings,
            sources,
            refusing,
        }
    }

    /// Why it is degraded, in words.
    pub(crate) fn reason(&self) -> Option<String> {
        if !self.degraded {
            return None;
        }
        let warnings = self.warnings.iter().cloned();
        let sources = self.sources.iter().map(SourceTrouble::to_string);
        let reasons = self.redis_trouble().into_iter().chain(warnings).chain(sources);
        Some(reasons.collect::<Vec<_>>().join("; "))
    }

    fn redis_trouble(&self) -> Option<String> {
        let Some(state) = self.state.as_deref().filter(|state| is_cut_off(state)) else {
            let errors = self.key_errors.iter();
            let errors = errors.map(|KeyTrouble { policy, reason }| format!("{policy} ({reason})"));
            let errors = errors.collect::<Vec<_>>().join(", ");
            return (!errors.is_empty()).then(|| format!("Redis cannot count in keys of {errors}"));
        };
        let redis = match state {
            UNREACHED => "Redis has not replied yet".to_owned(),
            state => format!("Redis circuit breaker {state}"),
        };
        let effect = match self.refusing.is_empty() {
            true => "each policy's on_store_error applies".to_owned(),
            false => format!("refusing requests under {}", self.refusing.join(", ")),
        };
        Some(format!("{redis}; {effect}"))
    }
}

/// The sources of keys and tokens that cannot be asked now.
fn sources(observer: &Observer) -> Vec<SourceTrouble> {
    let Some(customers) = observer.customers() else { return Vec::new() };
    let keys = customers.keys().map(|status| ("key_source".to_owned(), status));
    let sources = keys.into_iter().chain(customers.issuers());
    let trouble = |(source, status): (String, SourceStatus)| {
        let age_s = status.answered_ago.map(|age| age.as_secs());
        Some(SourceTrouble { source, error: status.error?, age_s })
    };
    sources.filter_map(trouble).collect()
}

impl fmt::Display for SourceTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, error, age_s } = self;
        match age_s {
            Some(age) => {
                write!(f, "{source} cannot be asked, what is known is {age} s old: {error}")
            }
            None => write!(f, "{source} has never answered: {error}"),
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
