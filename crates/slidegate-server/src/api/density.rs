//! What an identity has spent over each window.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::calendar::Rfc3339;

/// `GET /v1/accounts/IDENTITY/density`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DensityView {
    pub(crate) identity: String,
    pub(crate) accounts: Vec<AccountDensity>,
}

/// What an account has spent in its windows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountDensity {
    pub(crate) policy: String,
    /// When it was read, on the store's clock.
    pub(crate) at: Rfc3339,
    /// Whether the store failed and these are the process's own ledgers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) degraded: bool,
    pub(crate) quotas: Vec<QuotaDensity>,
}

/// What is spent in the window of one quota.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QuotaDensity {
    pub(crate) quota: String,
    pub(crate) units: u32,
    pub(crate) window_ms: u64,
    /// The sum of the counts, which may be more than the units if these were lowered.
    pub(crate) spent: u32,
    /// The units spent in each of the buckets, equal parts of the window, oldest first.
    pub(crate) counts: Vec<u32>,
    /// The instants at which units come free, soonest first.
    pub(crate) free: Vec<FreedUnits>,
}

/// Units that come free together.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FreedUnits {
    pub(crate) units: u32,
    pub(crate) after_ms: u64,
}
