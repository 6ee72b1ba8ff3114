//! Accounts and overrides as an operator is shown them.

use std::time::Duration;

use serde::Serialize;
use slidegate::{Account, Inspection, Policies, Standing, Timestamp};

use crate::calendar::Rfc3339;
use crate::overrides::OverrideRecord;

/// Where an account stands. What does not apply is left out.
#[derive(Debug, Serialize)]
pub(super) struct AccountView {
    identity: String,
    policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    /// Whether the policy only watches.
    #[serde(skip_serializing_if = "is_false")]
    shadow: bool,
    /// How much is spent of the quota that is spent most, from 0 to 1.
    used: f64,
    quotas: Vec<QuotaView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    banned_for_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exempt_for_ms: Option<u64>,
    /// How many units an operator has added to each quota.
    #[serde(skip_serializing_if = "is_zero")]
    granted: u32,
    /// Whether the store could not tell, and this is what the process knows by itself.
    #[serde(skip_serializing_if = "is_false")]
    degraded: bool,
    #[serde(flatten)]
    denials: Option<Denials>,
}

/// How often an account was denied of late.
#[derive(Debug, Serialize)]
pub(super) struct Denials {
    pub(super) denials: u64,
    /// By how much that may be too many.
    pub(super) denials_overcount: u64,
}

#[derive(Debug, Serialize)]
struct QuotaView {
    quota: String,
    units: u32,
    spent: u32,
    remaining: u32,
    retry_after_ms: u64,
    reset_after_ms: u64,
}

/// An override in force.
#[derive(Debug, Serialize)]
pub(super) struct OverrideView {
    id: String,
    action: &'static str,
    identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    units: Option<u32>,
    until: Rfc3339,
    ends_in_ms: u64,
    reason: String,
    created: Rfc3339,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<std::net::IpAddr>,
}

impl AccountView {
    pub(super) fn new(account: &Account, inspection: &Inspection, policies: &Policies) -> Self {
        let quotas: Vec<QuotaView> = inspection.standings.iter().map(QuotaView::of).collect();
        let shares = quotas.iter().map(|quota| f64::from(quota.spent) / f64::from(quota.units));
        let used = shares.fold(0.0, f64::max);
        Self {
            identity: policies.shown(&account.identity).into_owned(),
            policy: account.policy.to_string(),
            plan: inspection.plan.as_ref().map(ToString::to_string),
            shadow: false,
            // Thousandths are as fine as anybody reads.
            used: (used * 1000.0).round() / 1000.0,
            quotas,
            banned_for_ms: inspection.banned.map(rounded_up_ms),
            exempt_for_ms: inspection.exempt.map(rounded_up_ms),
            granted: inspection.granted,
            degraded: inspection.degraded,
            denials: None,
        }
    }

    pub(super) fn shadow(self, shadow: bool) -> Self {
        Self { shadow, ..self }
    }

    pub(super) fn denials(self, denials: Denials) -> Self {
        Self { denials: Some(denials), ..self }
    }

    pub(super) fn used(&self) -> f64 {
        self.used
    }

    /// Whether nothing was spent, and nobody has done anything to it.
    pub(super) fn is_untouched(&self) -> bool {
        let spent = self.quotas.iter().any(|quota| quota.spent > 0);
        let ordered = self.banned_for_ms.is_some() || self.exempt_for_ms.is_some();
        !spent && !ordered && self.granted == 0
    }
}

impl QuotaView {
    fn of(standing: &Standing) -> Self {
        let units = standing.quota().units().get();
        Self {
            quota: standing.quota().to_string(),
            units,
            spent: units.saturating_sub(standing.remaining()),
            remaining: standing.remaining(),
            retry_after_ms: rounded_up_ms(standing.retry_after()),
            reset_after_ms: rounded_up_ms(standing.reset_after()),
        }
    }
}

impl OverrideView {
    pub(super) fn at(now_ms: u64, record: &OverrideRecord, policies: &Policies) -> Self {
        Self {
            id: record.id.clone(),
            action: record.action.word(),
            identity: policies.shown(&record.target.identity).into_owned(),
            policy: record.target.policy.as_ref().map(ToString::to_string),
            units: record.action.units().map(u32::from),
            until: instant(record.until_ms),
            ends_in_ms: record.until_ms.saturating_sub(now_ms),
            reason: record.actor.reason.clone(),
            created: instant(record.created_ms),
            by: record.actor.by,
        }
    }
}

fn instant(ms: u64) -> Rfc3339 {
    Rfc3339(Timestamp::from_millis(ms))
}

fn rounded_up_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}
