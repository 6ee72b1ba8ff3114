//! Policies in the making, and everything that can be wrong with them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, header};

use crate::chosen::ChosenBound;
use crate::limit::{Name, NameError, Quota, Quotas, Timestamp};
use crate::policy::api_key::{ApiKey, CheckedKey, KeyHash, UnknownKeys};
use crate::policy::bad_request::credentials_headers;
use crate::policy::checked::{CheckedPolicy, Limits};
use crate::policy::descriptors::Descriptors;
use crate::policy::path_router::PathRouter;
use crate::policy::paths::Paths;
use crate::policy::source::API_KEY;
use crate::policy::{
    AccessList, Ban, CheckedPlan, Counted, Identity, PathReading, Plan, Policies, ResponseRule,
};
use crate::policy::{Cost, Policy, Scope, Source, join};

/// A set of policies in the making.
#[must_use]
#[derive(Debug, Clone, Default)]
pub struct PoliciesBuilder {
    policies: Vec<Policy>,
    plans: Vec<Plan>,
    api_keys: Vec<ApiKey>,
    reads_tokens: bool,
    tokens_have_plans: bool,
    unknown_keys: Option<UnknownKeys>,
    user_header: Option<HeaderName>,
    path_reading: PathReading,
    exempt: AccessList,
    blocked: AccessList,
    identities_per_address: Option<NonZeroU32>,
}

/// A hundredth of the accounts that a memory store has by default, so that it takes 75 addresses to
/// fill what there is for such identities. More users than this seldom share an address.
const IDENTITIES_PER_ADDRESS: NonZeroU32 = NonZeroU32::new(10_000).expect("not zero");

