//! Headers and refusals, made from the decision alone.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use slidegate::{Decision, Name, Policies, StoreError};

use crate::headers::{Headers, StandingFields};
use crate::prepared::PreparedPolicies;
use crate::refusal::{Refusal, Refused, is_grpc_call};

/// Which headers responses get, and how requests are refused.
///
/// It needs no more than a gate's decision:
///
/// ```
/// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Quota};
/// use slidegate_tower::Responder;
///
/// let policy = Policy::new("api").quota(Quota::per_minute(1));
/// let gate = Gate::new(Policies::builder().policy(policy).build()?, MemoryStore::new());
/// let responder = Responder::new();
///
/// let method = http::Method::GET;
/// let facts = Facts::new(&method, "/");
/// assert!(responder.refuse(&gate.decide_now(&facts), &http::HeaderMap::new()).is_none());
/// let refusal = responder.refuse(&gate.decide_now(&facts), &http::HeaderMap::new());
/// assert_eq!(refusal.expect("one a minute").status(), 429);
/// # Ok::<(), slidegate::PolicyErrors>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Responder {
    headers: Headers,
    refusal: Refusal,
    by_policy: Vec<(Arc<str>, Refusal)>,
    prepared: Arc<PreparedPolicies>,
}

impl Responder {
    /// The default headers, and refusals with problem details.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which headers say where a client stands.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        Self { headers, prepared: Arc::default(), ..self }
    }

    /// How a request is refused.
    #[must_use]
    pub fn refusal(self, refusal: impl Into<Refusal>) -> Self {
        Self { refusal: refusal.into(), prepared: Arc::default(), ..self }
    }

    /// How a request is refused by this policy, for a quota or for its ban. If several policies
    /// refused, the first that has a specific refusal is used.
    #[must_use]
    pub fn refusal_for(mut self, policy: impl Into<Arc<str>>, refusal: impl Into<Refusal>) -> Self {
        self.by_policy.push((policy.into(), refusal.into()));
        Self { prepared: Arc::default(), ..self }
    }

    /// Prepares what responses say about these policies whatever is left of their quotas: bodies and
    /// headers of refusals, and `RateLimit-Policy`. Other policies get the same responses in more time.
    ///
    /// A [`RequestLimiter`](crate::RequestLimiter) does so with the policies that its gate has when the
    /// limiter gets the responder.
    #[must_use]
    pub fn prepared_for(self, policies: &Policies) -> Self {
        let refusal_of = |policy: &Name| self.own_refusal(policy).unwrap_or(&self.refusal);
        let prepared = Arc::new(PreparedPolicies::new(policies, &self.headers, refusal_of));
        Self { prepared, ..self }
    }

    /// The whole refusal, or `None` if the request may pass. The request's headers say whether it is
    /// a gRPC call.
    pub fn refuse(
        &self,
        outcome: &Result<Decision, StoreError>,
        request: &HeaderMap,
    ) -> Option<Response<Bytes>> {
        let refused = Refused::of(outcome)?;
        if let Some(response) =
            self.prepared_refusal(&refused, request, || self.fields_of(&refused))
        {
            return Some(response);
        }
        let mut response = self.refusal_of(&refused).respond(&refused, request);
        self.fields_beside(&mut response, &refused).add_to(response.headers_mut());
        Some(response)
    }

    /// The same with the fields apart that say where the client stands, for callers that do not send
    /// the response itself.
    pub fn refuse_apart(
        &self,
        outcome: &Result<Decision, StoreError>,
        request: &HeaderMap,
    ) -> Option<(Response<Bytes>, StandingFields)> {
        let refused = Refused::of(outcome)?;
        if let Some(response) = self.prepared_refusal(&refused, request, StandingFields::default) {
            return Some((response, self.fields_of(&refused)));
        }
        let mut response = self.refusal_of(&refused).respond(&refused, request);
        let fields = self.fields_beside(&mut response, &refused);
        Some((response, fields))
    }

    /// Adds the headers that say where the client stands.
    pub fn annotate<B>(&self, decision: &Decision, response: &mut Response<B>) {
        if self.headers.are_for(response.status()) {
            let items = |policy: &_| self.prepared.items(policy);
            let fields = self.headers.fields_beside(response.headers_mut(), decision, items);
            fields.add_to(response.headers_mut());
        }
    }

    /// The fields that [`annotate`](Self::annotate) adds to an empty response.
    pub fn fields(&self, decision: &Decision) -> StandingFields {
        self.headers.fields(decision, |policy| self.prepared.items(policy))
    }

    /// The response to a request that is not a gRPC call, if it is prepared.
    fn prepared_refusal(
        &self,
        refused: &Refused<'_>,
        request: &HeaderMap,
        fields: impl FnOnce() -> StandingFields,
    ) -> Option<Response<Bytes>> {
        if is_grpc_call(request) { None } else { self.prepared.respond(refused, fields) }
    }

    fn fields_of(&self, refused: &Refused<'_>) -> StandingFields {
        refused.decision().map(|decision| self.fields(decision)).unwrap_or_default()
    }

    /// The fields that are to be added to the headers of a refusal.
    fn fields_beside(
        &self,
        response: &mut Response<Bytes>,
        refused: &Refused<'_>,
    ) -> StandingFields {
        let are_for = self.headers.are_for(response.status());
        let Some(decision) = refused.decision().filter(|_| are_for) else {
            return StandingFields::default();
        };
        let items = |policy: &_| self.prepared.items(policy);
        self.headers.fields_beside(response.headers_mut(), decision, items)
    }

    fn refusal_of(&self, refused: &Refused<'_>) -> &Refusal {
        let policies = refused.decision().map_or(&[][..], Decision::policies).iter();
        let violated = policies.filter(|policy| policy.is_violated() && !policy.shadow);
        let refusing = violated.map(|policy| &policy.policy).chain(refused.banned_by());
        let mut own = refusing.filter_map(|policy| self.own_refusal(policy));
        own.next().unwrap_or(&self.refusal)
    }

    fn own_refusal(&self, policy: &Name) -> Option<&Refusal> {
        let own = self.by_policy.iter().rfind(|(name, _)| **name == **policy);
        own.map(|(_, refusal)| refusal)
    }
}
