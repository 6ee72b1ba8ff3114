//! All policies together, checked: from facts to charges.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use smallvec::SmallVec;

use crate::chosen::ChosenBound;
use crate::limit::{
    Account, Charge, Charges, Name, Quota, Quotas, Standing, Standings, StoreError, Timestamp,
};
use crate::policy::api_key::{CheckedKey, UnknownKeys};
use crate::policy::checked::{CheckedPolicy, Limits};
use crate::policy::found_key::KeyState;
use crate::policy::overrides::{Grants, OverrideEffect, OverridesAt};
use crate::policy::path_router::PathRouter;
use crate::policy::{
    AccessList, Ban, CheckedPlan, Facts, Identity, ListMatch, PathReading, PathReadings,
    PoliciesBuilder, Source,
};
use crate::verdict::Block;

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
    /// Leads to those of them that are for requests.
    pub(crate) router: PathRouter,
    /// The headers with credentials that identities are read from.
    pub(crate) credentials_headers: Vec<HeaderName>,
    pub(crate) plans: BTreeMap<Name, Arc<CheckedPlan>>,
    pub(crate) api_keys: HashMap<Identity, CheckedKey>,
    /// The plan of each customer, and when the last of its keys with that plan ends.
    pub(crate) customer_plans: HashMap<Identity, (Arc<CheckedPlan>, Option<Timestamp>)>,
    pub(crate) has_sha256_keys: bool,
    pub(crate) has_expiring_keys: bool,
    /// Whether anything depends on the API key of a request.
    pub(crate) reads_keys: bool,
    /// Whether tokens are read from `Authorization`.
    pub(crate) reads_tokens: bool,
    /// Whether a token may name the plan.
    pub(crate) tokens_have_plans: bool,
    pub(crate) unknown_keys: UnknownKeys,
    pub(crate) user_header: Option<HeaderName>,
    pub(crate) path_reading: PathReading,
    pub(crate) exempt: AccessList,
    pub(crate) blocked: AccessList,
    /// How many identities that clients choose an address may have.
    pub(crate) bound: ChosenBound,
}

/// Why a policy skips a request.
pub(crate) enum Skip {
    /// It is for charges by name, or for descriptors.
    Request,
    /// It is for other methods.
    Method,
    /// It is for other paths.
    Path,
    /// The request is on the policy's own list of exemptions.
    Exempt(ListMatch),
    /// The request has none of its identities.
    Anonymous,
}

/// A charge by name: the caller knows the account, so no request is needed to find it.
#[derive(Debug, Clone, Copy)]
pub struct NamedCharge<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Whose account it is. An address counts as the policy counts addresses, by its network.
    pub identity: Identity,
    /// The plan, for a policy that uses plans; an unknown one is the default. Without it, the plan of the
    /// listed API key or of its customer applies.
    pub plan: Option<&'a str>,
    /// The units to spend, else what the policy fixes, else one.
    pub cost: Option<NonZeroU32>,
    /// The quotas to go by in place of the policy's or the plan's. A policy
    /// [of given quotas](crate::Policy::caller_quotas) needs them.
    pub quotas: Option<&'a Quotas>,
}

/// Why something could not be done to an account that is named.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// No policy in force has this name.
    #[error("there is no policy {0:?}")]
    UnknownPolicy(String),
    /// The policy defines no quotas, and the charge supplies none.
    #[error("policy {0:?} defines no quotas: each charge must supply them")]
    NoQuotas(String),
    /// The policy does not ban.
    #[error("policy {0:?} has no ban")]
    NoBan(String),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A policy that counts a request, as [`Policies::matching`] finds it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MatchedPolicy<'p> {
    /// The policy.
    pub policy: &'p CheckedPolicy,
    /// Whose account it charges.
    pub identity: Identity,
    /// The quotas that apply.
    pub quotas: Cow<'p, Quotas>,
    /// The plan that the quotas come from.
    pub plan: Option<&'p CheckedPlan>,
    /// How many units the request costs. They may be more than a quota ever allows.
    pub cost: NonZeroU32,
}

