//! Instants and lengths of time as people and programs write them.

use std::time::Duration;

use slidegate::limit::Period;
pub(crate) use slidegate_replay::Rfc3339;

/// A length in milliseconds, rounded up: what is shown to end then has ended.
pub(crate) fn ceil_ms(length: Duration) -> u64 {
    Period(length).ceil_milliseconds()
}
