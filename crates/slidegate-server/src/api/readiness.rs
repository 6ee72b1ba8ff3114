//! Whether requests can be decided.

use serde::{Deserialize, Serialize};

/// The JSON of `/readyz`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Readiness {
    /// Whether requests should be sent here.
    pub(crate) ready: bool,
    /// Whether the store fails, and each policy's `on_store_error` applies; or whether what it counts
    /// is in doubt.
    pub(crate) degraded: bool,
    /// Whether the process is shutting down.
    pub(crate) draining: bool,
    /// The kind of store.
    pub(crate) store: String,
    /// The state of Redis's circuit breaker, or `untried` or `unreached` before the first decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// Errors of the last minute that concern single keys in Redis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) key_errors: Vec<KeyTrouble>,
    /// Why what the store counts is in doubt although it answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
    /// The sources of keys and tokens that cannot be asked now: what is known goes on to count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<SourceTrouble>,
    /// The policies whose requests are refused, because their `on_store_error` is `deny`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) refusing: Vec<String>,
}

/// A source of keys or tokens that cannot be asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SourceTrouble {
    /// `key_source`, or the issuer of tokens.
    pub(crate) source: String,
    /// What is wrong.
    pub(crate) error: String,
    /// How old what is known is, in seconds; none if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) age_s: Option<u64>,
}

/// Requests under a policy that Redis cannot count because of a key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyTrouble {
    pub(crate) policy: String,
    pub(crate) reason: String,
}