impl PoliciesBuilder {
    /// Adds a policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Adds a plan.
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plans.push(plan);
        self
    }

    /// Gives the bearer of an API key a plan. Only the key's digest is kept. Once there is such a
    /// key, others are ignored; see [`unknown_keys`](Self::unknown_keys).
    pub fn api_key(self, key: &str, plan: impl Into<String>) -> Self {
        self.api_keys([ApiKey::new(key, plan)])
    }

    /// Adds API keys, which may have names, or be given by their digests.
    pub fn api_keys(mut self, keys: impl IntoIterator<Item = ApiKey>) -> Self {
        self.api_keys.extend(keys);
        self
    }

    /// How API keys that were not added are treated. By default they are ignored if any key was
    /// added, and each has its own account if none was.
    pub fn unknown_keys(self, unknown_keys: UnknownKeys) -> Self {
        Self { unknown_keys: Some(unknown_keys), ..self }
    }

    /// The header in which an authenticating proxy names the user, for
    /// [`Source::User`](crate::Source::User). It is believed only if
    /// [the headers are trusted](crate::Facts::headers_trusted), and only if the application does not
    /// name the user itself with [`Facts::user`](crate::Facts::user).
    pub fn user_header(self, name: HeaderName) -> Self {
        Self { user_header: Some(name), ..self }
    }

    /// In which ways paths are read; by default, in all that some server may read them.
    pub fn path_reading(self, reading: PathReading) -> Self {
        Self { path_reading: reading, ..self }
    }

    /// Requests that are exempt from all policies.
    pub fn exempt(self, list: AccessList) -> Self {
        Self { exempt: list, ..self }
    }

    /// Requests that may not pass. Being blocked outweighs being exempt.
    pub fn blocked(self, list: AccessList) -> Self {
        Self { blocked: list, ..self }
    }

    /// How many identities that clients choose themselves one client address may have at a time:
    /// API keys that were not added, `Authorization` headers and named headers; 10,000 unless said
    /// otherwise. An IPv6 /64 is one address. Beyond them, and when the store is short of room, the
    /// policy's next source counts, and in the end the address.
    pub fn identities_per_address(self, identities: NonZeroU32) -> Self {
        Self { identities_per_address: Some(identities), ..self }
    }

    /// Checks everything; the error has all that is wrong. Logs a warning for each policy that
    /// [clients can evade](Policies::evaded), and for each in which requests without an identity
    /// [share an account](Policies::sharing_anonymous).
    pub fn build(self) -> Result<Policies, PolicyErrors> {
        let policies = self.build_silently()?;
        for (policy, source) in policies.evaded() {
            tracing::warn!(
                policy = &*policy.name,
                %source,
                "clients evade this policy by inventing credentials, because each one has its own \
                 account: add a policy with identity ip for the same requests, or list the API keys"
            );
        }
        for policy in policies.sharing_anonymous() {
            tracing::warn!(
                policy = &*policy.name,
                "all requests that have none of this policy's identities share one account, so that \
                 a few can deny the rest: add the source ip, or skip_anonymous()"
            );
        }
        Ok(policies)
    }

    /// Says that tokens are read from `Authorization`, so that a request whose header has another spelling
    /// than the usual one is refused with `400`: upstream may read a token where the limiter reads none.
    pub fn reads_tokens(self) -> Self {
        Self { reads_tokens: true, ..self }
    }

    /// Says that tokens may name plans, so that policies that use plans refuse a request for a token that is
    /// not valid or cannot be checked, instead of counting it by the default plan.
    pub fn tokens_have_plans(self) -> Self {
        Self { tokens_have_plans: true, ..self }
    }

    /// [`build`](Self::build) without its warnings.
    pub fn build_silently(mut self) -> Result<Policies, PolicyErrors> {
        let mut checker = Checker { path_reading: self.path_reading, ..Checker::default() };
        self.plans.into_iter().for_each(|plan| checker.plan(plan));
        let has_sha256_keys = self.api_keys.iter().any(|key| key.hash == KeyHash::Sha256);
        let has_expiring_keys = self.api_keys.iter().any(|key| key.expires.is_some());
        let api_keys = checker.api_keys(self.api_keys);
        let policies = checker.policies(self.policies);
        checker.add_all("exempt", &self.exempt.invalid);
        checker.add_all("blocked", &self.blocked.invalid);
        checker.paths("exempt", "path", &mut self.exempt.paths);
        checker.paths("blocked", "path", &mut self.blocked.paths);
        checker.user_header(self.user_header.as_ref());
        let unknown_keys = self.unknown_keys.unwrap_or(match api_keys.is_empty() {
            true => UnknownKeys::Own,
            false => UnknownKeys::Ignore,
        });
        if !checker.errors.is_empty() {
            return Err(PolicyErrors(checker.errors));
        }
        let ledgers = policies.iter().map(|policy| policy.consistency.ledgers(&policy.windows));
        let longest = ledgers.map(|ledgers| ledgers.longest_window()).max();
        let bound = ChosenBound {
            per_address: self.identities_per_address.unwrap_or(IDENTITIES_PER_ADDRESS).get(),
            lasting: longest.unwrap_or_default(),
        };
        let mut router = PathRouter::default();
        for (index, policy) in policies.iter().enumerate() {
            if policy.is_for_requests() {
                let index =
                    u32::try_from(index).expect("fewer policies than bytes of a configuration");
                router.add(index, policy.paths(), self.path_reading);
            }
        }
        let sources = policies.iter().flat_map(|policy| &policy.identity);
        let lists = policies.iter().map(|policy| &policy.exempt);
        let lists = lists.chain([&self.exempt, &self.blocked]).flat_map(|list| &list.sources);
        let reads_keys = !api_keys.is_empty()
            || sources.clone().any(|source| source.gives_api_keys() || *source == Source::Customer);
        let tokens = self.reads_tokens.then_some(&Source::Authorization);
        let credentials_headers = credentials_headers(sources.chain(lists).chain(tokens));
        Ok(Policies {
            policies,
            router,
            credentials_headers,
            plans: checker.plans,
            customer_plans: customer_plans(&api_keys),
            api_keys,
            has_sha256_keys,
            has_expiring_keys,
            reads_keys,
            reads_tokens: self.reads_tokens,
            tokens_have_plans: self.tokens_have_plans,
            unknown_keys,
            user_header: self.user_header,
            path_reading: self.path_reading,
            exempt: self.exempt,
            blocked: self.blocked,
            bound,
        })
    }
}

