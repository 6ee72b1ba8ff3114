//! Policies in the making, and everything that can be wrong with them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use http::{HeaderName, Method, header};

use crate::limit::name::Name;
use crate::limit::quota::{Quota, Quotas};
use crate::policy::access_list::{AccessList, CheckedAccessList};
use crate::policy::api_key::{ApiKey, CheckedKey, UnknownKeys};
use crate::policy::ban::Ban;
use crate::policy::identity::Identity;
use crate::policy::matching::{CheckedPolicy, Limits, Policies};
use crate::policy::methods;
use crate::policy::paths::Paths;
use crate::policy::plan::{CheckedPlan, Plan};
use crate::policy::source::API_KEY;
use crate::policy::{Cost, CostRule, Policy, Scope};

/// A set of policies in the making.
#[derive(Debug, Clone, Default)]
pub struct PoliciesBuilder {
    policies: Vec<Policy>,
    plans: Vec<Plan>,
    api_keys: Vec<ApiKey>,
    unknown_keys: Option<UnknownKeys>,
    user_header: Option<HeaderName>,
    exempt: AccessList,
    blocked: AccessList,
}

impl PoliciesBuilder {
    /// Adds a policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Adds a plan.
    #[must_use]
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plans.push(plan);
        self
    }

    /// Gives the bearer of an API key a plan. Only the key's digest is kept. Once there is such a
    /// key, others are no identities; see [`unknown_keys`](Self::unknown_keys).
    #[must_use]
    pub fn api_key(self, key: &str, plan: impl Into<String>) -> Self {
        self.api_keys([ApiKey::new(key, plan)])
    }

    /// Adds API keys, which may have names, or be given by their digests.
    #[must_use]
    pub fn api_keys(mut self, keys: impl IntoIterator<Item = ApiKey>) -> Self {
        self.api_keys.extend(keys);
        self
    }

    /// What becomes of API keys that were not added. Unless it is said here, they are ignored if
    /// any key was added, and have accounts of their own if none was.
    #[must_use]
    pub fn unknown_keys(mut self, unknown_keys: UnknownKeys) -> Self {
        self.unknown_keys = Some(unknown_keys);
        self
    }

    /// The header in which an authenticating proxy names the user, for
    /// [`Source::User`](crate::Source::User). It is believed only if
    /// [the headers are trusted](crate::Facts::headers_trusted), and only if the application does not
    /// name the user itself with [`Facts::user`](crate::Facts::user).
    #[must_use]
    pub fn user_header(mut self, name: HeaderName) -> Self {
        self.user_header = Some(name);
        self
    }

    /// Requests that no policy is for.
    #[must_use]
    pub fn exempt(mut self, list: AccessList) -> Self {
        self.exempt = list;
        self
    }

    /// Requests that may not pass. Being blocked outweighs being exempt.
    #[must_use]
    pub fn blocked(mut self, list: AccessList) -> Self {
        self.blocked = list;
        self
    }

    /// Checks everything; the error has all that is wrong.
    pub fn build(self) -> Result<Policies, PolicyErrors> {
        let mut errors = Errors::default();
        let plans = errors.plans(self.plans);
        let api_keys = errors.api_keys(self.api_keys, &plans);
        let policies = errors.policies(self.policies, &plans);
        let exempt = errors.list("exempt", "path", self.exempt);
        let blocked = errors.list("blocked", "path", self.blocked);
        let user_header = errors.user_header(self.user_header);
        let unknown_keys = self.unknown_keys.unwrap_or(match api_keys.is_empty() {
            true => UnknownKeys::Own,
            false => UnknownKeys::Ignore,
        });
        if errors.0.is_empty() {
            Ok(Policies { policies, plans, api_keys, unknown_keys, user_header, exempt, blocked })
        } else {
            Err(PolicyErrors(errors.0))
        }
    }
}

/// Gathers what is wrong while a set of policies is checked.
#[derive(Default)]
struct Errors(Vec<PolicyError>);

impl Errors {
    fn add(&mut self, place: &str, key: &'static str, value: impl fmt::Display, problem: String) {
        let (place, value) = (place.to_owned(), value.to_string());
        self.0.push(PolicyError { place, key, value, problem });
    }

