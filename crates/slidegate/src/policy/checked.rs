//! A set of policies that has been checked, for those who look at it from outside.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};

use crate::limit::{Account, Name, Quota, Quotas, Timestamp};
use crate::policy::api_key::{CheckedKey, UnknownKeys};
use crate::policy::descriptors::Descriptors;
use crate::policy::matching::Skip;
use crate::policy::paths::Paths;
use crate::policy::{
    AccessList, Ban, CheckedPlan, Consistency, Cost, Facts, Identity, OnStoreError, PathReading,
    Policies, Prefixes, ResponseRule, Scope, Source,
};

/// A policy that has been checked.
#[derive(Debug)]
#[non_exhaustive]
pub struct CheckedPolicy {
    /// Its name.
    pub name: Name,
    /// The methods that it is for; empty for all.
    pub methods: Vec<Method>,
    pub(crate) paths: Paths,
    /// The descriptors that it matches; such a policy matches no requests.
    pub descriptors: Option<Descriptors>,
    /// Whose requests are counted together: the first of these that a request has.
    pub identity: Vec<Source>,
    /// Whether it skips requests that have none of them. Else they share one account.
    pub skip_anonymous: bool,
    pub(crate) limits: Limits,
    /// Quotas that are counted beside those in force and never enforced.
    pub candidate: Option<Quotas>,
    /// A quota for each window that an account may have a ledger for, under whichever plan. If units
    /// are leased, the windows of the ledgers are [longer](Consistency::ledgers).
    pub windows: Quotas,
    /// What each request costs.
    pub cost: Cost,
    /// Whether denied requests count too.
    pub count_denied: bool,
    /// What the response changes about the cost.
    pub response: Option<Arc<ResponseRule>>,
    /// Whether a descriptor's cost above one is spent only if it fits.
    pub admit_only: bool,
    /// When an identity is banned. A shadow policy bans no identity.
    pub ban: Option<Ban>,
    /// Whether it is counted but never enforced.
    pub shadow: bool,
    /// Where its accounts are kept.
    pub scope: Scope,
    /// Whether each request waits for the store.
    pub consistency: Consistency,
    /// The longest that a prefetched unit may be used, under whichever plan, if units may be prefetched.
    pub lease: Option<Duration>,
    /// Whether it appears in response headers.
    pub in_headers: bool,
    /// What happens when the store cannot count.
    pub on_store_error: OnStoreError,
    /// Requests that this policy, and no other, skips.
    pub exempt: AccessList,
}

/// Where a policy's quotas come from.
#[derive(Debug)]
pub(crate) enum Limits {
    Quotas(Quotas),
    Plans {
        header: Option<HeaderName>,
        default: Arc<CheckedPlan>,
    },
    /// From each charge. Of an account without a charge, the function tells them.
    CallerQuotas(fn(&Identity) -> Quotas),
}

impl CheckedPolicy {
    /// The patterns of paths that it is for; empty for all.
    pub fn paths(&self) -> &[String] {
        &self.paths.patterns
    }

    /// Its quotas; empty if it uses plans, or if callers supply the quotas.
    pub fn quotas(&self) -> &[Quota] {
        match &self.limits {
            Limits::Quotas(quotas) => quotas.as_slice(),
            Limits::Plans { .. } | Limits::CallerQuotas(_) => &[],
        }
    }

    /// The plan of requests that have no other, if it uses plans.
    pub fn default_plan(&self) -> Option<&CheckedPlan> {
        match &self.limits {
            Limits::Plans { default, .. } => Some(default),
            Limits::Quotas(_) | Limits::CallerQuotas(_) => None,
        }
    }

    /// The header that names the plan.
    pub fn plan_header(&self) -> Option<&HeaderName> {
        match &self.limits {
            Limits::Plans { header, .. } => header.as_ref(),
            Limits::Quotas(_) | Limits::CallerQuotas(_) => None,
        }
    }

    /// Whether it is for charges by name alone, which bring their quotas.
    pub fn has_caller_quotas(&self) -> bool {
        matches!(self.limits, Limits::CallerQuotas(_))
    }

