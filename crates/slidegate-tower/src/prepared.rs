//! The parts of responses that follow from the policies in force alone, written when these are known.

use std::collections::HashMap;

use bytes::Bytes;
use foldhash::fast::RandomState;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use slidegate::policy::{CheckedPlan, CheckedPolicy};
use slidegate::{Name, Policies, PolicyStanding, Quota};
use smallvec::smallvec;

use crate::headers::{Headers, QuotaName, StandingFields, policy_items};
use crate::problem::NO_STORE;
use crate::refusal::{Body, BodyTerms, Reason, Refusal, Refused};

/// The policies in force. What is not among them, such as quotas that an operator has raised, is written
/// anew for each response.
#[derive(Debug, Default)]
pub(crate) struct PreparedPolicies(HashMap<Name, PreparedQuotas, RandomState>);

/// What is prepared of one policy.
#[derive(Debug, Default)]
struct PreparedQuotas {
    /// With its own quotas.
    own: Option<PreparedPolicy>,
    by_plan: HashMap<Name, PreparedPolicy, RandomState>,
}

/// A policy with its own quotas, or with those of a plan.
#[derive(Debug)]
struct PreparedPolicy {
    quotas: Box<[Quota]>,
    /// Of the plan.
    upgrade_url: Option<String>,
    in_headers: bool,
    /// See [`policy_items`].
    items: String,
    /// Unless a function makes its refusals.
    refusal: Option<PreparedRefusal>,
}

/// How requests are refused that have violated one quota of the policy.
#[derive(Debug)]
struct PreparedRefusal {
    heads: RefusalHeads,
    /// A body for each quota.
    bodies: Box<[Body]>,
}

/// The headers of refusals, for values to be filled in.
#[derive(Debug)]
struct RefusalHeads {
    /// Those of any refusal.
    plain: HeaderMap,
    /// The same, and those that say where the client stands.
    standing: HeaderMap,
}

/// `Content-Type` and `Cache-Control`.
const CONSTANT_HEADERS: usize = 2;

/// Maximum prepared entries: one for each policy, or for each of its plans. An entry takes some 3 kB. The
/// responses of further policies are written anew each time.
const MAX_PREPARED: usize = 1024;

impl PreparedPolicies {
    /// Prepares these policies, whose requests are refused as `refusal_of` says.
    pub(crate) fn new<'r>(
        policies: &Policies,
        headers: &Headers,
        refusal_of: impl Fn(&Name) -> &'r Refusal,
    ) -> Self {
        let plans = policies.plans();
        let mut prepared: HashMap<Name, PreparedQuotas, _> = HashMap::default();
        let of_policy = policies.iter().flat_map(|policy| {
            let plans = if policy.default_plan().is_some() { &plans[..] } else { &[] };
            let of_plans =
                plans.iter().map(move |plan| (policy, plan.quotas.as_slice(), Some(*plan)));
            let own = Some((policy, policy.quotas(), None));
            own.filter(|(_, quotas, _)| !quotas.is_empty()).into_iter().chain(of_plans)
        });
        for (policy, quotas, plan) in of_policy.take(MAX_PREPARED) {
            let entry =
                PreparedPolicy::new(policy, quotas, plan, headers, refusal_of(&policy.name));
            let of_policy = prepared.entry(policy.name.clone()).or_default();
            match plan {
                None => of_policy.own = Some(entry),
                Some(plan) => _ = of_policy.by_plan.insert(plan.name.clone(), entry),
            }
        }
        Self(prepared)
    }

    /// See [`policy_items`].
    pub(crate) fn items(&self, policy: &PolicyStanding) -> Option<&str> {
        self.find(policy).map(|prepared| &*prepared.items)
    }

    /// The response to a refused request with these fields, if it has violated one quota of a prepared
    /// policy.
    pub(crate) fn respond(
        &self,
        refused: &Refused<'_>,
        fields: impl FnOnce() -> StandingFields,
    ) -> Option<Response<Bytes>> {
        let (policy, place) = refused.sole_violation()?;
        let prepared = self.find(policy)?.refusal.as_ref()?;
        let (body, wait_s) = (prepared.bodies.get(place)?, refused.retry_after_s()?);
        let mut response = Response::new(body.with_wait(refused.retry_after()));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        *response.headers_mut() = prepared.heads.filled(wait_s, fields());
        Some(response)
    }

    fn find(&self, policy: &PolicyStanding) -> Option<&PreparedPolicy> {
        let of_policy = self.0.get(&*policy.policy)?;
        let prepared = match policy.plan.as_deref() {
            None => of_policy.own.as_ref(),
            Some(plan) => of_policy.by_plan.get(&plan.name),
        };
        prepared.filter(|prepared| prepared.is_of(policy))
    }
}