/// The longest that a prefetched unit may be used under any of these quotas, if units may be prefetched;
/// else what is wrong with it. A lease that is long beside a window would hold units for much longer than
/// the quota says, and a candidate with such a window would count when units are prefetched rather than
/// when they are used.
fn longest_lease(
    policy: &Policy,
    quotas: &[&Quotas],
    candidate: Option<&Quotas>,
) -> Result<Option<Duration>, String> {
    let leases = quotas.iter().filter_map(|quotas| policy.consistency.lease(quotas));
    let Some(longest) = leases.max() else { return Ok(None) };
    if policy.scope == Scope::Local {
        return Err("a local policy never waits for the store: leave it out".to_owned());
    }
    if longest.is_zero() || !longest.subsec_nanos().is_multiple_of(1_000_000) {
        return Err("expected leases of whole milliseconds".to_owned());
    }
    for quotas in quotas {
        let lease = policy.consistency.lease(quotas).unwrap_or_default();
        let counted = quotas.as_slice().iter().chain(candidate.map_or(&[][..], Quotas::as_slice));
        let shortest = counted.min_by_key(|quota| quota.window());
        if let Some(quota) = shortest.filter(|quota| lease > quota.window() / 10) {
            return Err(format!(
                "leases of {lease:?} need windows of at least {:?}, and {quota} has less: shorten \
                 the lease, or use sync",
                lease * 10
            ));
        }
    }
    Ok(Some(longest))
}

/// The plan of each customer, and when it ends with the key that ends last: of one whose keys have several,
/// that of one of these.
fn customer_plans(
    api_keys: &HashMap<Identity, CheckedKey>,
) -> HashMap<Identity, (Arc<CheckedPlan>, Option<Timestamp>)> {
    let mut plans = HashMap::new();
    for key in api_keys.values() {
        let (Some(customer), Some(plan)) = (key.customer, &key.plan) else { continue };
        let known = plans.entry(customer).or_insert_with(|| (plan.clone(), key.expires));
        let is_later = known.1.is_some_and(|known| key.is_valid(known));
        if is_later {
            *known = (plan.clone(), key.expires);
        }
    }
    plans
}

/// Gathers what is wrong while a set of policies is checked, and the plans that are good.
#[derive(Default)]
struct Checker {
    errors: Vec<PolicyError>,
    plans: BTreeMap<Name, Arc<CheckedPlan>>,
    path_reading: PathReading,
}

impl Checker {
    fn add(
        &mut self,
        place: &str,
        key: &'static str,
        value: impl fmt::Display,
        problem: impl fmt::Display,
    ) {
        let (value, problem) = (value.to_string(), problem.to_string());
        self.errors.push(PolicyError { place: place.to_owned(), key, value, problem });
    }

    fn add_all(&mut self, place: &str, InvalidValues(errors): &InvalidValues) {
        let placed = |error| PolicyError { place: place.to_owned(), ..PolicyError::clone(error) };
        self.errors.extend(errors.iter().map(placed));
    }

    fn paths(&mut self, place: &str, key: &'static str, paths: &mut Paths) {
        for (pattern, problem) in paths.compile(self.path_reading) {
            self.add(place, key, pattern, problem);
        }
    }

    /// User ids appear in keys and logs, so a header with credentials cannot be one.
    fn user_header(&mut self, name: Option<&HeaderName>) {
        let credentials =
            [API_KEY, header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE];
        if let Some(name) = name.filter(|name| credentials.contains(name)) {
            let problem = "this header carries a secret, and user ids appear in logs: expected a \
                           header with the user's id alone, such as x-user-id";
            self.add("policies", "user_header", name, problem);
        }
    }

