//! The policies in force, and what they make of a request.

use std::num::NonZeroU32;

use serde::Serialize;

use super::is_default;

/// `GET /v1/policies`
#[derive(Debug, Serialize)]
pub(crate) struct PolicyList {
    /// In the order of the configuration.
    pub(crate) policies: Vec<PolicyView>,
    pub(crate) plans: Vec<PlanView>,
}

/// A policy as it is configured. What does not apply is left out.
#[derive(Debug, Serialize)]
pub(crate) struct PolicyView {
    pub(crate) policy: String,
    /// Empty for all.
    pub(crate) methods: Vec<String>,
    /// Empty for all.
    pub(crate) paths: Vec<String>,
    /// The descriptors that it counts; then it counts no requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) descriptors: Option<String>,
    /// Whose requests are counted together: the first of these that a request has.
    pub(crate) identity: Vec<String>,
    /// Empty if the policy uses plans, or if callers supply the quotas.
    pub(crate) quotas: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plans: Option<PlanChoice>,
    /// Quotas that are watched beside those in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) candidate: Option<Vec<String>>,
    /// Whether charges bring their quotas, as those of Redis clients do.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) given_quotas: bool,
    /// Units; without it, what a request says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<NonZeroU32>,
    pub(crate) scope: String,
    /// How long prefetched units may be held, such as `200ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) count_denied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ban: Option<BanRule>,
    /// Whether it is a shadow policy, which refuses no requests.
    pub(crate) shadow: bool,
    pub(crate) on_store_error: String,
    pub(crate) in_headers: bool,
    /// What it has decided since the start.
    pub(crate) decided: DecisionCounts,
}

/// How a policy finds the plan of a request.
#[derive(Debug, Serialize)]
pub(crate) struct PlanChoice {
    pub(crate) default: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) header: Option<String>,
}

/// When a policy bans, and for how long.
#[derive(Debug, Serialize)]
pub(crate) struct BanRule {
    pub(crate) after: String,
    pub(crate) r#for: String,
}

/// What a policy has decided.
#[derive(Debug, Serialize)]
pub(crate) struct DecisionCounts {
    pub(crate) allowed: u64,
    pub(crate) refused: u64,
    /// What it would have refused if it were not a shadow policy.
    pub(crate) shadow: u64,
    /// What its candidate would have refused, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) candidate: Option<u64>,
    /// What the store could not count.
    pub(crate) failed: u64,
}

/// A plan as it is configured.
#[derive(Debug, Serialize)]
pub(crate) struct PlanView {
    pub(crate) plan: String,
    pub(crate) quotas: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upgrade_url: Option<String>,
}

/// `POST /v1/explain`
#[derive(Debug, Serialize)]
pub(crate) struct ExplainView<D> {
    /// The client's address and how it is known.
    pub(crate) client: String,
    /// What is known of the API key and the token, by the sources of customers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) credentials: Vec<String>,
    /// How else the path can be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) other_paths: Vec<String>,
    /// Set if the operator blocks the request, whatever the policies say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked: Option<String>,
    /// Set if no policy counts the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exempt: Option<String>,
    /// Each policy, in order; none if the request is malformed.
    pub(crate) policies: Vec<PolicyEffect>,
    /// What would be decided now: an answer of `POST /v1/decide?peek=true`.
    pub(crate) decision: D,
}

/// What one policy makes of the request.
#[derive(Debug, Serialize)]
pub(crate) struct PolicyEffect {
    pub(crate) policy: String,
    /// Whose account it charges; none if it passes the request over, or could never allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<String>,
    /// What it makes of the request and why.
    pub(crate) effect: String,
}
