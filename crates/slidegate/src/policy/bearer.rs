//! Who bears the credentials of a request.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::Identity;
use crate::limit::Quotas;

/// What the credentials of a request say about who bears them, once they have been looked up and
/// checked: for [`Facts::bearer`](crate::Facts::bearer).
///
/// ```
/// use slidegate::{Bearer, Facts, Plan, Policies, Policy, Source};
///
/// let policies = Policies::builder()
///     .plan(Plan::new("free", ["60/min"]))
///     .plan(Plan::new("pro", ["600/min"]))
///     .policy(Policy::new("api").identity([Source::Customer, Source::ip()]).plans("free"))
///     .build()?;
///
/// // As the application's own table of customers says.
/// let acme = Bearer::new().customer("acme").plan("pro");
/// let facts = Facts::new(&http::Method::GET, "/").bearer(&acme);
/// let api = policies.matching(&facts).next().unwrap();
/// assert_eq!((api.identity.as_str(), &*api.plan.unwrap().name), ("customer:acme", "pro"));
/// # Ok::<(), slidegate::PolicyErrors>(())
/// ```
#[must_use]
#[derive(Debug, Clone, Default)]
pub struct Bearer {
    pub(crate) key: KeyStatus,
    pub(crate) token: TokenStatus,
    pub(crate) customer: Option<Identity>,
    pub(crate) user: Option<Identity>,
    pub(crate) plan: Option<Arc<str>>,
    pub(crate) quotas: Option<Quotas>,
}

/// What is known of a request's API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum KeyStatus {
    /// Nothing was looked up: only the policies' own [list](crate::policy::PoliciesBuilder::api_keys)
    /// says.
    #[default]
    NotSought,
    /// It was issued, and spends from this account: its customer's, or its own
    /// ([`KeyDigest::identity`](crate::policy::KeyDigest::identity)). Beside a key with its own account,
    /// the customer of a valid token counts for lists only.
    Issued(Identity),
    /// It was not issued, or is no longer valid:
    /// [`UnknownKeys`](crate::policy::UnknownKeys) says what becomes of it.
    Unknown,
    /// Its source cannot be reached, and nothing is known of it. The request is refused as unavailable if
    /// a policy counts it by API key or customer.
    Unavailable,
    /// Its source cannot be reached, nothing is known of it, and the policies' next source counts.
    Passed,
    /// It was not looked up, because too many from the same address were. The request is refused if a
    /// policy counts it by API key or customer, or would by the key's plan.
    Unchecked {
        /// When one can be looked up again.
        retry_after: Duration,
    },
}

/// What is known of a request's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TokenStatus {
    /// There is none, or it is not valid and counts as none.
    #[default]
    None,
    /// It is valid, and what it claims is the bearer's.
    Valid,
    /// It is not valid, and the request is refused for it if a policy counts it by user or customer, or
    /// would by the token's plan.
    Invalid,
    /// It cannot be checked, because its issuer's keys are not known yet. The request is refused as
    /// unavailable if a policy counts it by user or customer, or would by the token's plan.
    Unavailable,
    /// It was not checked, because too many from the same address were. The request is refused if a
    /// policy counts it by user or customer, or would by the token's plan.
    Unchecked {
        /// When one can be checked again.
        retry_after: Duration,
    },
}

impl Bearer {
    /// A bearer of whom nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The customer, whose requests spend from one account whichever key or token they have.
    pub fn customer(self, name: &str) -> Self {
        Self { customer: Some(Identity::customer(name)), ..self }
    }

    /// The user, unless the application names one.
    pub fn user(self, id: &str) -> Self {
        Self { user: Some(Identity::user(id)), ..self }
    }

    /// The plan, unless the application names one.
    pub fn plan(self, name: impl Into<Arc<str>>) -> Self {
        Self { plan: Some(name.into()), ..self }
    }

    /// Quotas in place of those of a plan, for policies that use plans.
    pub fn quotas(self, quotas: Quotas) -> Self {
        Self { quotas: Some(quotas), ..self }
    }

    /// What is known of the request's API key.
    pub fn key(self, key: KeyStatus) -> Self {
        Self { key, ..self }
    }

    /// What is known of the request's token.
    pub fn token(self, token: TokenStatus) -> Self {
        Self { token, ..self }
    }
}
