//! What a source of keys says about a key.

use std::sync::Arc;
use std::time::Duration;

use slidegate::Timestamp;
use slidegate::limit::Quotas;

/// A key that was issued, as a source has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// The customer who has it; without one, the key has its own account.
    pub customer: Option<Arc<str>>,
    /// The name of the customer's plan.
    pub plan: Option<Arc<str>>,
    /// Quotas in place of those of a plan.
    pub quotas: Option<Quotas>,
    /// When it ends (exclusive), in whole seconds.
    pub expires: Option<Timestamp>,
}

/// What a source says about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyAnswer {
    /// It was issued.
    Known(KnownKey),
    /// It was not issued, or was revoked.
    Unknown,
    /// The source cannot be asked, and nothing is known of the key.
    Unavailable,
    /// The source was not asked, because too many keys of this address were looked up.
    TooMany {
        /// How long until another one can be.
        retry_after: Duration,
    },
}
