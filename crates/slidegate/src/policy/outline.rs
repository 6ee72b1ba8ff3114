//! What policies say, for those who look at them from outside.

use std::borrow::Cow;

use http::{HeaderName, Method};

use crate::limit::name::Name;
use crate::limit::quota::Quota;
use crate::policy::access_list::AccessList;
use crate::policy::api_key::{CheckedKey, UnknownKeys};
use crate::policy::ban::Ban;
use crate::policy::identity::Identity;
use crate::policy::matching::{CheckedPolicy, Limits, Policies};
use crate::policy::plan::CheckedPlan;
use crate::policy::source::Source;
use crate::policy::{Cost, OnStoreError, Scope};

/// What one policy says.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PolicyOutline {
    /// Its name.
    pub name: Name,
    /// The methods that it is for; empty for all.
    pub methods: Vec<Method>,
    /// The patterns of paths that it is for; empty for all.
    pub paths: Vec<String>,
    /// Whose requests are counted together: the first of these that a request has.
    pub identity: Vec<Source>,
    /// Its quotas; empty if it goes by plans.
    pub quotas: Vec<Quota>,
    /// The plan of requests that have no other, if it goes by plans.
    pub default_plan: Option<Name>,
    /// The header that names the plan.
    pub plan_header: Option<HeaderName>,
    /// What each request costs.
    pub cost: Cost,
    /// Whether denied requests count too.
    pub count_denied: bool,
    /// When an identity is banned.
    pub ban: Option<Ban>,
    /// Whether it only watches.
    pub shadow: bool,
    /// Where its accounts are kept.
    pub scope: Scope,
    /// Whether response headers tell of it.
    pub in_headers: bool,
    /// What happens when the store cannot count.
    pub on_store_error: OnStoreError,
    /// Requests that this policy, and no other, passes over.
    pub exempt: AccessList,
}

impl Policies {
    /// What each policy says, in order.
    pub fn outlines(&self) -> impl Iterator<Item = PolicyOutline> {
        self.policies.iter().map(PolicyOutline::of)
    }

    /// All plans, by name.
    pub fn plans(&self) -> Vec<&CheckedPlan> {
        let mut plans: Vec<&CheckedPlan> = self.plans.values().map(|plan| &**plan).collect();
        plans.sort_unstable_by_key(|plan| &plan.name);
        plans
    }

    /// The API keys that have a plan, as the identities that they are, in no order.
    pub fn plan_keys(&self) -> impl Iterator<Item = (&Identity, &Name)> {
        self.api_keys.iter().map(|(identity, key)| (identity, &key.plan.name))
    }

    /// What becomes of API keys that nobody has issued.
    pub fn unknown_keys(&self) -> UnknownKeys {
        self.unknown_keys
    }

    /// The header in which a trusted peer names the user.
    pub fn user_header(&self) -> Option<&HeaderName> {
        self.user_header.as_ref()
    }

    /// The identity as an operator reads it: an API key that has a name as `api-key:NAME`, any
    /// other as it is.
    pub fn shown<'a>(&self, identity: &'a Identity) -> Cow<'a, str> {
        let key = (identity.kind() == "api-key").then(|| self.api_keys.get(identity)).flatten();
        match key.and_then(|key| key.name.as_ref()) {
            Some(name) => Cow::Owned(format!("api-key:{name}")),
            None => Cow::Borrowed(identity.as_str()),
        }
    }

    /// The API key that has this name.
    pub fn key_named(&self, name: &str) -> Option<Identity> {
        let has_name = |key: &CheckedKey| key.name.as_deref() == Some(name);
        self.api_keys.iter().find(|(_, key)| has_name(key)).map(|(identity, _)| *identity)
    }

    /// The API key whose name has this digest, which is [`Identity::api_key`] of the name: a client
    /// that cannot tell a name from a key that was typed by mistake sends this. Digests every name.
    pub fn key_named_by_digest(&self, digest: &Identity) -> Option<Identity> {
        let has_digest = |name: &Name| Identity::api_key(name.as_bytes()) == *digest;
        let mut keys = self.api_keys.iter();
        keys.find(|(_, key)| key.name.as_ref().is_some_and(has_digest))
            .map(|(identity, _)| *identity)
    }

    /// Who passes uncounted.
    pub fn exempt(&self) -> &AccessList {
        self.exempt.list()
    }

    /// Who may not pass.
    pub fn blocked(&self) -> &AccessList {
        self.blocked.list()
    }
}

impl PolicyOutline {
    fn of(policy: &CheckedPolicy) -> Self {
        let (quotas, default_plan, plan_header) = match &policy.limits {
            Limits::Quotas(quotas) => (quotas.as_slice().to_vec(), None, None),
            Limits::Plans { header, default } => {
                (Vec::new(), Some(default.name.clone()), header.clone())
            }
        };
        Self {
            name: policy.name.clone(),
            methods: policy.methods.clone(),
            paths: policy.patterns.clone(),
            identity: policy.sources.clone(),
            quotas,
            default_plan,
            plan_header,
            cost: policy.cost,
            count_denied: policy.count_denied,
            ban: policy.ban,
            shadow: policy.shadow,
            scope: policy.scope,
            in_headers: policy.in_headers,
            on_store_error: policy.on_store_error,
            exempt: policy.exempt.list().clone(),
        }
    }
}
