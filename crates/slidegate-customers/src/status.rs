//! How a source is doing.

use std::time::Duration;

/// How a source of keys is doing, or an issuer of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceStatus {
    /// How long ago it last answered; none if it never has.
    pub answered_ago: Option<Duration>,
    /// What is wrong with it now: what is known goes on to count.
    pub error: Option<String>,
    /// How many keys are known from it.
    pub keys: usize,
}

impl SourceStatus {
    /// Whether it cannot be asked now.
    pub fn is_degraded(&self) -> bool {
        self.error.is_some()
    }
}
