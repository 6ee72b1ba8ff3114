//! Policies: which requests, counted by which identity, against which quotas.
//!
//! This file has the [`Policy`] as it is written down; the files beside it check a set of them
//! ([`Policies::builder`]) and match requests with it.

pub(crate) mod access_list;
pub(crate) mod api_key;
pub(crate) mod bad_request;
pub(crate) mod ban;
pub(crate) mod bearer;
pub(crate) mod builder;
pub(crate) mod checked;
mod credentials;
pub(crate) mod descriptors;
pub(crate) mod explain;
pub(crate) mod facts;
mod found_key;
mod invented;
pub(crate) mod matching;
mod methods;
pub(crate) mod overrides;
mod path_pattern;
pub(crate) mod path_reading;
pub(crate) mod path_router;
mod paths;
pub(crate) mod plan;
pub(crate) mod response;
pub(crate) mod source;
mod summary;

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, Method};

use self::builder::InvalidValues;
use self::paths::Paths;
use crate::limit::{Quota, Quotas};

pub use self::access_list::{AccessList, ListMatch};
pub use self::api_key::{ApiKey, ApiKeyDigestError, KeyDigest, KeyHash, UnknownKeys};
pub use self::bad_request::BadRequest;
pub use self::ban::{ActiveBan, Ban, BanStats};
pub use self::bearer::{Bearer, KeyStatus, TokenStatus};
pub use self::builder::{PoliciesBuilder, PolicyError, PolicyErrors};
pub use self::checked::CheckedPolicy;
pub use self::descriptors::Descriptors;
pub use self::explain::{ExplainedPolicy, Explanation};
pub use self::facts::Facts;
pub use self::matching::{AccountError, CandidateStanding, MatchedPolicy, NamedCharge, Policies};
pub use self::overrides::{Action, Override, Overrides, TooManyOverrides};
pub use self::path_reading::{PathReading, PathReadings, without_query};
pub use self::plan::{CheckedPlan, Plan};
pub use self::response::{
    CLIENT_CLOSED_REQUEST, CostSource, Counted, HeadCost, JsonPath, ResponseRule, StatusRange,
    Statuses, units_of,
};
pub use self::source::Source;
pub use crate::identity::{Identity, Network, ParseError, PrefixError, Prefixes};
pub use crate::limit::OnStoreError;

/// A named rule: which requests, counted by which identity, against which quotas.
///
/// This is the policy as written; [`Policies`] checks all of them together.
///
/// ```
/// use slidegate::{OnStoreError, Policy};
///
/// let login = Policy::new("login")
///     .method("POST")
///     .path("/api/v1/auth/login")
///     .quota("5/min")
///     .on_store_error(OnStoreError::Deny);
/// ```
#[must_use]
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) name: String,
    pub(crate) methods: Vec<Method>,
    pub(crate) paths: Paths,
    pub(crate) descriptors: Option<Descriptors>,
    /// None is the client's address, and for descriptors their values.
    pub(crate) sources: Option<Vec<Source>>,
    pub(crate) skip_anonymous: bool,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) candidate: Vec<Quota>,
    pub(crate) plans: Option<PlanRule>,
    pub(crate) caller_quotas: Option<fn(&Identity) -> Quotas>,
    /// None is as the scope has it.
    pub(crate) cost: Option<Cost>,
    pub(crate) count_denied: bool,
    /// The statuses that count, and those that do not.
    pub(crate) counted: Option<Statuses>,
    pub(crate) refunded: Option<Statuses>,
    pub(crate) response_cost: Option<CostSource>,
    pub(crate) admit_only: bool,
    pub(crate) ban: Option<Ban>,
    pub(crate) shadow: bool,
    pub(crate) scope: Scope,
    pub(crate) consistency: Consistency,
    /// None is as the scope has it.
    pub(crate) in_headers: Option<bool>,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) exempt: AccessList,
    pub(crate) invalid: InvalidValues,
}

/// How a policy that uses plans finds a request's plan.
#[derive(Debug, Clone)]
pub(crate) struct PlanRule {
    pub(crate) header: Option<HeaderName>,
    pub(crate) default: String,
}

