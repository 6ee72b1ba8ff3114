//! The JSON of the operator's API, one type for each answer: the server writes them and the command
//! line reads them. What does not apply is left out.

use std::net::IpAddr;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use slidegate::{Account, CandidateStanding, Inspection, Policies, Standing};

use crate::calendar::{Rfc3339, ceil_ms};
use crate::overrides::OverrideRecord;

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

/// `GET /v1/overrides`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverrideList {
    pub(crate) overrides: Vec<OverrideView>,
    /// Whether there may be others: Redis is unreachable, and these were read last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) stale: bool,
}

/// An override in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OverrideView {
    pub(crate) id: String,
    pub(crate) action: String,
    pub(crate) identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) units: Option<NonZeroU32>,
    /// Of a grant: the window of the quota that it raises, such as `day`, or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<String>,
    pub(crate) until: Rfc3339,
    pub(crate) ends_in_ms: u64,
    pub(crate) reason: String,
    pub(crate) created: Rfc3339,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<IpAddr>,
}

/// `POST /v1/accounts/IDENTITY/grant`, `exempt` and `ban`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverrideCreated {
    #[serde(rename = "override")]
    pub(crate) created: OverrideView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replaced: Option<OverrideView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<OverrideView>,
}

/// `DELETE /v1/overrides/ID`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverrideLifted {
    pub(crate) lifted: OverrideView,
    pub(crate) reason: String,
}

/// `POST /v1/accounts/IDENTITY/reset`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountsReset {
    /// The identity.
    pub(crate) reset: String,
    pub(crate) policies: Vec<String>,
    /// Those of the policies under which nothing was spent.
    pub(crate) nothing_spent: Vec<String>,
    pub(crate) reason: String,
}

impl AccountView {
    pub(crate) fn new(account: &Account, inspection: &Inspection, policies: &Policies) -> Self {
        let shadow = policies.iter().any(|p| p.name == account.policy && p.shadow);
        let standings = inspection.standings.iter().zip(&inspection.granted);
        let quotas: Vec<QuotaView> =
            standings.map(|(standing, granted)| QuotaView::of(standing, *granted)).collect();
        let shares = quotas.iter().map(|quota| f64::from(quota.spent) / f64::from(quota.units));
        let used = shares.fold(0.0, f64::max);
        Self {
            identity: policies.shown(&account.identity).into_owned(),
            policy: account.policy.to_string(),
            plan: inspection.plan.as_ref().map(ToString::to_string),
            shadow,
            // Rounded to thousandths.
            used: (used * 1000.0).round() / 1000.0,
            quotas,
            candidate: inspection.candidate.iter().map(CandidateView::of).collect(),
            banned_for_ms: inspection.banned.map(ceil_ms),
            exempt_for_ms: inspection.exempt.map(ceil_ms),
            degraded: inspection.degraded,
            denials: None,
            denials_overcount: None,
        }
    }

    /// Whether nothing was spent and no override applies.
    pub(crate) fn is_untouched(&self) -> bool {
        let touched = self.quotas.iter().any(|quota| quota.spent > 0 || quota.granted > 0);
        let overridden = self.banned_for_ms.is_some() || self.exempt_for_ms.is_some();
        !touched && !overridden
    }
}

impl QuotaView {
    fn of(standing: &Standing, granted: u32) -> Self {
        let units = standing.quota().units().get();
        Self {
            quota: standing.quota().to_string(),
            units,
            granted,
            spent: units.saturating_sub(standing.remaining()),
            remaining: standing.remaining(),
            retry_after_ms: ceil_ms(standing.retry_after()),
            reset_after_ms: ceil_ms(standing.reset_after()),
        }
    }
}

impl CandidateView {
    fn of(standing: &CandidateStanding) -> Self {
        let CandidateStanding { quota, remaining, violated } = *standing;
        Self { quota: quota.to_string(), units: quota.units().get(), remaining, violated }
    }
}

impl OverrideView {
    pub(crate) fn at(now_ms: u64, record: &OverrideRecord, policies: &Policies) -> Self {
        Self {
            id: record.id.clone(),
            action: record.action.name().to_owned(),
            identity: policies.shown(&record.target.identity).into_owned(),
            policy: record.target.policy.as_ref().map(ToString::to_string),
            units: record.action.units(),
            quota: record.action.quota(),
            until: Rfc3339::from_millis(record.until_ms),
            ends_in_ms: record.until_ms.saturating_sub(now_ms),
            reason: record.actor.reason.clone(),
            created: Rfc3339::from_millis(record.created_ms),
            by: record.actor.by,
        }
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
