//! How long an order is to hold.

use std::time::Duration;

use slidegate_redis::Board;

use super::error::DeskError;

/// Until when an order is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// From when it is given on.
    For(Duration),
    /// Until this instant, in Unix milliseconds.
    At(u64),
}

impl Until {
    /// How long that is.
    pub(super) fn lasting(self, now_ms: u64) -> Result<Duration, DeskError> {
        let lasting = match self {
            Self::For(lasting) => lasting,
            Self::At(until_ms) => Duration::from_millis(until_ms.saturating_sub(now_ms)),
        };
        if lasting.is_zero() {
            return Err(DeskError::Past { now_ms });
        }
        if lasting > Board::LONGEST {
            return Err(DeskError::TooLong);
        }
        Ok(lasting)
    }
}
