//! All policies together, checked: from facts to charges.

mod named;
mod overridden;

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};
use smallvec::SmallVec;

use crate::decision::Decision;
use crate::limit::charge::{Charge, Charges};
use crate::limit::name::Name;
use crate::limit::quota::{Quota, Quotas};
use crate::limit::store::Standing;
use crate::policy::access_list::{CheckedAccessList, ListMatch};
use crate::policy::api_key::{CheckedKey, UnknownKeys};
use crate::policy::ban::Ban;
use crate::policy::builder::PoliciesBuilder;
use crate::policy::facts::Facts;
use crate::policy::identity::Identity;
use crate::policy::overrides::OverridesAt;
use crate::policy::paths::Paths;
use crate::policy::plan::CheckedPlan;
use crate::policy::source::Source;
use crate::policy::{Cost, OnStoreError, Scope};

pub use self::named::{NamedCharge, NamedChargeError};

/// A set of policies that can be enforced: everything in it has been checked.
///
/// ```
/// use slidegate::{Plan, Policies, Policy, Quota, Source};
///
/// let policies = Policies::builder()
///     .plan(Plan::new("free", [Quota::per_minute(60), Quota::per_day(10_000)]))
///     .plan(Plan::new("pro", [Quota::per_minute(600), Quota::per_day(100_000)]))
///     .policy(Policy::new("api").identity([Source::User, Source::ApiKey, Source::ip()]).plans("free"))
///     .policy(Policy::new("login").path("/login").quota(Quota::per_minute(5)))
///     .build()?;
/// # Ok::<(), slidegate::PolicyErrors>(())
/// ```
#[derive(Debug, Default)]
pub struct Policies {
    pub(crate) policies: Vec<CheckedPolicy>,
    pub(crate) plans: HashMap<Name, Arc<CheckedPlan>>,
    pub(crate) api_keys: HashMap<Identity, CheckedKey>,
    pub(crate) unknown_keys: UnknownKeys,
    pub(crate) user_header: Option<HeaderName>,
    pub(crate) exempt: CheckedAccessList,
    pub(crate) blocked: CheckedAccessList,
}

/// One policy, checked.
#[derive(Debug)]
pub(crate) struct CheckedPolicy {
    pub(crate) name: Name,
    pub(crate) methods: Vec<Method>,
    /// `None` is every path.
    pub(crate) paths: Option<Paths>,
    pub(crate) patterns: Vec<String>,
    pub(crate) sources: Vec<Source>,
    pub(crate) limits: Limits,
    pub(crate) cost: Cost,
    pub(crate) count_denied: bool,
    /// A policy that only watches has none.
    pub(crate) ban: Option<Ban>,
    pub(crate) shadow: bool,
    pub(crate) scope: Scope,
    pub(crate) in_headers: bool,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) exempt: CheckedAccessList,
}

/// Where a policy's quotas come from.
#[derive(Debug)]
pub(crate) enum Limits {
    Quotas(Quotas),
    Plans { header: Option<HeaderName>, default: Arc<CheckedPlan> },
}

/// What the policies make of a request.
pub(crate) enum Resolution<'p> {
    /// It falls under those that match, which may be none.
    Matched,
    Exempt,
    Blocked,
    /// The request costs more than this policy's quotas ever allow.
    TooCostly,
    /// An operator has banned it for this long, under one policy or under all.
    Suspended(Option<&'p Name>, Duration),
}

/// The policies that a request falls under.
#[derive(Default)]
pub(crate) struct Matches<'p>(SmallVec<[Match<'p>; 2]>);

/// A policy that a request falls under, and for whom and how much.
pub(crate) struct Match<'p> {
    pub(crate) policy: &'p CheckedPolicy,
    pub(crate) identity: Identity,
    pub(crate) quotas: Cow<'p, Quotas>,
    pub(crate) plan: Option<&'p Arc<CheckedPlan>>,
    /// Whether the plan is the default because there is none of the name that was given.
    pub(crate) plan_unknown: bool,
    pub(crate) cost: NonZeroU32,
}

/// A plan as a request names it.
enum PlanName<'p, 'f> {
    /// It names none.
    None,
    Known(&'p Arc<CheckedPlan>),
    /// As it was sent.
    Unknown(&'f [u8]),
}

/// What one policy makes of a request.
pub(crate) enum Applied<'p> {
    Match(Match<'p>),
    Skipped(Skip),
    TooCostly,
}

/// Why a policy passes over a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// It is for other methods.
    Method,
    /// It is for other paths.
    Path,
    /// The request is on the policy's own list of exemptions.
    Exempt(ListMatch),
    /// It only watches, and the request costs more than its quotas ever allow.
    ShadowTooCostly,
}

impl Policies {
    /// Starts a set of policies.
    pub fn builder() -> PoliciesBuilder {
        PoliciesBuilder::default()
    }

    /// The names of the policies, in order.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.policies.iter().map(|policy| &policy.name)
    }

