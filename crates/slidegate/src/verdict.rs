//! The yes or no to a request.

use std::time::Duration;

/// The yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Verdict {
    /// The request may pass, and its cost is spent.
    #[default]
    Allow,
    /// A quota is used up. The request would be denied at any moment before `retry_after`, and is
    /// allowed then if nothing else is spent.
    Deny {
        /// How long until then.
        retry_after: Duration,
    },
    /// The request may not pass, whatever its quotas have left.
    Block(Block),
}

/// Why a request may not pass, whatever its quotas have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Block {
    /// The operator has listed the client as blocked.
    Listed,
    /// The request has an API key that was not issued, and such are
    /// [refused](crate::policy::UnknownKeys::Refuse).
    UnknownKey,
    /// The source of API keys, or the issuer of tokens, cannot be reached, and nothing is known of the
    /// request's: it is to be refused as unavailable.
    KeysUnavailable,
    /// The request has a token that is not valid, and such are refused.
    InvalidToken,
    /// The request has an API key that was not looked up or a token that was not checked, because too
    /// many of its address were.
    UncheckedCredentials {
        /// When one can be looked up or checked again.
        retry_after: Duration,
    },
    /// The request costs more than a quota allows in a whole window.
    CostAboveUnits,
    /// The identity was denied too often under a policy with a ban.
    Banned {
        /// How long until the ban has ended, and until the quotas have room again that had none
        /// when it began.
        retry_after: Duration,
    },
    /// An operator has banned the identity by an [override](crate::policy::Override).
    Suspended {
        /// How long until the override has ended.
        retry_after: Duration,
    },
}
