//! Instants and lengths of time as people and programs write them.

use std::time::Duration;

pub(crate) use slidegate_replay::Rfc3339;

/// A length in milliseconds, rounded up: what is shown to end then has ended.
pub(crate) fn ceil_ms(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