    /// The names of the policies that ban.
    pub(crate) fn banning(&self) -> impl Iterator<Item = &Name> {
        self.policies.iter().filter(|policy| policy.ban.is_some()).map(|policy| &policy.name)
    }

    /// Adds the policies that a request falls under to `matches`, which is the caller's because it
    /// is large to hand over.
    pub(crate) fn resolve<'p>(
        &'p self,
        facts: &Facts<'_>,
        overrides: Option<OverridesAt<'_>>,
        matches: &mut Matches<'p>,
    ) -> Resolution<'p> {
        let facts = &facts.user_header(self.user_header.as_ref());
        if self.blocked.find_any(facts).is_some() {
            return Resolution::Blocked;
        }
        if self.exempt.find(facts).is_some() {
            return Resolution::Exempt;
        }
        if let Some(overrides) = overrides {
            return self.resolve_overridden(facts, overrides, matches);
        }
        for policy in &self.policies {
            match self.apply(policy, facts) {
                Applied::Match(matched) => matches.0.push(matched),
                Applied::Skipped(_) => {}
                Applied::TooCostly => return Resolution::TooCostly,
            }
        }
        Resolution::Matched
    }

    pub(crate) fn apply<'p>(&'p self, policy: &'p CheckedPolicy, facts: &Facts<'_>) -> Applied<'p> {
        let matched = match self.draft(policy, facts) {
            Ok(matched) => matched,
            Err(skip) => return Applied::Skipped(skip),
        };
        match (matched.is_payable(), policy.shadow) {
            (true, _) => Applied::Match(matched),
            (false, true) => Applied::Skipped(Skip::ShadowTooCostly),
            (false, false) => Applied::TooCostly,
        }
    }

    /// How a policy counts a request, which may cost more than it can pay.
    #[inline]
    fn draft<'p>(
        &'p self,
        policy: &'p CheckedPolicy,
        facts: &Facts<'_>,
    ) -> Result<Match<'p>, Skip> {
        if let Some(skip) = policy.skips(facts) {
            return Err(skip);
        }
        let (quotas, plan, plan_unknown) = match &policy.limits {
            Limits::Quotas(quotas) => (quotas, None, false),
            Limits::Plans { header, default } => {
                let (plan, plan_unknown) = self.plan(header.as_ref(), facts).or_default(default);
                (&plan.quotas, Some(plan), plan_unknown)
            }
        };
        let cost = policy.cost.of_request(facts.cost);
        let identity = self.identify(&policy.sources, facts);
        Ok(Match { policy, identity, quotas: Cow::Borrowed(quotas), plan, plan_unknown, cost })
    }

    /// Adds the policies that a decision has spent under to `matches`, with the identities and the
    /// quotas that it was made by: those in force may be others by now.
    pub(crate) fn find_spent<'p>(
        &'p self,
        facts: &Facts<'_>,
        decision: &'p Decision,
        matches: &mut Matches<'p>,
    ) {
        for standing in decision.policies().iter().filter(|standing| !standing.is_violated()) {
            let Some(policy) = self.find(standing.policy()) else { continue };
            let in_force = match (&policy.limits, standing.plan()) {
                (Limits::Plans { .. }, Some(plan)) => &plan.quotas,
                (Limits::Plans { default, .. }, None) => &default.quotas,
                (Limits::Quotas(quotas), _) => quotas,
            };
            let quotas = standing.standings().iter().map(Standing::quota);
            let quotas = match quotas.clone().eq(in_force.as_slice().iter().copied()) {
                true => Cow::Borrowed(in_force),
                false => Quotas::new(quotas).map_or(Cow::Borrowed(in_force), Cow::Owned),
            };
            let cost = policy.cost.of_request(facts.cost);
            let cost = cost.min(quotas.fewest_units());
            let identity = *standing.identity();
            matches.0.push(Match {
                policy,
                identity,
                quotas,
                plan: None,
                plan_unknown: false,
                cost,
            });
        }
    }

    /// The plan that the application names, else that of the API key, else that of the header.
    fn plan<'f>(&self, header: Option<&HeaderName>, facts: &Facts<'f>) -> PlanName<'_, 'f> {
        if let Some(name) = facts.plan {
            return self.plan_named(name.as_bytes());
        }
        if !self.api_keys.is_empty()
            && let Some(key) = Source::ApiKey.read(facts)
            && let Some(key) = self.api_keys.get(&key)
        {
            return PlanName::Known(&key.plan);
        }
        let name = header.and_then(|header| facts.trusted_header(header));
        name.map_or(PlanName::None, |name| self.plan_named(name))
    }

    /// The plan of this name; an empty one names none.
    fn plan_named<'f>(&self, name: &'f [u8]) -> PlanName<'_, 'f> {
        match std::str::from_utf8(name).ok().and_then(|name| self.plans.get(name)) {
            Some(plan) => PlanName::Known(plan),
            None if name.is_empty() => PlanName::None,
            None => PlanName::Unknown(name),
        }
    }

    /// The name of the plan that the policy was to go by and that there is not.
    #[cold]
    pub(crate) fn unknown_plan(&self, policy: &CheckedPolicy, facts: &Facts<'_>) -> Option<String> {
        let Limits::Plans { header, .. } = &policy.limits else { return None };
        match self.plan(header.as_ref(), facts) {
            PlanName::Unknown(name) => Some(String::from_utf8_lossy(name).into_owned()),
            PlanName::None | PlanName::Known(_) => None,
        }
    }

    /// The first identity that the sources find, or `anonymous`: never none.
    fn identify(&self, sources: &[Source], facts: &Facts<'_>) -> Identity {
        let found = sources.iter().find_map(|source| self.read(source, facts));
        found.unwrap_or_else(Identity::anonymous)
    }

    /// The request's identity by a source, unless it is an API key that nobody has issued and such
    /// keys are ignored.
    #[inline]
    pub(crate) fn read(&self, source: &Source, facts: &Facts<'_>) -> Option<Identity> {
        let identity = source.read(facts)?;
        let is_ignored = self.unknown_keys == UnknownKeys::Ignore
            && source.gives_api_keys()
            && !self.api_keys.contains_key(&identity);
        (!is_ignored).then_some(identity)
    }

    /// Every window that the policy may keep a ledger for, for calls that are about an account
    /// and not about a request.
    pub(crate) fn windows_of(&self, policy: &CheckedPolicy) -> Vec<Quota> {
        let mut quotas: Vec<Quota> = match &policy.limits {
            Limits::Quotas(quotas) => quotas.as_slice().to_vec(),
            Limits::Plans { .. } => {
                self.plans.values().flat_map(|plan| plan.quotas.as_slice()).copied().collect()
            }
        };
        quotas.sort_unstable_by_key(|quota| (quota.window(), std::cmp::Reverse(quota.units())));
        quotas.dedup_by_key(|quota| quota.window());
        quotas
    }

    pub(crate) fn find(&self, name: &str) -> Option<&CheckedPolicy> {
        self.policies.iter().find(|policy| &*policy.name == name)
    }
}