    fn name(&mut self, place: &str, name: &str) -> Option<Name> {
        name.parse().map_err(|error: NameError| self.add(place, "name", name, error)).ok()
    }

    fn plan(&mut self, plan: Plan) {
        let place = format!("plan {:?}", plan.name);
        let name = self.name(&place, &plan.name);
        self.add_all(&place, &plan.invalid);
        let quotas = self.quotas(&place, &plan.quotas, &plan.invalid);
        let (Some(name), Some(quotas)) = (name, quotas) else { return };
        if self.plans.contains_key(&name) {
            return self.add(&place, "name", &name, "another plan has this name");
        }
        let plan = CheckedPlan { name: name.clone(), quotas, upgrade_url: plan.upgrade_url };
        self.plans.insert(name, Arc::new(plan));
    }

    fn api_keys(&mut self, api_keys: Vec<ApiKey>) -> HashMap<Identity, CheckedKey> {
        let mut checked = HashMap::with_capacity(api_keys.len());
        let mut names = HashSet::new();
        for key in api_keys {
            let place = key.identity.as_str();
            let plan = key.plan.as_ref().map(|plan| self.known_plan(place, plan));
            if key.customer.as_ref().is_some_and(String::is_empty) {
                self.add(place, "customer", "", "expected the name of a customer");
            }
            let name = key.name.as_ref().and_then(|name| self.name(place, name));
            if let Some(name) = &name {
                if Identity::is_digest(name) {
                    let problem = "expected a name that cannot be taken for a digest";
                    self.add(place, "name", name, problem);
                } else if !names.insert(name.clone()) {
                    self.add(place, "name", name, "another API key has this name");
                }
            }
            let plan = match plan {
                Some(None) => continue,
                known => known.flatten(),
            };
            let customer = key.customer.as_deref().map(Identity::customer);
            let key_of_plan = CheckedKey { name, customer, plan, expires: key.expires };
            if checked.insert(key.identity, key_of_plan).is_some() {
                self.add(place, "plan", "", "this API key already has a plan");
            }
        }
        checked
    }

    fn policies(&mut self, policies: Vec<Policy>) -> Vec<CheckedPolicy> {
        let mut checked: Vec<CheckedPolicy> = Vec::new();
        for policy in policies {
            let place = format!("policy {:?}", policy.name);
            if checked.iter().any(|other| *other.name == *policy.name) {
                self.add(&place, "name", &policy.name, "another policy has this name");
            }
            checked.extend(self.policy(&place, policy));
        }
        checked
    }

