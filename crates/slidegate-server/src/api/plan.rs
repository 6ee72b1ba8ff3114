//! What a reload would change.

use serde::{Deserialize, Serialize};

use super::is_default;

/// The body of `POST /v1/plan`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct PlanBody {
    /// The text of the file.
    pub(crate) config: String,
    /// What errors call it.
    #[serde(default = "unnamed", skip_serializing_if = "is_default")]
    pub(crate) name: String,
}

fn unnamed() -> String {
    "config".to_owned()
}

/// `POST /v1/plan`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReloadPlan {
    #[serde(flatten)]
    pub(crate) changes: ReloadChanges,
    pub(crate) warnings: Vec<String>,
    pub(crate) accounts: AccountsOverQuota,
}

/// What a reload changes, what becomes of the history of accounts, and the sections that only a
/// restart changes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReloadChanges {
    pub(crate) changes: Vec<String>,
    pub(crate) history: Vec<String>,
    pub(crate) restart: Vec<String>,
}

/// Of the accounts that this server has seen near a quota or denied, those that are over.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct AccountsOverQuota {
    /// How many were looked at, 100 at most.
    pub(crate) sampled: usize,
    /// How many of these the store could not read.
    pub(crate) unread: usize,
    pub(crate) over: Vec<AccountOverQuota>,
}

/// An account that has spent more than a new quota has.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountOverQuota {
    pub(crate) identity: String,
    pub(crate) policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<String>,
    pub(crate) spent: u32,
    /// The new quota.
    pub(crate) quota: String,
    pub(crate) units: u32,
    /// Of the quota with the same window before, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) units_before: Option<u32>,
}