impl Policy {
    /// A policy for every request, counted per client address. It still needs quotas or plans.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            methods: Vec::new(),
            paths: Paths::default(),
            descriptors: None,
            sources: None,
            skip_anonymous: false,
            quotas: Vec::new(),
            candidate: Vec::new(),
            plans: None,
            caller_quotas: None,
            cost: None,
            count_denied: false,
            counted: None,
            refunded: None,
            response_cost: None,
            admit_only: false,
            ban: None,
            shadow: false,
            scope: Scope::default(),
            consistency: Consistency::default(),
            in_headers: None,
            on_store_error: OnStoreError::default(),
            exempt: AccessList::new(),
            invalid: InvalidValues::default(),
        }
    }

    /// Only requests with this method; repeat it for several. A word that is one slip away from a
    /// known method, such as `GTE`, is an error when the policies are built.
    pub fn method<M>(mut self, method: M) -> Self
    where
        M: TryInto<Method, Error: fmt::Display> + fmt::Display,
    {
        let text = method.to_string();
        let method = method.try_into().map_err(|error| error.to_string());
        let method = self.invalid.accept("method", text, method.and_then(methods::check));
        self.methods.extend(method);
        self
    }

    /// Only requests for paths of this pattern, such as `/users/{id}` or `/static/{*rest}`;
    /// repeat it for several. Other spellings of a path count too: see [`PathReading`]. Stars and
    /// colons are no wildcards: `/static/*` is an error when the policies are built.
    pub fn path(mut self, pattern: impl Into<String>) -> Self {
        self.paths.patterns.push(pattern.into());
        self
    }

    /// Whose requests are counted together: the first source that a request has. One that has
    /// none of them counts as the shared identity `anonymous`.
    pub fn identity(self, sources: impl IntoIterator<Item = Source>) -> Self {
        Self { sources: Some(sources.into_iter().collect()), ..self }
    }

    /// Only [descriptors](Descriptors) of this domain with exactly these keys and values, and no
    /// requests. Each `*` in a value stands for any text. Unless it says another
    /// [`identity`](Self::identity), a policy has an account for each combination of the values with
    /// a `*`; [`Policies::descriptor_charges`] has an example.
    pub fn descriptors<K: Into<String>, V: Into<String>>(
        self,
        domain: impl Into<String>,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        let (domain, except) = (domain.into(), Vec::new());
        Self { descriptors: Some(Descriptors { domain, entries, except }), ..self }
    }

    /// Leaves [descriptors](Self::descriptors), which come first, to other policies if this key has
    /// such a value.
    pub fn except(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        match &mut self.descriptors {
            Some(descriptors) => descriptors.except.push((key, value)),
            None => {
                let problem =
                    Err::<(), _>("requests have no descriptors: expected descriptors too");
                self.invalid.accept("except", key, problem);
            }
        }
        self
    }

    /// Adds a quota; all of a policy's quotas must allow a request. A text such as `60/min` that is
    /// no quota is an error when the policies are built.
    pub fn quota<Q>(mut self, quota: Q) -> Self
    where
        Q: TryInto<Quota, Error: fmt::Display> + fmt::Display,
    {
        let quota = self.invalid.accept("quotas", quota.to_string(), quota.try_into());
        self.quotas.extend(quota);
        self
    }

    /// Adds a quota that is counted beside those in force and never enforced, to see which
    /// identities it would deny: [`PolicyStanding::candidate`](crate::PolicyStanding::candidate).
    ///
    /// It is compared with what the policy's own quotas have let pass. So use it for a tighter
    /// quota, or for another window, which gets a separate ledger that limits nothing.
    pub fn candidate<Q>(mut self, quota: Q) -> Self
    where
        Q: TryInto<Quota, Error: fmt::Display> + fmt::Display,
    {
        let quota = self.invalid.accept("candidate", quota.to_string(), quota.try_into());
        self.candidate.extend(quota);
        self
    }

    /// Takes the quotas from the request's plan; one with no plan or an unknown plan has this one.
    pub fn plans(mut self, default: impl Into<String>) -> Self {
        let header = self.plans.and_then(|rule| rule.header);
        self.plans = Some(PlanRule { header, default: default.into() });
        self
    }

    /// Takes the quotas from the plan that a trusted peer names in a header.
    pub fn plan_header(self, header: HeaderName, default: impl Into<String>) -> Self {
        Self { plans: Some(PlanRule { header: Some(header), default: default.into() }), ..self }
    }

    /// Is for no request, only for [charges by name](crate::NamedCharge) that bring their quotas.
    ///
    /// An account may be named without a charge, as when it is reset. Then `quotas_of` tells its
    /// quotas, whose windows have to be those that it is charged with: they follow from the identity.
    pub fn caller_quotas(self, quotas_of: fn(&Identity) -> Quotas) -> Self {
        Self { caller_quotas: Some(quotas_of), ..self }
    }

    /// What each request costs, whatever [`Facts::cost`](crate::Facts::cost) says.
    ///
    /// Without it a shared policy charges what the facts say, or one unit if they say nothing, and
    /// a [local](Scope::Local) one charges one unit: a flood guard counts requests.
    pub fn cost(mut self, units: u32) -> Self {
        let units = NonZeroU32::new(units).ok_or("expected at least 1");
        self.cost = self.invalid.accept("cost", "0".to_owned(), units).map(Cost::Units);
        self
    }

    /// Charges what [`Facts::cost`](crate::Facts::cost) says, or one unit if it says nothing, in a
    /// [local](Scope::Local) policy too.
    pub fn request_cost(self) -> Self {
        Self { cost: Some(Cost::Request), ..self }
    }

    /// Counts only requests whose response has one of these statuses, such as failed logins. The cost
    /// is held while a request is in flight, and given back for any other status.
    ///
    /// A held unit counts. So parallel guesses never exceed the quota, and of good logins that are in
    /// flight together no more pass than the quota has left.
    ///
    /// ```
    /// use slidegate::Policy;
    ///
    /// let login = Policy::new("login").path("/login").quota("5/min").count_statuses(["401", "403"]);
    /// ```
    pub fn count_statuses<S>(mut self, statuses: impl IntoIterator<Item = S>) -> Self
    where
        S: TryInto<StatusRange, Error: fmt::Display> + fmt::Display,
    {
        self.counted = Some(self.statuses("count", statuses));
        self
    }

    /// Gives the cost of a request back if its response has one of these statuses, or if upstream could
    /// not be reached or did not answer. A client that leaves before the response pays, unless 499 is
    /// among the statuses.
    pub fn refund_statuses<S>(mut self, statuses: impl IntoIterator<Item = S>) -> Self
    where
        S: TryInto<StatusRange, Error: fmt::Display> + fmt::Display,
    {
        self.refunded = Some(self.statuses("refund", statuses));
        self
    }

    /// Charges what the response says. Until then `hold` units are held: a request is admitted if these
    /// fit. What it cost above them is recorded afterwards, also beyond the quota.
    pub fn response_cost(self, source: CostSource, hold: u32) -> Self {
        Self { response_cost: Some(source), ..self.cost(hold) }
    }

    /// Spends a [descriptor's](Self::descriptors) cost above one only if it fits. Without it such a cost
    /// is recorded in any case, as Envoy's own rate limit service does: it may be known only from a
    /// response.
    pub fn admit_only(self) -> Self {
        Self { admit_only: true, ..self }
    }

    fn statuses<S>(&mut self, key: &'static str, statuses: impl IntoIterator<Item = S>) -> Statuses
    where
        S: TryInto<StatusRange, Error: fmt::Display> + fmt::Display,
    {
        let read = |status: S| self.invalid.accept(key, status.to_string(), status.try_into());
        statuses.into_iter().filter_map(read).collect()
    }

    /// Only requests that have one of the [identities](Self::identity). Without it, all requests that
    /// have none share the account `anonymous`, in which a few of them use up what all others have.
    ///
    /// ```
    /// use slidegate::{Facts, Policies, Policy, Source};
    ///
    /// let users = Policy::new("users").identity(Source::User).skip_anonymous().quota("60/min");
    /// let policies = Policies::builder().policy(users).build()?;
    /// let visitor = Facts::new(&http::Method::GET, "/");
    /// assert_eq!(policies.matching(&visitor).count(), 0);
    /// assert_eq!(policies.matching(&visitor.user("42")).count(), 1);
    /// # Ok::<(), slidegate::PolicyErrors>(())
    /// ```
    pub fn skip_anonymous(self) -> Self {
        Self { skip_anonymous: true, ..self }
    }

    /// Counts denied requests too, so that a client that keeps hammering stays out.
    ///
    /// If this policy denied the request, it is counted in the windows that had no room for it: a
    /// client that exceeds its minute does not use up its day. If another policy denied it, it is
    /// counted in all of them, but for one case: what a local policy denies never reaches a shared
    /// one. Do not use it on an identity that many clients share.
    pub fn count_denied(self) -> Self {
        Self { count_denied: true, ..self }
    }

    /// Refuses an identity for a while after it was denied too often, without asking a store.
    ///
    /// Requests that are refused so are counted nowhere and do not prolong the ban. Do not use it
    /// on an identity that many clients share: one of them could shut out all others.
    pub fn ban(self, ban: Ban) -> Self {
        Self { ban: Some(ban), ..self }
    }

    /// Counts and reports, but never denies or bans.
    pub fn shadow(self) -> Self {
        Self { shadow: true, ..self }
    }

    /// Where the policy's accounts are kept.
    pub fn scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Whether each request waits for the store. Leases need windows of at least ten times their
    /// length.
    pub fn consistency(self, consistency: Consistency) -> Self {
        Self { consistency, ..self }
    }

    /// Tells clients in response headers where they stand under this policy, although it is
    /// [local](Scope::Local). Shared policies do so anyway.
    pub fn in_headers(self) -> Self {
        Self { in_headers: Some(true), ..self }
    }

    /// Keeps the policy's quotas and standings out of response headers, so that customers see where
    /// they stand under their plan and not under a guard. Local policies are kept out unless they
    /// say [`in_headers`](Self::in_headers). Nothing else changes: the policy denies as ever.
    pub fn not_in_headers(self) -> Self {
        Self { in_headers: Some(false), ..self }
    }

    /// What happens when the store cannot count.
    pub fn on_store_error(self, action: OnStoreError) -> Self {
        Self { on_store_error: action, ..self }
    }

    /// Requests that this policy, and no other, skips.
    pub fn exempt(self, list: AccessList) -> Self {
        Self { exempt: list, ..self }
    }
}

