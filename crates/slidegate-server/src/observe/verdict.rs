//! The verdict on a request as a label of metrics and logs.

use http::StatusCode;
use slidegate::{Block, Decision, Verdict};

use super::RequestOutcome;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerdictLabel {
    Allow,
    /// A quota was used up.
    Deny,
    Block,
    /// The store failed, and a policy has `on_store_error = "deny"`.
    Unavailable,
    /// The gate was not asked.
    None,
}

/// Why a request may not pass, whatever its quotas have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockReason {
    Listed,
    Cost,
    Banned,
    /// By an operator's override.
    Suspended,
    /// One that this version has no name for.
    Other,
}

impl VerdictLabel {
    /// In the order of the variants.
    pub(super) const NAMES: [&str; 5] = ["allow", "deny", "block", "unavailable", "none"];

    pub(super) fn of(outcome: &RequestOutcome<'_>) -> Self {
        match outcome.decision.map(Decision::verdict) {
            Some(Verdict::Allow) => Self::Allow,
            Some(Verdict::Deny { .. }) => Self::Deny,
            Some(_) => Self::Block,
            None if outcome.status == StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            None => Self::None,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl BlockReason {
    /// In the order of the variants.
    pub(super) const NAMES: [&str; 5] = ["listed", "cost", "banned", "suspended", "other"];

    /// None if the request was not blocked.
    pub(super) fn of(decision: &Decision) -> Option<Self> {
        let Verdict::Block(block) = decision.verdict() else { return None };
        Some(match block {
            Block::Listed => Self::Listed,
            Block::CostAboveUnits => Self::Cost,
            Block::Banned { .. } => Self::Banned,
            Block::Suspended { .. } => Self::Suspended,
            _ => Self::Other,
        })
    }

    pub(super) fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}