    /// Whether requests under the policy can be counted for such an identity.
    pub fn counts(&self, identity: &Identity) -> bool {
        let kind = identity.kind();
        let gives = |source: &Source| match source {
            Source::User => kind == "user",
            Source::Named(named) => kind == named,
            Source::ApiKey => kind == "api-key" || kind == "customer",
            Source::Authorization => kind == "authorization",
            Source::Ip(_) => kind == "ip",
            Source::Header(name) => kind == name.as_str() || kind == "header",
            Source::Descriptor(keys) => ["x", " ", "0.0.0.0"].iter().any(|value| {
                Identity::descriptor(keys.iter().map(|key| (&**key, *value))).kind() == kind
            }),
            Source::Customer => kind == "customer",
            Source::Everyone => kind == "everyone",
        };
        self.identity.iter().any(gives) || kind == "anonymous"
    }

    /// How quotas are leased: not if the caller gives them, because a window may be too short.
    pub(crate) fn consistency_of(&self, caller_quotas: bool) -> Consistency {
        if caller_quotas { Consistency::Sync } else { self.consistency }
    }

    /// The quotas that ledgers are kept by, if they are not those in force: the windows of leased
    /// units are longer, and there may be others that only the candidate has.
    pub(crate) fn ledgers_beside(&self, quotas: &Quotas, caller_quotas: bool) -> Option<Quotas> {
        let all = self.candidate.as_ref().and_then(|candidate| quotas.with_windows_of(candidate));
        match self.consistency_of(caller_quotas) {
            Consistency::Sync => all,
            leased => Some(leased.ledgers(all.as_ref().unwrap_or(quotas))),
        }
    }

    /// A quota for each window that this account may have a ledger for.
    pub(crate) fn windows_of(&self, identity: &Identity) -> Quotas {
        self.consistency.ledgers(&self.window_quotas(identity))
    }

    /// The same, as the quotas say them.
    pub(crate) fn window_quotas(&self, identity: &Identity) -> Cow<'_, Quotas> {
        match self.limits {
            Limits::CallerQuotas(quotas_of) => Cow::Owned(quotas_of(identity)),
            Limits::Quotas(_) | Limits::Plans { .. } => Cow::Borrowed(&self.windows),
        }
    }

    /// Why the policy skips a request, if it does.
    pub(crate) fn skips(&self, facts: &Facts<'_>) -> Option<Skip> {
        if !self.is_for_requests() {
            return Some(Skip::Request);
        }
        if !self.has_method(facts) {
            return Some(Skip::Method);
        }
        if !self.paths.is_empty()
            && !facts.readings.is_some_and(|path| self.paths.contain_any(path))
        {
            return Some(Skip::Path);
        }
        self.exempt.find(facts).map(Skip::Exempt)
    }

    /// The same for a policy that the router has found for the request's path.
    pub(crate) fn skips_found(&self, facts: &Facts<'_>) -> Option<Skip> {
        match self.has_method(facts) {
            false => Some(Skip::Method),
            true => self.exempt.find(facts).map(Skip::Exempt),
        }
    }

    fn has_method(&self, facts: &Facts<'_>) -> bool {
        self.methods.is_empty() || self.methods.contains(facts.method)
    }

    /// The identity as this policy would have read it, so that one account does not become two.
    pub(crate) fn account_of(&self, identity: Identity) -> Identity {
        let address = if identity.kind() == "ip" { identity.value().parse().ok() } else { None };
        address.map_or(identity, |address| Identity::ip(address, self.prefixes()))
    }

    /// Whether the client's address alone decides, in this process: it does without an identity, a plan
    /// and an exemption that credentials would say.
    pub(crate) fn is_by_address(&self) -> bool {
        let is_address = |source: &Source| matches!(source, Source::Ip(_));
        self.scope == Scope::Local
            && matches!(self.limits, Limits::Quotas(_))
            && self.identity.iter().all(is_address)
            && self.exempt.sources.is_empty()
    }

    /// Whether it counts requests, rather than charges by name or descriptors.
    pub(crate) fn is_for_requests(&self) -> bool {
        !self.has_caller_quotas() && self.descriptors.is_none()
    }

    /// How many bits of an address it counts by, if it comes to that.
    pub(crate) fn prefixes(&self) -> Prefixes {
        let prefixes = self.identity.iter().find_map(|source| match source {
            Source::Ip(prefixes) => Some(*prefixes),
            _ => None,
        });
        prefixes.unwrap_or_default()
    }
}