/// The policies that a request falls under, and what outweighs them: of the fields that are set,
/// the first holds.
#[derive(Default)]
pub(crate) struct Matches<'p> {
    pub(crate) list: SmallVec<[Match<'p>; 2]>,
    /// The operator has listed it as blocked.
    pub(crate) blocked: bool,
    /// An override bans it for this long, under one policy or under all.
    pub(crate) banned: Option<(Duration, Option<&'p Name>)>,
    /// The operator has listed it as exempt, or an override exempts it from all policies.
    pub(crate) exempt: bool,
    /// Its credentials are refused.
    pub(crate) refused: Option<Block>,
    /// It costs more than a policy's quotas ever allow.
    pub(crate) too_costly: bool,
    /// The costs are written down whether they fit or not.
    pub(crate) records: bool,
}

/// A policy that a request falls under, with the identity and the cost.
pub(crate) struct Match<'p> {
    pub(crate) policy: &'p CheckedPolicy,
    pub(crate) identity: Identity,
    pub(crate) quotas: Cow<'p, Quotas>,
    /// The quotas that the ledgers are kept by, if they are others.
    pub(crate) ledgers: Option<Quotas>,
    /// What is counted beside and never enforced.
    pub(crate) candidate: Option<Cow<'p, Quotas>>,
    pub(crate) plan: Option<&'p Arc<CheckedPlan>>,
    /// The plan that the request names and that there is not: `plan` is the default.
    pub(crate) unknown_plan: Option<String>,
    pub(crate) cost: NonZeroU32,
    /// Whether the quotas came with the charge.
    pub(crate) caller_quotas: bool,
}

