//! Headers and refusals, made from the decision alone.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use slidegate::{Decision, StoreError};

use crate::headers::{Headers, StandingFields};
use crate::refusal::{Refusal, Refused};

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
}

impl Responder {
    /// The default headers, and refusals with problem details.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which headers say where a client stands.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        Self { headers, ..self }
    }

    /// How a request is refused.
    #[must_use]
    pub fn refusal(self, refusal: impl Into<Refusal>) -> Self {
        Self { refusal: refusal.into(), ..self }
    }

    /// How a request is refused by this policy, for a quota or for its ban. If several policies
    /// refused, the first that has a specific refusal is used.
    #[must_use]
    pub fn refusal_for(mut self, policy: impl Into<Arc<str>>, refusal: impl Into<Refusal>) -> Self {
        self.by_policy.push((policy.into(), refusal.into()));
        self
    }

    /// The whole refusal, or `None` if the request may pass. The request's headers say whether it is
    /// a gRPC call.
    pub fn refuse(
        &self,
        outcome: &Result<Decision, StoreError>,
        request: &HeaderMap,
    ) -> Option<Response<Bytes>> {
        let (mut response, fields) = self.refuse_apart(outcome, request)?;
        fields.add_to(response.headers_mut());
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
        let mut response = self.refusal_of(&refused).respond(&refused, request);
        let fields = match outcome {
            Ok(decision) if self.headers.are_for(response.status()) => {
                self.headers.fields_beside(response.headers_mut(), decision)
            }
            _ => StandingFields::default(),
        };
        Some((response, fields))
    }

    /// Adds the headers that say where the client stands.
    pub fn annotate<B>(&self, decision: &Decision, response: &mut Response<B>) {
        if self.headers.are_for(response.status()) {
            self.headers.write(decision, response.headers_mut());
        }
    }

    /// The fields that [`annotate`](Self::annotate) adds to an empty response.
    pub fn fields(&self, decision: &Decision) -> StandingFields {
        self.headers.fields(decision)
    }

    fn refusal_of(&self, refused: &Refused<'_>) -> &Refusal {
        let policies = refused.decision().map_or(&[][..], Decision::policies).iter();
        let violated = policies.filter(|policy| policy.is_violated() && !policy.shadow);
        let refusing = violated.map(|policy| &policy.policy).chain(refused.banned_by());
        let mut own = refusing
            .filter_map(|policy| self.by_policy.iter().rfind(|(name, _)| **name == **policy));
        own.next().map_or(&self.refusal, |(_, refusal)| refusal)
    }
}
