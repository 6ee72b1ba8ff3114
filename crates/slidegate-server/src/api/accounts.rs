//! Accounts: lists of them, one, and its audit trail.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{OverrideView, is_default};

/// The order of a list of accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AccountSort {
    /// Nearest to a quota first
    #[default]
    Nearest,
    /// Most often denied first
    Denied,
    /// Most often denied by a policy's candidate, had it been in force, first
    Candidate,
}

/// `GET /v1/accounts`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountList {
    pub(crate) sort: AccountSort,
    pub(crate) accounts: Vec<AccountView>,
}

/// `GET /v1/accounts/IDENTITY`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IdentityView {
    pub(crate) identity: String,
    pub(crate) accounts: Vec<AccountView>,
    /// All overrides that concern the identity, also under policies where it has no account.
    pub(crate) overrides: Vec<OverrideView>,
}

/// Where an account stands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountView {
    pub(crate) identity: String,
    pub(crate) policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<String>,
    /// Whether the policy is a shadow policy, which refuses nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) shadow: bool,
    /// The spent share of the quota that is spent most, from 0 to 1.
    pub(crate) used: f64,
    pub(crate) quotas: Vec<QuotaView>,
    /// The quotas of the policy's candidate, which are not enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) candidate: Vec<CandidateView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) banned_for_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exempt_for_ms: Option<u64>,
    /// Whether the store failed and these are the process's own ledgers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) degraded: bool,
    /// Recent denials, in lists of the most denied; sorted by candidate, those that it would have
    /// made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denials: Option<u64>,
    /// The most by which `denials` may be too high.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denials_overcount: Option<u64>,
}

/// Where one quota of an account stands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QuotaView {
    pub(crate) quota: String,
    pub(crate) units: u32,
    /// How many of the units an operator has granted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) granted: u32,
    pub(crate) spent: u32,
    pub(crate) remaining: u32,
    pub(crate) retry_after_ms: u64,
    pub(crate) reset_after_ms: u64,
}

/// Where a quota of a candidate stands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CandidateView {
    pub(crate) quota: String,
    pub(crate) units: u32,
    pub(crate) remaining: u32,
    /// Whether it would deny a request of one unit now.
    pub(crate) violated: bool,
}

/// `GET /v1/accounts/IDENTITY/audit`
#[derive(Debug, Serialize)]
pub(crate) struct AuditView {
    pub(crate) identity: String,
    /// Whether there is an audit trail.
    pub(crate) audited: bool,
    /// The newest first, each as it is in the file.
    pub(crate) lines: Vec<Value>,
    /// The time of the oldest line that was looked at: the trail may have others, from before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Value>,
}