/// Where a quota stands that is counted beside those in force and never enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CandidateStanding {
    /// The quota.
    pub quota: Quota,
    /// How many of its units what has passed in the last window leaves.
    pub remaining: u32,
    /// Whether the request did not fit.
    pub violated: bool,
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
    pub(crate) fn banning(&self) -> HashSet<&Name> {
        self.policies
            .iter()
            .filter(|policy| policy.ban.is_some())
            .map(|policy| &policy.name)
            .collect()
    }

    pub(crate) fn find(&self, name: &str) -> Result<&CheckedPolicy, AccountError> {
        let found = self.policies.iter().find(|policy| &*policy.name == name);
        found.ok_or_else(|| AccountError::UnknownPolicy(name.to_owned()))
    }

    /// The readings of a request's path: those that come with the facts, if they are what these
    /// policies go by.
    pub(crate) fn readings<'f>(&self, facts: &Facts<'f>) -> Cow<'f, PathReadings<'f>> {
        match facts.readings.filter(|given| given.reading == self.path_reading) {
            Some(given) => Cow::Borrowed(given),
            None => Cow::Owned(self.path_reading.read(facts.path)),
        }
    }

    /// What becomes of a request. An identity that its client chose counts if `admits` says so.
    pub(crate) fn resolve<'p>(
        &'p self,
        facts: &Facts<'_>,
        overrides: Option<OverridesAt<'_>>,
        admits: impl Fn(&CheckedPolicy, &Identity) -> bool,
    ) -> Matches<'p> {
        self.resolve_under(|_| true, facts, overrides, admits)
    }

    /// The same under the policies that count by address alone, whatever the request costs.
    pub(crate) fn resolve_by_address<'p>(
        &'p self,
        facts: &Facts<'_>,
        overrides: Option<OverridesAt<'_>>,
    ) -> Matches<'p> {
        let matches =
            self.resolve_under(CheckedPolicy::is_by_address, facts, overrides, |_, _| true);
        Matches { too_costly: false, ..matches }
    }

    /// The same under the policies that `selects` picks.
    #[inline]
    fn resolve_under<'p>(
        &'p self,
        selects: impl Fn(&CheckedPolicy) -> bool,
        facts: &Facts<'_>,
        overrides: Option<OverridesAt<'_>>,
        admits: impl Fn(&CheckedPolicy, &Identity) -> bool,
    ) -> Matches<'p> {
        let readings = self.readings(facts);
        let key = self.find_key(facts);
        let facts = &facts.user_header(self.user_header.as_ref()).readings(&readings).key(&key);
        let mut matches = Matches::default();
        matches.blocked = self.blocked.find_any(facts).is_some();
        matches.exempt = !matches.blocked && self.exempt.find(facts).is_some();
        if matches.blocked || matches.exempt {
            return matches;
        }
        if let Some(overrides) = overrides {
            matches.note(overrides.of_request(facts));
        }
        matches.refused = self.refusal_by_lists(facts, overrides);
        for index in self.router.find(&readings) {
            let policy = &self.policies[index as usize];
            if !selects(policy) || policy.skips_found(facts).is_some() {
                continue;
            }
            if let Ok(matched) =
                self.draft_found(policy, facts, |identity| admits(policy, identity))
            {
                matches.refused = matches.refused.or_else(|| self.refusal(policy, facts));
                matches.add(matched, overrides);
            }
        }
        matches
    }

    /// What becomes of a caller whatever it asks for: the policies that count it by its identities,
    /// each charged one unit. Conditions on methods and paths do not apply, nor do exemptions of paths.
    /// A ban by an override counts if it is for all policies.
    pub(crate) fn resolve_caller<'p>(
        &'p self,
        facts: &Facts<'_>,
        overrides: Option<OverridesAt<'_>>,
        admits: impl Fn(&CheckedPolicy, &Identity) -> bool,
    ) -> Matches<'p> {
        let key = self.find_key(facts);
        let facts = facts.user_header(self.user_header.as_ref()).key(&key);
        let blocked = {
            let readings = self.readings(&facts);
            self.blocked.find_any(&facts.readings(&readings)).is_some()
        };
        // Without readings of its path, a request is on a list for its identities alone.
        let facts = &Facts { readings: None, ..facts };
        let exempt = !blocked && self.exempt.find(facts).is_some();
        let mut matches = Matches { blocked, exempt, ..Matches::default() };
        if blocked || exempt {
            return matches;
        }
        if let Some(overrides) = overrides {
            matches.note(overrides.of_request(facts));
        }
        for policy in self.policies.iter().filter(|policy| policy.is_for_requests()) {
            if policy.exempt.find(facts).is_some() {
                continue;
            }
            let drafted = self.draft_found(policy, facts, |identity| admits(policy, identity));
            let Ok(mut matched) = drafted else { continue };
            matches.refused = matches.refused.or_else(|| self.refusal(policy, facts));
            matched.cost = NonZeroU32::MIN;
            if let Some(overrides) = overrides {
                matches.note(overrides.everywhere(&matched.identity));
                if overrides.under(policy, &matched.identity).exempt.is_some() {
                    continue;
                }
                matched.raise(overrides.grants(&policy.name, &matched.identity));
            }
            matches.list.push(matched);
        }
        matches
    }

    /// The policies that count a request, whether they have room for it or not. None if the request
    /// is exempt or blocked.
    ///
    /// ```
    /// use slidegate::{Facts, Policies, Policy};
    ///
    /// let policies = Policies::builder().policy(Policy::new("api").quota("60/min")).build()?;
    /// let facts = Facts::new(&http::Method::GET, "/").client("203.0.113.7".parse()?);
    ///
    /// let api = policies.matching(&facts).next().unwrap();
    /// assert_eq!((&*api.policy.name, api.identity.as_str()), ("api", "ip:203.0.113.7"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matching<'f, 'p: 'f>(
        &'p self,
        facts: &Facts<'f>,
    ) -> impl Iterator<Item = MatchedPolicy<'p>> {
        let readings = self.readings(facts);
        let key = self.find_key(facts);
        let facts = facts.user_header(self.user_header.as_ref());
        let is_listed = {
            let facts = facts.readings(&readings).key(&key);
            self.blocked.find_any(&facts).is_some() || self.exempt.find(&facts).is_some()
        };
        let policies = if is_listed { &[][..] } else { &self.policies[..] };
        policies.iter().filter_map(move |policy| {
            let facts = facts.readings(&readings).key(&key);
            let matched = self.draft(policy, &facts, |_| true).ok()?;
            let Match { identity, quotas, cost, .. } = matched;
            let plan = matched.plan.map(|plan| &**plan);
            Some(MatchedPolicy { policy, identity, quotas, plan, cost })
        })
    }

    /// What becomes of charges that are named, added to `matches`. Those to one account are one charge
    /// with the cost of all.
    pub(crate) fn resolve_named<'p>(
        &'p self,
        charges: &[NamedCharge<'p>],
        overrides: Option<OverridesAt<'_>>,
        now: Timestamp,
        matches: &mut Matches<'p>,
    ) -> Result<(), AccountError> {
        let mut drafts: SmallVec<[Match<'p>; 2]> = SmallVec::new();
        for charge in charges {
            let policy = self.find(charge.policy)?;
            if matches!(policy.limits, Limits::CallerQuotas(_)) && charge.quotas.is_none() {
                return Err(AccountError::NoQuotas(charge.policy.to_owned()));
            }
            if let Some(overrides) = overrides {
                matches.note(overrides.around(&charge.identity));
                // That of an API key counts too, though its customer is charged.
                matches.note(overrides.everywhere(&charge.identity));
            }
            let draft = self.match_named(policy, charge, now);
            match drafts.iter_mut().find(|other| other.is_same_account(&draft)) {
                Some(same) => same.cost = same.cost.saturating_add(draft.cost.get()),
                None => drafts.push(draft),
            }
        }
        drafts.into_iter().for_each(|draft| matches.add(draft, overrides));
        Ok(())
    }

    /// How a policy counts a request, which may cost more than it can pay. An identity that its
    /// client chose counts if `admits` says so.
    #[inline]
    pub(crate) fn draft<'p>(
        &'p self,
        policy: &'p CheckedPolicy,
        facts: &Facts<'_>,
        admits: impl Fn(&Identity) -> bool,
    ) -> Result<Match<'p>, Skip> {
        if let Some(skip) = policy.skips(facts) {
            return Err(skip);
        }
        self.draft_found(policy, facts, admits)
    }

    /// The same for a policy that does not skip the request.
    #[inline]
    fn draft_found<'p>(
        &'p self,
        policy: &'p CheckedPolicy,
        facts: &Facts<'_>,
        admits: impl Fn(&Identity) -> bool,
    ) -> Result<Match<'p>, Skip> {
        let identity = self.identity(policy, facts, admits).ok_or(Skip::Anonymous)?;
        let (plan, quotas) = match &policy.limits {
            Limits::Quotas(_) | Limits::CallerQuotas(_) => (&[][..], None),
            Limits::Plans { header, .. } => self.terms(header.as_ref(), facts),
        };
        let quotas = quotas.cloned().map(Cow::Owned);
        Ok(self.matched(policy, identity, plan, policy.cost.of_request(facts.cost), quotas))
    }

    /// How a policy counts a charge that is named. By `now`, the time of the calendar, an API key may have
    /// ended: it is then as one that is not listed.
    pub(crate) fn match_named<'p>(
        &'p self,
        policy: &'p CheckedPolicy,
        charge: &NamedCharge<'p>,
        now: Timestamp,
    ) -> Match<'p> {
        let of_key = || self.plan_of(&charge.identity, now).map(|plan| &*plan.name);
        let plan = charge.plan.or_else(of_key).unwrap_or_default().as_bytes();
        let cost = charge.cost.unwrap_or_else(|| policy.cost.of_request(None));
        let identity = policy.account_of(charge.identity);
        let key = self.listed_key(&identity, now);
        let identity = key.and_then(|key| key.customer).unwrap_or(identity);
        self.matched(policy, identity, plan, cost, charge.quotas.map(Cow::Borrowed))
    }

    /// The match of an identity, by the quotas that are given. Else, if the policy uses plans, by
    /// the one of this name; an unknown name is the default's, and so is an empty one.
    #[inline]
    fn matched<'p>(
        &'p self,
        policy: &'p CheckedPolicy,
        identity: Identity,
        plan_name: &[u8],
        cost: NonZeroU32,
        given: Option<Cow<'p, Quotas>>,
    ) -> Match<'p> {
        let caller_quotas = given.is_some();
        let (quotas, plan, unknown_plan) = match (given, &policy.limits) {
            (Some(quotas), _) => (quotas, None, None),
            (None, Limits::Quotas(quotas)) => (Cow::Borrowed(quotas), None, None),
            (None, Limits::CallerQuotas(quotas_of)) => {
                (Cow::Owned(quotas_of(&identity)), None, None)
            }
            (None, Limits::Plans { default, .. }) => {
                let name = std::str::from_utf8(plan_name).ok();
                let known = name.and_then(|name| self.plans.get(name));
                let plan = known.unwrap_or(default);
                // As much of it as a log line has room for: a client may have sent anything.
                let unknown = || String::from_utf8_lossy(plan_name).chars().take(64).collect();
                let is_unknown = known.is_none() && !plan_name.is_empty();
                (Cow::Borrowed(&plan.quotas), Some(plan), is_unknown.then(unknown))
            }
        };
        Match {
            policy,
            identity,
            ledgers: policy.ledgers_beside(&quotas, caller_quotas),
            candidate: policy.candidate.as_ref().map(Cow::Borrowed),
            quotas,
            plan,
            unknown_plan,
            cost,
            caller_quotas,
        }
    }

    /// The name of the plan that the application names, else the quotas or the plan of who bears the
    /// credentials, else the plan of the header; empty if there is none.
    fn terms<'f>(
        &self,
        header: Option<&HeaderName>,
        facts: &Facts<'f>,
    ) -> (&'f [u8], Option<&'f Quotas>) {
        let key = facts.key.copied().unwrap_or_default();
        if let Some(name) = facts.plan {
            return (name.as_bytes(), None);
        }
        if key.quotas.is_some() || key.plan.is_some() {
            return (key.plan.unwrap_or_default().as_bytes(), key.quotas);
        }
        (header.and_then(|header| facts.trusted_header(header)).unwrap_or_default(), None)
    }

    /// Whose account a request is counted in: the first source's that finds an identity. Those that
    /// the client chose have to be admitted; where none is, its address counts. None if there is no
    /// identity and the policy skips such requests.
    #[inline]
    fn identity(
        &self,
        policy: &CheckedPolicy,
        facts: &Facts<'_>,
        admits: impl Fn(&Identity) -> bool,
    ) -> Option<Identity> {
        let mut is_refused = false;
        for source in &policy.identity {
            let Some(identity) = source.read(facts) else { continue };
            if !is_chosen(source, &identity, facts) || admits(&identity) {
                return Some(identity);
            }
            is_refused = true;
        }
        if let Some(address) = facts.client.filter(|_| is_refused) {
            return Some(Identity::ip(address, policy.prefixes()));
        }
        // A header that is sent twice is not read, and does not evade the policy. Nor does a key that
        // is refused.
        let is_anonymous =
            || !is_refused && self.check(facts).is_ok() && self.refusal(policy, facts).is_none();
        let is_skipped = policy.skip_anonymous && is_anonymous();
        (!is_skipped).then(Identity::anonymous)
    }
}