    fn policy(&mut self, place: &str, mut policy: Policy) -> Option<CheckedPolicy> {
        let name = self.name(place, &policy.name);
        self.add_all(place, &policy.invalid);
        self.paths(place, "path", &mut policy.paths);
        let of_descriptors = policy.descriptors.as_ref().map(Descriptors::identity);
        let by_default = || vec![of_descriptors.unwrap_or_else(Source::ip)];
        let identity = policy.sources.clone().unwrap_or_else(by_default);
        if identity.is_empty() {
            let problem = "expected at least one identity source, such as ip";
            self.add(place, "identity", "[]", problem);
        }
        self.descriptors(place, &policy, &identity);
        let limits = self.limits(place, &policy);
        if let Some(ban) = policy.ban
            && (ban.length.is_zero() || ban.length > Ban::MAX_LENGTH)
        {
            let problem = "expected to last more than no time and at most 366 days";
            self.add(place, "ban", ban, problem);
        }
        self.paths(place, "exempt", &mut policy.exempt.paths);
        for error in &policy.exempt.invalid.0 {
            self.add(place, "exempt", &error.value, &error.problem);
        }
        let candidate = self.candidate(place, &policy);
        let response = self.response(place, &policy).map(Arc::new);
        let limits = limits?;
        let cost = policy.cost.unwrap_or(match policy.scope {
            Scope::Shared => Cost::Request,
            Scope::Local => Cost::from(1),
        });
        let windows_of = policy.caller_quotas.map(|quotas_of| quotas_of(&Identity::anonymous()));
        let quotas: Vec<&Quotas> = match &limits {
            Limits::Quotas(quotas) => vec![quotas],
            Limits::CallerQuotas(_) => windows_of.iter().collect(),
            Limits::Plans { .. } => self.plans.values().map(|plan| &plan.quotas).collect(),
        };
        let lease = longest_lease(&policy, &quotas, candidate.as_ref());
        let windows = Quotas::of_windows(quotas.iter().flat_map(|quotas| quotas.as_slice()));
        let windows = windows.map(|windows| match &candidate {
            Some(candidate) => windows.with_windows_of(candidate).unwrap_or(windows),
            None => windows,
        });
        if let Cost::Units(units) = cost
            && let Some(tightest) = quotas.iter().map(|quotas| quotas.fewest_units()).min()
            && units > tightest
        {
            let problem = format!("no request could ever pass a quota of {tightest} units");
            self.add(place, "cost", units, problem);
        }
        if let Err(problem) = &lease {
            self.add(place, "consistency", policy.consistency, problem);
        }
        Some(CheckedPolicy {
            name: name?,
            methods: policy.methods,
            paths: policy.paths,
            descriptors: policy.descriptors,
            identity,
            skip_anonymous: policy.skip_anonymous,
            limits,
            candidate,
            windows: windows?,
            cost,
            count_denied: policy.count_denied,
            response,
            admit_only: policy.admit_only,
            ban: policy.ban.filter(|_| !policy.shadow),
            shadow: policy.shadow,
            scope: policy.scope,
            consistency: policy.consistency,
            lease: lease.unwrap_or_default(),
            in_headers: policy.in_headers.unwrap_or(policy.scope == Scope::Shared),
            on_store_error: policy.on_store_error,
            exempt: policy.exempt,
        })
    }

    /// What the response changes about the cost, if anything.
    fn response(&mut self, place: &str, policy: &Policy) -> Option<ResponseRule> {
        let counted = match (&policy.counted, &policy.refunded) {
            (Some(counted), Some(_)) => {
                let problem = "a policy has either count or refund: count says which responses cost \
                               something, and all others are refunded already";
                self.add(place, "count", counted, problem);
                None
            }
            (Some(counted), None) => Some(Counted::Only(counted.clone())),
            (None, Some(refunded)) => Some(Counted::Except(refunded.clone())),
            (None, None) => None,
        };
        let named = [("count", &policy.counted), ("refund", &policy.refunded)];
        for (key, statuses) in named.into_iter().filter_map(|(key, s)| Some((key, s.as_ref()?))) {
            let is_reported = policy.invalid.0.iter().any(|error| error.key == key);
            if statuses.is_empty() && !is_reported {
                self.add(place, key, "[]", "expected at least one status, such as 401 or 5xx");
            }
        }
        let rule = ResponseRule { counted, cost: policy.response_cost.clone() };
        if rule == ResponseRule::default() {
            return None;
        }
        if policy.descriptors.is_some() || policy.caller_quotas.is_some() {
            let problem = "only a policy for requests has responses to look at";
            self.add(place, "count", &rule, problem);
        }
        Some(rule)
    }

    /// A policy is for requests, or for descriptors, which have none of what a request has.
    fn descriptors(&mut self, place: &str, policy: &Policy, identity: &[Source]) {
        let Some(descriptors) = &policy.descriptors else {
            if policy.admit_only {
                let problem = "a request is only admitted if its cost fits, always: expected it in a \
                               policy for descriptors";
                self.add(place, "charge", "admit", problem);
            }
            let is_of_descriptor = |source: &&Source| matches!(source, Source::Descriptor(_));
            if let Some(source) = identity.iter().find(is_of_descriptor) {
                let problem = "requests have no descriptors: expected match = { domain = \"edge\", \
                               descriptors = { ... } } too";
                self.add(place, "identity", source, problem);
            }
            return;
        };
        for (key, value, problem) in descriptors.problems(identity) {
            self.add(place, key, value, problem);
        }
        let has_head = !policy.methods.is_empty() || !policy.paths.is_empty();
        if has_head || policy.exempt != AccessList::new() {
            let problem = "descriptors have no method, path or other fact of a request: expected a \
                           policy without method, path and exempt";
            self.add(place, "domain", &descriptors.domain, problem);
        }
    }