impl<'p> PlanName<'p, '_> {
    /// The plan to go by, and whether it stands in for one that there is not.
    fn or_default(self, default: &'p Arc<CheckedPlan>) -> (&'p Arc<CheckedPlan>, bool) {
        match self {
            Self::Known(plan) => (plan, false),
            Self::None => (default, false),
            Self::Unknown(_) => (default, true),
        }
    }
}

impl CheckedPolicy {
    fn skips(&self, facts: &Facts<'_>) -> Option<Skip> {
        if !self.methods.is_empty() && !self.methods.contains(facts.method) {
            return Some(Skip::Method);
        }
        if let Some(paths) = &self.paths
            && !facts.paths().any(|path| paths.contains(path))
        {
            return Some(Skip::Path);
        }
        self.exempt.find(facts).map(Skip::Exempt)
    }

    #[cold]
    pub(crate) fn warn_of_unknown_plan(&self, plan: &str) {
        let Limits::Plans { default, .. } = &self.limits else { return };
        // As much of it as a log line has room for: whoever names it may be wrong in any way.
        let plan: String = plan.chars().take(64).collect();
        tracing::warn!(
            policy = &*self.name,
            plan,
            default = &**default.name(),
            "unknown plan: the policy's default plan applies"
        );
    }
}

impl Matches<'_> {
    /// What the request would spend under the policies of one scope.
    #[inline]
    pub(crate) fn charges(&self, scope: Scope) -> Charges<'_> {
        let of_scope = self.0.iter().filter(|matched| matched.policy.scope == scope);
        Charges::of_policies(of_scope.map(Match::charge))
    }

    /// The policies that go by their default plan because there is none of the name that was given.
    pub(crate) fn with_unknown_plan(&self) -> impl Iterator<Item = &CheckedPolicy> {
        self.0.iter().filter(|matched| matched.plan_unknown).map(|matched| matched.policy)
    }

    /// Whom the policies could ban for the request.
    pub(crate) fn bans(&self) -> impl Iterator<Item = (&Name, &Identity, Ban)> {
        self.0.iter().filter_map(|m| Some((&m.policy.name, &m.identity, m.policy.ban?)))
    }
}

impl Match<'_> {
    /// Whether the quotas could ever allow it.
    #[inline]
    fn is_payable(&self) -> bool {
        self.cost <= self.quotas.fewest_units()
    }

    pub(crate) fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy.name, &self.identity, &self.quotas)
            .with_cost(self.cost)
            .expect("a policy matches only requests that it can charge")
            .count_denied(self.policy.count_denied)
            .shadow(self.policy.shadow)
            .on_store_error(self.policy.on_store_error)
            .with_plan(self.plan)
            .in_headers(self.policy.in_headers)
            .with_unknown_plan(self.plan_unknown)
    }
}