/// Whether a client chose its identity, and could choose another with the next request: it is neither
/// issued nor known to the application.
#[inline]
fn is_chosen(source: &Source, identity: &Identity, facts: &Facts<'_>) -> bool {
    let is_of_client = match source {
        source if source.gives_api_keys() => {
            facts.key.is_some_and(|key| key.state == KeyState::Own)
        }
        source => matches!(source, Source::Authorization | Source::Header(_)),
    };
    is_of_client && !facts.identities.contains(identity)
}

impl<'p> Matches<'p> {
    /// Adds a policy that counts the request, as an operator's overrides have it.
    fn add(&mut self, mut matched: Match<'p>, overrides: Option<OverridesAt<'_>>) {
        let policy = matched.policy;
        if let Some(overrides) = overrides {
            let everywhere = overrides.everywhere(&matched.identity);
            let here = overrides.under(policy, &matched.identity);
            self.note(everywhere);
            self.note_ban(here.banned, Some(&policy.name));
            if here.exempt.is_some() || (self.records && everywhere.exempt.is_some()) {
                return;
            }
            matched.raise(overrides.grants(&policy.name, &matched.identity));
        }
        if self.records || matched.is_payable() {
            self.list.push(matched);
        } else {
            self.too_costly |= !policy.shadow;
        }
    }