impl PreparedPolicy {
    fn new(
        policy: &CheckedPolicy,
        quotas: &[Quota],
        plan: Option<&CheckedPlan>,
        headers: &Headers,
        refusal: &Refusal,
    ) -> Self {
        let in_headers = policy.in_headers && !policy.shadow;
        let has_window = quotas.len() > 1;
        let body = |quota: &Quota| {
            let name = QuotaName { policy: &policy.name, quota: *quota, has_window, copy: 1 };
            refusal.text(&BodyTerms {
                reason: Reason::QuotaExceeded,
                has_wait: true,
                limit: in_headers.then(|| quota.units().get()),
                policy: Some(&policy.name),
                plan: plan.filter(|_| in_headers),
                violated: smallvec![name.text()],
            })
        };
        let texts: Option<Vec<(HeaderValue, Body)>> = quotas.iter().map(body).collect();
        let refusal = texts.and_then(|texts| {
            let heads = RefusalHeads::new(texts.first()?.0.clone(), headers)?;
            let bodies = texts.into_iter().map(|(_, body)| body).collect();
            Some(PreparedRefusal { heads, bodies })
        });
        Self {
            quotas: quotas.into(),
            upgrade_url: plan.and_then(|plan| plan.upgrade_url.clone()),
            in_headers,
            items: policy_items(&policy.name, quotas),
            refusal,
        }
    }

    /// Whether what is prepared is true of a policy as a decision has it.
    fn is_of(&self, policy: &PolicyStanding) -> bool {
        let upgrade_url = policy.plan.as_deref().and_then(|plan| plan.upgrade_url.as_ref());
        self.in_headers == policy.in_headers
            && self.quotas.iter().copied().eq(policy.standings.iter().map(|own| own.quota()))
            && self.upgrade_url.as_ref() == upgrade_url
    }
}

impl RefusalHeads {
    /// None if copies have their fields in another order, which `http` does not promise.
    fn new(content_type: HeaderValue, headers: &Headers) -> Option<Self> {
        let empty = HeaderValue::from_static("");
        let mut plain = HeaderMap::with_capacity(3);
        plain.insert(header::CONTENT_TYPE, content_type);
        plain.insert(header::CACHE_CONTROL, NO_STORE);
        debug_assert_eq!(plain.len(), CONSTANT_HEADERS);
        plain.insert(header::RETRY_AFTER, empty.clone());
        let mut standing = plain.clone();
        standing.extend(headers.names().map(|name| (name.clone(), empty.clone())));
        let places = [&header::RETRY_AFTER].into_iter().chain(headers.names());
        let is_in_order = standing.clone().keys().skip(CONSTANT_HEADERS).eq(places);
        is_in_order.then_some(Self { plain, standing })
    }

    /// The headers of one refusal. Filling in the values of a copy takes half as long as inserting the
    /// headers, which hashes every name.
    fn filled(&self, wait_s: u64, fields: StandingFields) -> HeaderMap {
        let mut headers = if fields.is_empty() { &self.plain } else { &self.standing }.clone();
        let mut places = headers.iter_mut().skip(CONSTANT_HEADERS);
        let mut fill = |name: &HeaderName, value: HeaderValue| {
            let (found, place) = places.next().expect("a place for each field");
            debug_assert_eq!(found, name);
            *place = value;
        };
        fill(&header::RETRY_AFTER, wait_s.into());
        fields.into_values().for_each(|(name, value, _)| fill(name, value));
        headers
    }
}

#[cfg(test)]
mod tests {
    use slidegate::{Facts, Gate, MemoryStore, Plan, Policy, Source};

    use super::*;

    #[test]
    fn a_refusal_by_one_quota_is_prepared_for_every_plan() {
        let policies = Policies::builder()
            .plan(Plan::new("free", ["1/min", "9/day"]))
            .plan(Plan::new("pro", ["2/min"]))
            .policy(Policy::new("api").identity(Source::User).plans("free"))
            .policy(Policy::new("login").path("/login").identity(Source::User).quota("3/min"))
            .build()
            .unwrap();
        let prepared = PreparedPolicies::new(&policies, &Headers::default(), |_| {
            static REFUSAL: std::sync::LazyLock<Refusal> = std::sync::LazyLock::new(Refusal::bare);
            &REFUSAL
        });
        let gate = Gate::new(policies, MemoryStore::new());
        for (user, plan, path) in [("a", "free", "/"), ("b", "pro", "/"), ("c", "pro", "/login")] {
            let facts = Facts::new(&http::Method::GET, path).user(user).plan(plan);
            let denied = (0..4).map(|_| gate.decide_now(&facts)).find(|outcome| {
                let decision = outcome.as_ref().unwrap();
                assert!(decision.policies().iter().all(|own| prepared.items(own).is_some()));
                !decision.is_allowed()
            });
            let denied = denied.expect("a denial");
            let refused = Refused::of(&denied).expect("a refusal");
            let response = prepared.respond(&refused, StandingFields::default);
            assert_eq!(response.expect("prepared").body(), "Too Many Requests", "{plan} {path}");
        }
    }
}
