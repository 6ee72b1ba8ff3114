//! What can go wrong between the store and Redis.

use redis::RedisError;
use slidegate::StoreError;

/// Why Redis did not count.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// There is no connection, so nothing was asked.
    #[error("no connection to Redis: {0}")]
    Unreachable(#[source] RedisError),
    /// Redis refuses, or the connection broke.
    #[error("{}", hinted(.0))]
    Redis(#[from] RedisError),
    /// Two ledgers of one request would have the same key.
    #[error(
        "the key template {template:?} gives two ledgers of one request the key {key:?}: add <policy> or <window> to it"
    )]
    SameKey {
        /// The key.
        key: String,
        /// The template.
        template: String,
    },
    /// The reply is not what the script says.
    #[error("Redis gave an unexpected reply to a script")]
    Reply,
}

impl Failure {
    /// Whether it is about this one request, and says nothing of how Redis is.
    pub(crate) fn is_of_the_request(&self) -> bool {
        match self {
            Self::Unreachable(_) => false,
            Self::Redis(error) => matches!(error.code(), Some("WRONGTYPE" | "CROSSSLOT")),
            Self::SameKey { .. } | Self::Reply => true,
        }
    }

    /// What the server calls its refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Redis(error) => error.code(),
            _ => None,
        }
    }

    /// The failure that made a store's error, if it was one.
    pub(crate) fn behind(error: &StoreError) -> Option<&Self> {
        match error {
            StoreError::Unavailable(cause) => cause.downcast_ref(),
            _ => None,
        }
    }
}

/// An error of Redis, with what to do about it where that is not plain.
fn hinted(error: &RedisError) -> String {
    let hint = match error.code() {
        Some("WRONGTYPE") => {
            " (the key has something else, perhaps a ledger in the other layout: use another key template, or wait until such keys are gone)"
        }
        Some("OOM") => " (give Redis more memory, or an instance of its own)",
        Some("NOPERM") => " (docs/redis.md lists what the user must be allowed to do)",
        Some("READONLY") => " (this is a replica: connect to the primary)",
        _ => "",
    };
    format!("{error}{hint}")
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        Self::Unavailable(Box::new(failure))
    }
}
