//! What operators did.

use std::net::IpAddr;
use std::num::NonZeroU32;

use serde::Serialize;

use crate::calendar::Rfc3339;

/// Something that an operator did, or tried to do, as the audit trail has it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Operation {
    pub(crate) action: &'static str,
    pub(crate) outcome: OperationOutcome,
    /// The operator's address; one on a Unix socket has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<IpAddr>,
    /// The id of the override that it is about.
    #[serde(rename = "id", skip_serializing_if = "Option::is_none")]
    pub(crate) override_id: Option<String>,
    /// What that override does; unknown if there is no override of that id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// As operators read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) units: Option<NonZeroU32>,
    /// The window of the quota that has them more, or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<String>,
    /// The end of the override.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Rfc3339>,
    pub(crate) reason: String,
    /// What was wrong, if it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OperationOutcome {
    #[default]
    Done,
    /// It was invalid.
    Refused,
    /// It could not be done now.
    Failed,
}

/// What became of units that were to be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SettlementOutcome {
    Done,
    /// They were settled before.
    Repeated,
    /// There was nothing to settle by that id.
    Refused,
    /// The store failed.
    Failed,
}

impl SettlementOutcome {
    pub(super) const ALL: [Self; 4] = [Self::Done, Self::Repeated, Self::Refused, Self::Failed];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Repeated => "repeated",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl OperationOutcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl Operation {
    pub(super) fn log(&self) {
        tracing::info!(
            target: "slidegate::operator",
            action = self.action,
            outcome = self.outcome.as_str(),
            by = self.by.map(tracing::field::display),
            id = self.override_id,
            kind = self.kind,
            identity = self.identity,
            policy = self.policy,
            units = self.units.map(NonZeroU32::get),
            until = self.until.map(tracing::field::display),
            reason = self.reason,
            problem = self.problem,
            "operator"
        );
    }
}
