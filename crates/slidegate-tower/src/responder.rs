//! What clients are told: headers and refusals, decided from the decision alone.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use slidegate::{Decision, PolicyStanding, StoreError};

use crate::body::ResponseBody;
use crate::decided::Decided;
use crate::headers::{Fields, Headers};
use crate::kept::{self, Edition, Shown, Told};
use crate::refusal::{Refusal, Refused, is_grpc_call};
use crate::shared::SharedRefusal;

/// What clients are told, for every limiter that a request can come through.
///
/// It knows nothing of Tower: whoever has a gate's answer can answer a client with it.
///
/// ```
/// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Quota};
/// use slidegate_tower::Responder;
///
/// let policy = Policy::new("api").quota(Quota::per_minute(1));
/// let gate = Gate::new(Policies::builder().policy(policy).build()?, MemoryStore::new());
/// let answers = Responder::new();
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
    /// Another one whenever the rest is changed.
    edition: Edition,
}

/// What a refused client is told.
pub(crate) enum Answer {
    Own(Box<Response<Bytes>>),
    /// The same as others are told.
    Shared(Arc<SharedRefusal>),
}

impl Answer {
    fn into_whole(self) -> Response<Bytes> {
        match self {
            Self::Own(response) => *response,
            Self::Shared(refusal) => refusal.response().clone(),
        }
    }

    /// The response. What is shared is not copied into it if it is for a server.
    pub(crate) fn into_response<B>(self, mut decided: Decided) -> Response<ResponseBody<B>> {
        let mut response = match (self, decided.aside_mut()) {
            (Self::Shared(refusal), Some(aside)) => {
                let mut response = Response::new(ResponseBody::refusal(Bytes::new()));
                *response.status_mut() = refusal.response().status();
                aside.refusal = Some(refusal);
                response
            }
            (answer, _) => answer.into_whole().map(ResponseBody::refusal),
        };
        decided.put_into(&mut response);
        response
    }
}

impl Responder {
    /// The default headers, and problem details for whoever is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which headers tell a client where it stands.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        Self { headers, edition: Edition::default(), ..self }
    }

    /// How a refused request is answered.
    #[must_use]
    pub fn refusal(self, refusal: impl Into<Refusal>) -> Self {
        Self { refusal: refusal.into(), edition: Edition::default(), ..self }
    }

    /// How a request is answered that this policy refused, by a quota or by its ban. If several
    /// did, the first of them that has a refusal of its own is asked.
    #[must_use]
    pub fn refusal_for(mut self, policy: impl Into<Arc<str>>, refusal: impl Into<Refusal>) -> Self {
        self.by_policy.push((policy.into(), refusal.into()));
        Self { edition: Edition::default(), ..self }
    }

    /// The whole refusal, or `None` if the request may pass. The request's headers tell whether
    /// it is a gRPC call.
    pub fn refuse(
        &self,
        outcome: &Result<Decision, StoreError>,
        request: &HeaderMap,
    ) -> Option<Response<Bytes>> {
        self.refuse_decided(outcome.as_ref().ok(), request).map(Answer::into_whole)
    }

    /// [`refuse`](Self::refuse), with no decision if the store could not count.
    pub(crate) fn refuse_decided(
        &self,
        decision: Option<&Decision>,
        request: &HeaderMap,
    ) -> Option<Answer> {
        let refused = Refused::of_decision(decision)?;
        let refusal = self.refusal_of(&refused);
        let Some((decision, tightest)) = refused.tightest() else {
            return Some(Answer::Own(refusal.respond(&refused, request).into()));
        };
        let shown = decision
            .tightest_in_headers()
            .map(|(_, standing)| Shown { standing, reset: self.headers.reset(decision, standing) });
        let make = || {
            let mut response = refusal.respond(&refused, request);
            if let Some(Shown { standing, reset }) = shown
                && self.headers.are_for(response.status())
            {
                self.headers.write_standing(decision, standing, reset, response.headers_mut());
            }
            response
        };
        if !refusal.is_steady() || is_grpc_call(request) {
            return Some(Answer::Own(make().into()));
        }
        let told = Told { refused: &refused, edition: self.edition, tightest, shown };
        Some(Answer::Shared(kept::refusal(&told, make)))
    }

    /// Tells in a response's headers where the client stands.
    pub fn annotate<B>(&self, decision: &Decision, response: &mut Response<B>) {
        if self.headers.are_for(response.status()) {
            self.headers.write(decision, response.headers_mut());
        }
    }

    /// The fields that [`annotate`](Self::annotate) would add, as lines. It adds them if they have to
    /// be joined with others.
    pub(crate) fn lines<B>(&self, decision: &Decision, response: &mut Response<B>) -> Vec<u8> {
        if !self.headers.are_for(response.status()) {
            return Vec::new();
        }
        let lines = self.headers.lines(decision, response.headers());
        lines.unwrap_or_else(|| {
            self.headers.write(decision, response.headers_mut());
            Vec::new()
        })
    }

    /// Tells where the client stands to whoever sends headers in another form than HTTP's: the
    /// fields that [`annotate`](Self::annotate) adds to a response that has none.
    pub fn tell(&self, decision: &Decision, fields: &mut impl Fields) {
        self.headers.tell(decision, fields);
    }

    fn refusal_of(&self, refused: &Refused<'_>) -> &Refusal {
        if self.by_policy.is_empty() {
            return &self.refusal;
        }
        let policies = refused.decision().map_or(&[][..], Decision::policies).iter();
        let violated = policies.filter(|policy| policy.is_violated() && !policy.is_shadow());
        let refusing = violated.map(PolicyStanding::policy).chain(refused.banned_by());
        let mut own = refusing
            .filter_map(|policy| self.by_policy.iter().rfind(|(name, _)| **name == **policy));
        own.next().map_or(&self.refusal, |(_, refusal)| refusal)
    }
}
