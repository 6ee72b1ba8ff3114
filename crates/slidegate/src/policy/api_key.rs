//! The API keys that an operator has issued.

use std::sync::Arc;

use crate::limit::name::Name;
use crate::policy::{CheckedPlan, Identity};

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
    pub(crate) name: Option<String>,
    pub(crate) plan: String,
}

impl ApiKey {
    /// A key, and the plan of requests that have it.
    pub fn new(key: &str, plan: impl Into<String>) -> Self {
        Self { identity: Identity::api_key(key.as_bytes()), name: None, plan: plan.into() }
    }

    /// The same for a key of which only the digest is at hand: 32 hexadecimal digits, the value of
    /// [`Identity::api_key`].
    pub fn from_digest(digest: &str, plan: impl Into<String>) -> Result<Self, ApiKeyDigestError> {
        let digest = digest.to_ascii_lowercase();
        if !Identity::is_digest(&digest) {
            return Err(ApiKeyDigestError);
        }
        let identity = format!("api-key:{digest}").parse().map_err(|_| ApiKeyDigestError)?;
        Ok(Self { identity, name: None, plan: plan.into() })
    }

    /// The same for a key whose identity is known already.
    pub fn of_identity(identity: Identity, plan: impl Into<String>) -> Self {
        Self { identity, name: None, plan: plan.into() }
    }

    /// What operators are shown in place of the digest. The account stays that of the digest.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Whose spending is counted for requests with this key.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// A text that is not the digest of an API key. It may be the key itself, so it is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the digest of an API key, which has 32 hexadecimal digits")]
pub struct ApiKeyDigestError;

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
    pub(crate) plan: Arc<CheckedPlan>,
}