    fn limits(&mut self, place: &str, policy: &Policy) -> Option<Limits> {
        if let Some(quotas_of) = policy.caller_quotas {
            return Some(Limits::CallerQuotas(quotas_of));
        }
        let Some(rule) = &policy.plans else {
            return self.quotas(place, &policy.quotas, &policy.invalid).map(Limits::Quotas);
        };
        if let Some(quota) = policy.quotas.first() {
            let problem = "a policy has either quotas or plans, not both";
            self.add(place, "quotas", quota, problem);
        }
        let default = self.known_plan(place, &rule.default)?;
        Some(Limits::Plans { header: rule.header.clone(), default })
    }

    /// The quotas that are only watched. A request costs no more than they have: it could never pass.
    fn candidate(&mut self, place: &str, policy: &Policy) -> Option<Quotas> {
        let quotas = Some(&policy.candidate).filter(|quotas| !quotas.is_empty())?;
        let text = join(quotas, ", ");
        let checked = Quotas::new(quotas.iter().copied());
        let candidate = checked.map_err(|error| self.add(place, "candidate", &text, error)).ok()?;
        let fewest = candidate.fewest_units();
        if let Some(Cost::Units(units)) = policy.cost
            && units > fewest
        {
            let problem = format!("no request of {units} units could ever pass {fewest}");
            self.add(place, "candidate", text, problem);
        }
        Some(candidate)
    }

    fn quotas(
        &mut self,
        place: &str,
        quotas: &[Quota],
        InvalidValues(errors): &InvalidValues,
    ) -> Option<Quotas> {
        // Without those that could not be read, there may seem to be none.
        if errors.iter().any(|error| error.key == "quotas") {
            return None;
        }
        let checked = Quotas::new(quotas.iter().copied());
        checked.map_err(|error| self.add(place, "quotas", join(quotas, ", "), error)).ok()
    }

    fn known_plan(&mut self, place: &str, name: &str) -> Option<Arc<CheckedPlan>> {
        let plan = self.plans.get(name).cloned();
        if plan.is_none() {
            let known: Vec<&str> = self.plans.keys().map(|name| &**name).collect();
            let problem = match known[..] {
                [] => "there is no such plan, nor any other".to_owned(),
                _ => format!("there is no such plan; there is {}", known.join(", ")),
            };
            self.add(place, "plan", name, problem);
        }
        plan
    }
}

/// Values that cannot be used. They become errors, with their place, when the policies are built.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct InvalidValues(Vec<PolicyError>);

impl InvalidValues {
    /// The value, if it is good; else it is kept as an error.
    pub(crate) fn accept<T>(
        &mut self,
        key: &'static str,
        value: String,
        checked: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        let error = |problem| PolicyError { place: String::new(), key, value, problem };
        checked.map_err(|problem| self.0.push(error(problem.to_string()))).ok()
    }
}

/// Everything that is wrong with a set of policies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", join(&self.0, "\n"))]
pub struct PolicyErrors(Vec<PolicyError>);

impl PolicyErrors {
    /// Each thing that is wrong.
    pub fn as_slice(&self) -> &[PolicyError] {
        &self.0
    }
}

/// One thing that is wrong: where, with which key and value, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {key} = {value:?}: {problem}")]
pub struct PolicyError {
    /// The policy, plan or list, such as `policy "login"`.
    pub place: String,
    /// The key that is wrong.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with it, or what was expected.
    pub problem: String,
}