    fn ok<T, E: fmt::Display>(
        &mut self,
        place: &str,
        key: &'static str,
        value: impl fmt::Display,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|error| self.add(place, key, value, error.to_string())).ok()
    }

    /// User ids appear in keys and logs, so a header with credentials cannot be one.
    fn user_header(&mut self, name: Option<HeaderName>) -> Option<HeaderName> {
        let credentials =
            [API_KEY, header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE];
        if let Some(name) = name.as_ref().filter(|name| credentials.contains(name)) {
            let problem = "this header carries a secret, and user ids appear in logs: expected a \
                           header with the user's id alone, such as x-user-id";
            self.add("policies", "user_header", name, problem.to_owned());
        }
        name
    }

    fn plans(&mut self, plans: Vec<Plan>) -> HashMap<Name, Arc<CheckedPlan>> {
        let mut checked: HashMap<Name, Arc<CheckedPlan>> = HashMap::new();
        for plan in plans {
            let place = format!("plan {:?}", plan.name);
            let name = self.ok(&place, "name", &plan.name, plan.name.parse::<Name>());
            let is_valid = plan.invalid.is_empty();
            for (value, problem) in plan.invalid {
                self.add(&place, "quotas", value, problem);
            }
            let quotas = if is_valid { self.quotas(&place, &plan.quotas) } else { None };
            let (Some(name), Some(quotas)) = (name, quotas) else { continue };
            if checked.contains_key(&name) {
                self.add(&place, "name", &name, "another plan has this name".to_owned());
                continue;
            }
            let plan = CheckedPlan { name: name.clone(), quotas, upgrade_url: plan.upgrade_url };
            checked.insert(name, Arc::new(plan));
        }
        checked
    }

    fn api_keys(
        &mut self,
        api_keys: Vec<ApiKey>,
        plans: &HashMap<Name, Arc<CheckedPlan>>,
    ) -> HashMap<Identity, CheckedKey> {
        let mut checked = HashMap::with_capacity(api_keys.len());
        let mut names = HashSet::new();
        for key in api_keys {
            let plan = self.known_plan(key.identity.as_str(), &key.plan, plans);
            let name = self.key_name(&key, &mut names);
            let Some(plan) = plan else { continue };
            if checked.insert(key.identity, CheckedKey { name, plan }).is_some() {
                let problem = "this API key already has a plan".to_owned();
                self.add(key.identity.as_str(), "plan", "", problem);
            }
        }
        checked
    }

    fn key_name(&mut self, key: &ApiKey, names: &mut HashSet<Name>) -> Option<Name> {
        let text = key.name.as_ref()?;
        let place = key.identity.as_str();
        let name = self.ok(place, "name", text, text.parse::<Name>())?;
        if Identity::is_digest(&name) {
            let problem = "expected a name that cannot be taken for a digest".to_owned();
            self.add(place, "name", text, problem);
        } else if !names.insert(name.clone()) {
            self.add(place, "name", text, "another API key has this name".to_owned());
        }
        Some(name)
    }

    fn policies(
        &mut self,
        policies: Vec<Policy>,
        plans: &HashMap<Name, Arc<CheckedPlan>>,
    ) -> Vec<CheckedPolicy> {
        let mut checked: Vec<CheckedPolicy> = Vec::new();
        for policy in policies {
            let place = format!("policy {:?}", policy.name);
            if checked.iter().any(|other| *other.name == *policy.name) {
                let problem = "another policy has this name".to_owned();
                self.add(&place, "name", &policy.name, problem);
            }
            checked.extend(self.policy(&place, policy, plans));
        }
        checked
    }

    fn policy(
        &mut self,
        place: &str,
        policy: Policy,
        plans: &HashMap<Name, Arc<CheckedPlan>>,
    ) -> Option<CheckedPolicy> {
        let name = self.ok(place, "name", &policy.name, policy.name.parse::<Name>());
        for (key, value, problem) in &policy.invalid {
            self.add(place, key, value, problem.clone());
        }
        self.methods(place, &policy.methods);
        let paths = self.paths(place, &policy.paths);
        if policy.sources.is_empty() {
            let problem = "expected at least one identity source, such as ip".to_owned();
            self.add(place, "identity", "[]", problem);
        }
        let limits = self.limits(place, &policy, plans);
        let cost = self.cost(place, &policy, limits.as_ref(), plans);
        let ban = self.ban(place, policy.ban);
        let exempt = self.list(place, "exempt", policy.exempt);
        Some(CheckedPolicy {
            name: name?,
            methods: policy.methods,
            paths,
            patterns: policy.paths,
            sources: policy.sources,
            limits: limits?,
            cost: cost?,
            count_denied: policy.count_denied,
            ban: ban.filter(|_| !policy.shadow),
            shadow: policy.shadow,
            scope: policy.scope,
            in_headers: policy.in_headers.unwrap_or(policy.scope == Scope::Shared),
            on_store_error: policy.on_store_error,
            exempt,
        })
    }

    fn methods(&mut self, place: &str, methods: &[Method]) {
        for method in methods {
            if let Some(problem) = methods::problem(method) {
                self.add(place, "method", method, problem);
            }
        }
    }

    fn paths(&mut self, place: &str, patterns: &[String]) -> Option<Paths> {
        let mut paths = Paths::default();
        for pattern in patterns {
            if let Err(problem) = paths.insert(pattern) {
                self.add(place, "path", pattern, problem);
            }
        }
        (!patterns.is_empty()).then_some(paths)
    }

    fn limits(
        &mut self,
        place: &str,
        policy: &Policy,
        plans: &HashMap<Name, Arc<CheckedPlan>>,
    ) -> Option<Limits> {
        let Some(rule) = &policy.plans else {
            // Without those that could not be read, there may seem to be none.
            let is_read = policy.invalid.iter().all(|(key, ..)| *key != "quotas");
            let quotas = if is_read { self.quotas(place, &policy.quotas) } else { None };
            return quotas.map(Limits::Quotas);
        };
        if let Some(quota) = policy.quotas.first() {
            let problem = "a policy has quotas or goes by plans, not both".to_owned();
            self.add(place, "quotas", quota, problem);
        }
        let default = self.known_plan(place, &rule.default, plans)?;
        Some(Limits::Plans { header: rule.header.clone(), default })
    }

    fn quotas(&mut self, place: &str, quotas: &[Quota]) -> Option<Quotas> {
        let texts: Vec<String> = quotas.iter().map(Quota::to_string).collect();
        self.ok(place, "quotas", texts.join(", "), Quotas::new(quotas.iter().copied()))
    }

    fn known_plan(
        &mut self,
        place: &str,
        name: &str,
        plans: &HashMap<Name, Arc<CheckedPlan>>,
    ) -> Option<Arc<CheckedPlan>> {
        let plan = plans.get(name);
        if plan.is_none() {
            let mut known: Vec<&str> = plans.keys().map(|name| &**name).collect();
            known.sort_unstable();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            self.add(place, "plan", name, format!("there is no such plan; there is {known}"));
        }
        plan.cloned()
    }

    fn cost(
        &mut self,
        place: &str,
        policy: &Policy,
        limits: Option<&Limits>,
        plans: &HashMap<Name, Arc<CheckedPlan>>,
    ) -> Option<Cost> {
        let cost = match (policy.cost, policy.scope) {
            (CostRule::Units(cost), _) => cost,
            (CostRule::Unset, Scope::Local) => 1,
            (CostRule::Request, _) | (CostRule::Unset, Scope::Shared) => {
                return Some(Cost::Request);
            }
        };
        let Some(units) = NonZeroU32::new(cost) else {
            self.add(place, "cost", cost, "expected at least 1".to_owned());
            return None;
        };
        let tightest = match limits? {
            Limits::Quotas(quotas) => quotas.fewest_units(),
            Limits::Plans { default, .. } => plans
                .values()
                .map(|plan| plan.quotas.fewest_units())
                .min()
                .unwrap_or(default.quotas.fewest_units()),
        };
        if units > tightest {
            let problem = format!("no request could ever pass a quota of {tightest} units");
            self.add(place, "cost", cost, problem);
        }
        Some(Cost::Units(units))
    }

    fn ban(&mut self, place: &str, ban: Option<Ban>) -> Option<Ban> {
        let ban = ban?;
        if ban.length().is_zero() || ban.length() > Ban::MAX_LENGTH {
            let problem = "expected to last more than no time and at most 366 days".to_owned();
            self.add(place, "ban", ban, problem);
        }
        Some(ban)
    }

    fn list(&mut self, place: &str, key: &'static str, list: AccessList) -> CheckedAccessList {
        CheckedAccessList::check(list, |pattern, problem| self.add(place, key, pattern, problem))
    }
}

/// Everything that is wrong with a set of policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyErrors(Vec<PolicyError>);

impl PolicyErrors {
    /// Each thing that is wrong.
    pub fn as_slice(&self) -> &[PolicyError] {
        &self.0
    }
}

impl std::error::Error for PolicyErrors {}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

/// One thing that is wrong: where, with which key and value, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {key} = {value:?}: {problem}")]
pub struct PolicyError {
    place: String,
    key: &'static str,
    value: String,
    problem: String,
}

impl PolicyError {
    /// The policy, plan or list, such as `policy "login"`.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The key that is wrong.
    pub fn key(&self) -> &str {
        self.key
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What is wrong with it, or what was expected.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}