/// The texts of several things, with something between them.
pub(crate) fn join<T: fmt::Display>(items: &[T], between: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(between)
}

/// What a request costs under a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cost {
    /// Always this many units.
    Units(NonZeroU32),
    /// What [`Facts::cost`](crate::Facts::cost) says, or one unit if it says nothing.
    Request,
}

impl Cost {
    /// The units that a request is charged, given what the facts say.
    pub(crate) fn of_request(self, facts: Option<NonZeroU32>) -> NonZeroU32 {
        match self {
            Self::Units(units) => units,
            Self::Request => facts.unwrap_or(NonZeroU32::MIN),
        }
    }
}

/// So many units, and one for zero: every request costs something.
impl From<u32> for Cost {
    fn from(units: u32) -> Self {
        Self::Units(NonZeroU32::new(units).unwrap_or(NonZeroU32::MIN))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(units) => units.fmt(f),
            Self::Request => f.write_str("request"),
        }
    }
}

/// Where a policy's accounts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// In the gate's store, which other processes may share.
    #[default]
    Shared,
    /// In this process, decided before everything else: a request denied here costs the store
    /// nothing.
    Local,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared",
            Self::Local => "local",
        })
    }
}

/// Whether each request of a shared policy waits for the store.
///
/// Both are exact: no window ever sees more than the units, at any number of gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// Every request is decided in the store.
    #[default]
    Sync,
    /// A store that shares its budget with other processes takes units ahead for busy accounts, and
    /// decides from them at once. A unit is then held by up to `lease` longer than its window. Other
    /// stores decide as ever.
    Async {
        /// How long after it was taken from the store a unit may be used at most. Without it, that is a
        /// thirtieth of the account's shortest window, and 200 ms to 10 s but never more than a tenth:
        /// two seconds for a minute. Each ledger's window is longer by its own thirtieth, within the same
        /// bounds, so that the ledger is the same whatever other windows the policy, its plans and its
        /// candidate have.
        lease: Option<Duration>,
    },
}