    /// Notes the overrides under all policies.
    fn note(&mut self, everywhere: OverrideEffect) {
        self.note_ban(everywhere.banned, None);
        // Of records, only those of the exempt identity are left out.
        self.exempt |= everywhere.exempt.is_some() && !self.records;
    }

    fn note_ban(&mut self, rest: Option<Duration>, policy: Option<&'p Name>) {
        if let Some(rest) = rest
            && self.banned.is_none_or(|(longest, _)| rest > longest)
        {
            self.banned = Some((rest, policy));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Match<'p>> {
        self.list.iter()
    }

    /// What the request would spend, as far as `selects` picks it.
    #[inline]
    pub(crate) fn charges(&self, selects: impl Fn(&Match<'p>) -> bool) -> Charges<'_> {
        let meant = self.list.iter().filter(|matched| selects(matched));
        if self.records {
            return Charges::of_accounts(meant.map(Match::record));
        }
        Charges::of_accounts(meant.map(Match::charge))
    }

    /// The accounts that the policies could ban for the request.
    pub(crate) fn bans(&self) -> impl Iterator<Item = (Account, Ban)> {
        self.list.iter().filter_map(|Match { policy, identity, .. }| {
            Some((Account { policy: policy.name.clone(), identity: *identity }, policy.ban?))
        })
    }
}

impl Match<'_> {
    pub(crate) fn is_same_account(&self, other: &Match<'_>) -> bool {
        self.policy.name == other.policy.name && self.identity == other.identity
    }

    /// Whether its units may be prefetched.
    pub(crate) fn is_leased(&self) -> bool {
        self.lease().is_some()
    }

    fn lease(&self) -> Option<Duration> {
        self.policy.consistency_of(self.caller_quotas).lease(&self.quotas)
    }

    /// Whether the quotas could ever allow it.
    #[inline]
    pub(crate) fn is_payable(&self) -> bool {
        self.cost <= self.quotas.fewest_units()
    }

    /// Gives the quotas the units that are granted.
    pub(crate) fn raise(&mut self, grants: Grants<'_>) {
        if grants.is_empty() {
            return;
        }
        let raise = |quotas: &Quotas| quotas.raised(|window| grants.units(window));
        self.quotas = Cow::Owned(raise(&self.quotas));
        self.ledgers = self.policy.ledgers_beside(&self.quotas, self.caller_quotas);
        self.candidate = self.candidate.as_deref().map(raise).map(Cow::Owned);
    }

    /// The quotas that its ledgers are kept by.
    pub(crate) fn ledger_quotas(&self) -> &Quotas {
        self.ledgers.as_ref().unwrap_or(&self.quotas)
    }

    pub(crate) fn charge(&self) -> Charge<'_> {
        let charge = self.unit().with_cost(self.cost);
        let charge = charge.expect("a policy matches only requests that it can charge");
        charge.count_denied(self.policy.count_denied)
    }

    /// Its cost, written down whether it fits or not.
    fn record(&self) -> Charge<'_> {
        self.unit().record(self.cost)
    }

