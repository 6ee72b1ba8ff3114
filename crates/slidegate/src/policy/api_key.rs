//! The API keys that an operator has issued.

use std::str::FromStr;
use std::sync::Arc;

use crate::identity;
use crate::limit::{Name, Timestamp};
use crate::policy::{CheckedPlan, Identity, ParseError};

/// An API key that the operator has issued, as it is written down. Only its digest is kept.
///
/// ```
/// use slidegate::policy::ApiKey;
/// use slidegate::{Plan, Policies, Policy, Quota, Source};
///
/// let policies = Policies::builder()
///     .plan(Plan::new("pro", [Quota::per_minute(600)]))
///     .api_keys([
///         ApiKey::new("k-5f2c9a", "pro").name("acme"),
///         ApiKey::from_digest("53d5fdfd7de5a25b4a4e26d0b1dcb2f8", "pro")?.name("initech"),
///     ])
///     .policy(Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("pro"))
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ApiKey {
    pub(crate) identity: Identity,
    pub(crate) hash: KeyHash,
    pub(crate) name: Option<String>,
    pub(crate) customer: Option<String>,
    pub(crate) plan: Option<String>,
    pub(crate) expires: Option<Timestamp>,
}

impl ApiKey {
    /// A key, and the plan of requests that have it.
    pub fn new(key: &str, plan: impl Into<String>) -> Self {
        let hash = KeyHash::Slidegate;
        Self::of_digest(hash, hash.digest(key.as_bytes())).plan(plan)
    }

    /// The same for a key of which only the digest is at hand: 32 hexadecimal digits, the value of
    /// [`Identity::api_key`].
    pub fn from_digest(digest: &str, plan: impl Into<String>) -> Result<Self, ApiKeyDigestError> {
        let hash = KeyHash::Slidegate;
        Ok(Self::of_digest(hash, hash.parse(digest)?).plan(plan))
    }

    /// A key of which a digest is at hand. Without a plan, the policy's default applies.
    pub fn of_digest(hash: KeyHash, digest: KeyDigest) -> Self {
        let identity = digest.identity();
        Self { identity, hash, name: None, customer: None, plan: None, expires: None }
    }

    /// The plan of requests that have it.
    #[must_use]
    pub fn plan(self, plan: impl Into<String>) -> Self {
        Self { plan: Some(plan.into()), ..self }
    }

    /// The customer who has it: all keys of a customer spend from one account.
    #[must_use]
    pub fn customer(self, name: impl Into<String>) -> Self {
        Self { customer: Some(name.into()), ..self }
    }

    /// When it ends (exclusive). From then on it counts as one that was not issued.
    #[must_use]
    pub fn expires(self, at: Timestamp) -> Self {
        Self { expires: Some(at), ..self }
    }

    /// What operators are shown in place of the digest. The account stays that of the digest.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Whose spending is counted for requests with this key, unless it is a customer's.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// How a table digests its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyHash {
    /// As [`Identity::api_key`] does: 32 hexadecimal digits.
    #[default]
    Slidegate,
    /// SHA-256 of the key, as most tables have it: 64 hexadecimal digits.
    Sha256,
}

/// The digest of an API key, which stands for the key wherever keys are looked up. Of SHA-256 the first
/// half is kept: enough that no two keys meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyDigest(pub [u8; 16]);

impl KeyHash {
    /// The digest of a key. White space around the key is not part of it.
    pub fn digest(self, key: &[u8]) -> KeyDigest {
        let key = key.trim_ascii();
        let digest = match self {
            Self::Slidegate => identity::digest("api-key", key),
            Self::Sha256 => identity::sha256(key),
        };
        KeyDigest(digest.to_be_bytes())
    }

    /// The digest that a text has in hexadecimal digits, of either case.
    pub fn parse(self, text: &str) -> Result<KeyDigest, ApiKeyDigestError> {
        let digits = match self {
            Self::Slidegate => 32,
            Self::Sha256 => 64,
        };
        let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let half = is_hex.then(|| u128::from_str_radix(&text[..32], 16).ok()).flatten();
        half.map(|half| KeyDigest(half.to_be_bytes())).ok_or(ApiKeyDigestError { digits })
    }

    /// The hash that a digest in hexadecimal digits is of, by their number.
    pub fn of_digest(text: &str) -> Self {
        if text.len() == 64 { Self::Sha256 } else { Self::Slidegate }
    }

    /// The digest of a key in hexadecimal digits, as a table has it.
    pub fn hex(self, key: &[u8]) -> String {
        match self {
            Self::Slidegate => format!("{:032x}", u128::from_be_bytes(self.digest(key).0)),
            Self::Sha256 => identity::sha256_hex(key.trim_ascii()),
        }
    }
}

impl FromStr for KeyHash {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "slidegate" => Ok(Self::Slidegate),
            "sha256" => Ok(Self::Sha256),
            _ => Err(ParseError::new(text, "how keys are digested: expected slidegate or sha256")),
        }
    }
}

impl KeyDigest {
    /// The identity of a key that is no customer's.
    pub fn identity(self) -> Identity {
        Identity::key_digest(u128::from_be_bytes(self.0))
    }
}

/// A text that is not the digest of an API key. It may be the key itself, so it is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the digest of an API key, which has {digits} hexadecimal digits")]
pub struct ApiKeyDigestError {
    digits: usize,
}

/// What becomes of an API key that is not among those of
/// [`PoliciesBuilder::api_keys`](crate::policy::PoliciesBuilder::api_keys).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UnknownKeys {
    /// It is no identity: a policy counts the request by its next source, and by `anonymous` if it
    /// has no other. The default if there are any keys, so that clients get no new accounts by
    /// making keys up.
    Ignore,
    /// Each key has its own account. The default if there are no keys.
    #[default]
    Own,
    /// The request is refused with `401 Unauthorized`, if a policy for it counts by API key.
    Refuse,
}

/// An API key that has been checked.
#[derive(Debug)]
pub(crate) struct CheckedKey {
    pub(crate) name: Option<Name>,
    pub(crate) customer: Option<Identity>,
    pub(crate) plan: Option<Arc<CheckedPlan>>,
    pub(crate) expires: Option<Timestamp>,
}

impl CheckedKey {
    /// Whether it has not ended by then.
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}