/// A lease of one of this many parts of a window keeps a thirtieth of the quota from being used.
const LEASES_IN_WINDOW: u32 = 30;
/// The least and the most of that. Another gateway waits this long for units that are not used.
const LEASES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

impl Consistency {
    /// [`Async`](Self::Async) with leases that are as long as the windows permit.
    pub const ASYNC: Self = Self::Async { lease: None };

    /// How long a prefetched unit of an account with these quotas may be used, if units may be
    /// prefetched: no longer than it is held beyond any of the windows.
    pub fn lease(self, quotas: &Quotas) -> Option<Duration> {
        let windows = quotas.as_slice().iter().map(|quota| quota.window());
        windows.filter_map(|window| self.lease_in(window)).min()
    }

    /// The same quotas over the windows of their ledgers, which are longer if units may be prefetched.
    pub fn ledgers(self, quotas: &Quotas) -> Quotas {
        quotas.stretched(|window| self.lease_in(window).unwrap_or_default())
    }

    /// How much longer a unit is held than a window. It depends on nothing but the window, because
    /// ledgers are found by it.
    fn lease_in(self, window: Duration) -> Option<Duration> {
        match self {
            Self::Sync => None,
            Self::Async { lease: Some(lease) } => Some(lease),
            Self::Async { lease: None } => {
                let lease = (window / LEASES_IN_WINDOW).clamp(LEASES.0, LEASES.1).min(window / 10);
                Some(Duration::from_millis(lease.as_millis().max(1) as u64))
            }
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync"),
            Self::Async { lease: None } => f.write_str("async"),
            Self::Async { lease: Some(lease) } => write!(f, "async, leases of {lease:?}"),
        }
    }
}