    fn unit(&self) -> Charge<'_> {
        Charge::new(&self.policy.name, &self.identity, self.ledger_quotas())
            .shadow(self.policy.shadow)
            .on_store_error(self.policy.on_store_error)
            .leased(self.lease())
    }

    /// The standings of its own ledgers as those of its quotas.
    pub(crate) fn standings(&self, ledgers: &[Standing]) -> Standings {
        let quotas = self.quotas.as_slice().iter();
        ledgers.iter().zip(quotas).map(|(standing, quota)| standing.with_quota(*quota)).collect()
    }

    /// Where its candidate stands, by the standings of its own ledgers: those of its quotas, then
    /// those of windows that only the candidate has. They have the request in them if it is counted.
    pub(crate) fn candidate_standings(
        &self,
        ledgers: &[Standing],
        is_counted: bool,
    ) -> Vec<CandidateStanding> {
        let Some(candidate) = &self.candidate else { return Vec::new() };
        let quotas = self.quotas.as_slice();
        let mut others = ledgers.iter().skip(quotas.len());
        let mut ledger_of =
            |quota: &Quota| match quotas.iter().position(|own| own.window() == quota.window()) {
                Some(own) => ledgers.get(own),
                None => others.next(),
            };
        let cost = if is_counted { 0 } else { self.cost.get() };
        let standing = |quota: &Quota| {
            let ledger = ledger_of(quota)?;
            let used = ledger.quota().units().get().saturating_sub(ledger.remaining());
            let (units, wanted) = (quota.units().get(), used.saturating_add(cost));
            let remaining = units.saturating_sub(used);
            Some(CandidateStanding { quota: *quota, remaining, violated: wanted > units })
        };
        candidate.as_slice().iter().filter_map(standing).collect()
    }
}
