//! The verdict of a request as a metric label.

use http::StatusCode;
use slidegate::{Block, Decision};

use super::RequestOutcome;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerdictLabel {
    Allow,
    /// A quota was used up.
    Deny,
    Block(BlockReason),
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
    /// By an operator's order.
    Suspended,
    /// One that this version does not know by name.
    Other,
}

impl VerdictLabel {
    /// The number of labels.
    pub(super) const COUNT: usize = Self::NAMES.len();
    pub(super) const NAMES: [&str; 5] = ["allow", "deny", "block", "unavailable", "none"];

    #[inline]
    pub(super) fn of(answered: &RequestOutcome<'_>) -> Self {
        match answered.decision {
            Some(decision) => Self::of_decision(decision),
            None if answered.status == StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            None => Self::None,
        }
    }

    fn of_decision(decision: &Decision) -> Self {
        match decision.verdict() {
            slidegate::Verdict::Allow => Self::Allow,
            slidegate::Verdict::Deny { .. } => Self::Deny,
            slidegate::Verdict::Block(Block::Listed) => Self::Block(BlockReason::Listed),
            slidegate::Verdict::Block(Block::CostAboveUnits) => Self::Block(BlockReason::Cost),
            slidegate::Verdict::Block(Block::Banned { .. }) => Self::Block(BlockReason::Banned),
            slidegate::Verdict::Block(Block::Suspended { .. }) => {
                Self::Block(BlockReason::Suspended)
            }
            _ => Self::Block(BlockReason::Other),
        }
    }

    pub(super) fn index(self) -> usize {
        match self {
            Self::Allow => 0,
            Self::Deny => 1,
            Self::Block(_) => 2,
            Self::Unavailable => 3,
            Self::None => 4,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

impl BlockReason {
    pub(super) const COUNT: usize = Self::NAMES.len();
    pub(super) const NAMES: [&str; 5] = ["listed", "cost", "banned", "suspended", "other"];

    pub(super) fn index(self) -> usize {
        self as usize
    }
}