impl Policies {
    /// The policies, in order.
    pub fn iter(&self) -> impl Iterator<Item = &CheckedPolicy> {
        self.policies.iter()
    }

    /// The policies in which all requests that have none of the identities share the account
    /// `anonymous`: neither the client's address nor everyone is among their sources, and they do not
    /// [skip](crate::Policy::skip_anonymous) such requests.
    pub fn sharing_anonymous(&self) -> impl Iterator<Item = &CheckedPolicy> {
        self.policies.iter().filter(|policy| {
            let mut sources = policy.identity.iter();
            let has_fallback =
                sources.any(|source| matches!(source, Source::Ip(_) | Source::Everyone));
            let is_counted = policy.is_for_requests() && !policy.shadow;
            is_counted && !has_fallback && !policy.skip_anonymous
        })
    }

    /// The quotas that an account is counted by, without what operators grant, and the plan that they
    /// come from: those of its policy, else of this plan, else of the API key's plan, else of the
    /// default one. None if there is no such policy.
    pub fn quotas_of(
        &self,
        account: &Account,
        plan: Option<&str>,
    ) -> Option<(Quotas, Option<&Name>)> {
        let policy = self.find(&account.policy).ok()?;
        // Also of a key that has ended: nothing is decided here.
        let of_key = || self.plan_of(&account.identity, Timestamp::default());
        match &policy.limits {
            Limits::Quotas(quotas) => Some((quotas.clone(), None)),
            Limits::CallerQuotas(quotas_of) => Some((quotas_of(&account.identity), None)),
            Limits::Plans { default, .. } => {
                let named = plan.map_or_else(of_key, |plan| self.plans.get(plan));
                let plan = named.unwrap_or(default);
                Some((plan.quotas.clone(), Some(&plan.name)))
            }
        }
    }

    /// All plans, by name.
    pub fn plans(&self) -> Vec<&CheckedPlan> {
        self.plans.values().map(|plan| &**plan).collect()
    }

    /// The API keys and customers that have a plan, as the identities that they are, in no order.
    pub fn plan_keys(&self) -> impl Iterator<Item = (&Identity, &Name)> {
        let keys = self.api_keys.iter().filter(|(_, key)| key.customer.is_none());
        let keys = keys.filter_map(|(identity, key)| Some((identity, key.plan.as_ref()?)));
        let customers = self.customer_plans.iter().map(|(identity, (plan, _))| (identity, plan));
        keys.chain(customers).map(|(identity, plan)| (identity, &plan.name))
    }

    /// The plan that an identity has by the listed API keys that have not ended by `now`.
    pub(crate) fn plan_of(&self, identity: &Identity, now: Timestamp) -> Option<&Arc<CheckedPlan>> {
        match identity.kind() {
            "customer" => {
                let (plan, expires) = self.customer_plans.get(identity)?;
                expires.is_none_or(|expires| now < expires).then_some(plan)
            }
            _ => self.listed_key(identity, now)?.plan.as_ref(),
        }
    }

    /// Whether a listed API key is this customer's.
    pub fn has_customer(&self, identity: &Identity) -> bool {
        self.api_keys.values().any(|key| key.customer.as_ref() == Some(identity))
    }

    /// How API keys that are not listed are treated.
    pub fn unknown_keys(&self) -> UnknownKeys {
        self.unknown_keys
    }

    /// In which ways paths are read.
    pub fn path_reading(&self) -> PathReading {
        self.path_reading
    }

    /// The ways in which a path is read, if not only as it was sent. Policies match any of them.
    pub fn other_paths(&self, path: &str) -> Vec<String> {
        let readings = self.path_reading.read(path);
        let others = readings.iter().filter(|read| *read != readings.sent);
        others.map(str::to_owned).collect()
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
        &self.exempt
    }

    /// Who may not pass.
    pub fn blocked(&self) -> &AccessList {
        &self.blocked
    }
}
