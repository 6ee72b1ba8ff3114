//! When an override ends.

use std::time::Duration;

use slidegate_redis::SharedMap;

use super::error::OverrideError;

/// Expiry when an override is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// This long after it is created.
    For(Duration),
    /// Expiry this instant, in Unix milliseconds.
    At(u64),
}

impl Expiry {
    /// The end, in Unix milliseconds.
    pub(crate) fn end_ms(self, now_ms: u64) -> u64 {
        match self {
            Self::For(lasting) => {
                now_ms.saturating_add(u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX))
            }
            Self::At(until_ms) => until_ms,
        }
    }

    /// The time until then.
    pub(super) fn lasting(self, now_ms: u64) -> Result<Duration, OverrideError> {
        let lasting = match self {
            Self::For(lasting) => lasting,
            Self::At(until_ms) => Duration::from_millis(until_ms.saturating_sub(now_ms)),
        };
        if lasting.is_zero() {
            return Err(OverrideError::Past { now_ms });
        }
        if lasting > SharedMap::LONGEST {
            return Err(OverrideError::TooLong);
        }
        Ok(lasting)
    }
}
