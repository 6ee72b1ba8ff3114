//! Everything that happens to a request before it is answered, and to the response after that.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Response};
use slidegate::{Decision, Gate, HeldCharge, MemoryStore, Store, StoreError};

use crate::client_address::{ClientAddress, ResolvedClient};
use crate::detector::Detectors;
use crate::refusal::bad_request;
use crate::request::RequestHead;
use crate::responder::Responder;
use crate::settle::{PendingCost, SettleOutcome, Settler, SettlingBody, remove_cost_headers};

/// Limits HTTP requests: the head of a request in; out comes that it may pass, or the response that
/// refuses it.
///
/// [`RateLimitLayer`](crate::RateLimitLayer) is a Tower middleware around it. Servers without Tower
/// call it directly:
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use slidegate::{Gate, MemoryStore, Policies, Policy, Quota};
/// use slidegate_tower::{RequestHead, RequestLimiter, LimiterOutcome};
///
/// async fn handle(limiter: &RequestLimiter, request: Request<Bytes>) -> Response<Bytes> {
///     match limiter.decide(RequestHead::from(&request)).await {
///         LimiterOutcome::Refuse(response, _) => response,
///         LimiterOutcome::Pass(decision) => {
///             let mut response = Response::new(Bytes::from_static(b"hello"));
///             limiter.annotate(decision.as_ref(), &mut response);
///             response // or limiter.respond(..), if policies look at responses
///         }
///     }
/// }
///
/// let policy = Policy::new("api").quota(Quota::per_minute(1));
/// let gate = Gate::new(Policies::builder().policy(policy).build()?, MemoryStore::new());
/// let limiter = RequestLimiter::new(gate);
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// assert_eq!(handle(&limiter, Request::default()).await.status(), 200);
/// assert_eq!(handle(&limiter, Request::default()).await.status(), 429);
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RequestLimiter<S = MemoryStore> {
    gate: Arc<Gate<S>>,
    /// How the client's address is found.
    pub client_address: ClientAddress,
    /// Writes headers and refusals.
    pub responder: Responder,
    detectors: Arc<Detectors>,
    settler: Settler<S>,
    /// Whether the middleware puts decisions into the extensions of responses.
    exposes_decision: bool,
}

/// What is to be done with a request.
#[derive(Debug)]
pub enum LimiterOutcome {
    /// It may go on. The decision is for [`RequestLimiter::annotate`]; there is none if the
    /// application has exempted the request.
    Pass(Option<Decision>),
    /// It is to be answered with this response. There is no decision if the request is malformed or
    /// the store could not count.
    Refuse(Response<Bytes>, Option<Decision>),
}

impl<S: Store> RequestLimiter<S> {
    /// Decides by this gate. Limiters that are given the same gate count together.
    pub fn new(gate: impl Into<Arc<Gate<S>>>) -> Self {
        let gate = gate.into();
        Self {
            settler: Settler::new(gate.clone()),
            client_address: ClientAddress::default(),
            responder: Responder::default().prepared_for(&gate.policies()),
            gate,
            detectors: Arc::default(),
            exposes_decision: false,
        }
    }

    /// How the client's address is found; by default, the peer is the client.
    ///
    /// The headers of a peer that this trusts are trusted: policies that read an identity or a plan
    /// from a named header believe it, and the user is read from the policies'
    /// [`user_header`](slidegate::policy::PoliciesBuilder::user_header).
    #[must_use]
    pub fn client_address(self, client_address: ClientAddress) -> Self {
        Self { client_address, ..self }
    }

    /// Which headers responses get, and how requests are refused.
    #[must_use]
    pub fn responder(self, responder: Responder) -> Self {
        let responder = responder.prepared_for(&self.gate.policies());
        Self { responder, ..self }
    }

    /// Calls `listener` for each charge that was held until the response was known, with what became
    /// of it. It is called on the way of a request and should return at once.
    #[must_use]
    pub fn on_settled(
        self,
        listener: impl Fn(&HeldCharge, SettleOutcome) + Send + Sync + 'static,
    ) -> Self {
        Self { settler: self.settler.on_settled(listener), ..self }
    }

    /// The gate that decides.
    pub fn gate(&self) -> &Arc<Gate<S>> {
        &self.gate
    }

    /// Decides a request and, if it may pass, spends what it costs.
    pub async fn decide(&self, head: RequestHead<'_>) -> LimiterOutcome {
        if head.is_exempt {
            return LimiterOutcome::Pass(None);
        }
        let client = head.resolve(&self.client_address);
        self.detect(&head, client);
        let facts = head.facts(client);
        let readings = self.gate.readings(&facts);
        let facts = facts.readings(&readings);
        if let Err(error) = self.gate.check(&facts) {
            return LimiterOutcome::Refuse(bad_request(&error), None);
        }
        self.answer(&head, self.gate.decide(&facts).await)
    }

    /// The refusal of a request that is malformed, or whose address alone is enough to refuse it: before
    /// costly work that finds out who sends it. See [`Gate::refuse_by_address`].
    pub fn refuse_early(&self, head: RequestHead<'_>) -> Option<LimiterOutcome> {
        let facts = head.facts(head.resolve(&self.client_address));
        let readings = self.gate.readings(&facts);
        let facts = facts.readings(&readings);
        if let Err(error) = self.gate.check(&facts) {
            return Some(LimiterOutcome::Refuse(bad_request(&error), None));
        }
        let denial = self.gate.refuse_by_address(&facts)?;
        Some(self.answer(&head, Ok(denial)))
    }

    fn answer(
        &self,
        head: &RequestHead<'_>,
        outcome: Result<Decision, StoreError>,
    ) -> LimiterOutcome {
        let no_headers = HeaderMap::new();
        let headers = if head.described_by_proxy { &no_headers } else { head.headers };
        match self.responder.refuse(&outcome, headers) {
            Some(response) => LimiterOutcome::Refuse(response, outcome.ok()),
            None => LimiterOutcome::Pass(outcome.ok()),
        }
    }

    /// [`decide`](Self::decide) for a store that never waits.
    pub(crate) fn decide_now(&self, head: RequestHead<'_>) -> LimiterOutcome {
        match pin!(self.decide(head)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => unreachable!("a store with NEVER_WAITS is ready at once"),
        }
    }

    /// The cost of a request that may pass, if a policy reads it from the response:
    /// [`respond`](Self::respond) wants it back. Call it before the request is passed on. If it is
    /// dropped instead, the client has left.
    pub fn await_response(&self, decision: Option<&Decision>) -> Option<PendingCost> {
        PendingCost::new(decision?, &self.settler)
    }

    /// Settles what the response says about the cost of a request that passed, and adds the headers that
    /// say where the client stands then. It never waits for the store.
    ///
    /// What the application says, it says in the extensions of the response: [`ResponseCost`] or
    /// [`NotCounted`](crate::NotCounted).
    ///
    /// [`ResponseCost`]: crate::ResponseCost
    pub fn respond<B>(
        &self,
        pending: Option<PendingCost>,
        mut decision: Option<&mut Decision>,
        mut response: Response<B>,
    ) -> Response<SettlingBody<B>> {
        let in_body =
            pending.and_then(|pending| pending.on_response(&mut response, decision.as_deref_mut()));
        if let Some(decision) = decision.as_deref() {
            remove_cost_headers(decision, response.headers_mut());
        }
        self.annotate(decision.as_deref(), &mut response);
        response.map(|body| SettlingBody::new(body, in_body))
    }

    /// Waits until everything that responses said about costs is settled, for the end of a process.
    pub async fn settled(&self) {
        self.settler.idle().await;
    }

    /// Adds the headers that say where the client stands to the response of a request that passed.
    /// Policies that look at the response count what they hold: see [`respond`](Self::respond).
    pub fn annotate<B>(&self, decision: Option<&Decision>, response: &mut Response<B>) {
        if let Some(decision) = decision {
            self.responder.annotate(decision, response);
        }
    }

    /// Exposes decisions: see [`attach`](Self::attach).
    pub(crate) fn exposing_decision(self) -> Self {
        Self { exposes_decision: true, ..self }
    }

    /// Puts the decision into the extensions of its response, if it is exposed.
    ///
    /// If a limiter further in has refused the request, its decision stays there: it is the better
    /// one to log.
    pub(crate) fn attach<B>(&self, decision: Option<Decision>, response: &mut Response<B>) {
        let Some(decision) = decision else { return };
        self.detectors.decided(&decision, response.extensions_mut());
        if !self.exposes_decision {
            return;
        }
        let inner = response.extensions().get::<Decision>();
        if inner.is_none_or(Decision::is_allowed) {
            response.extensions_mut().insert(decision);
        }
    }

    /// Warns of a setup in which the client's address cannot be known.
    fn detect(&self, head: &RequestHead<'_>, client: ResolvedClient) {
        match client.peer {
            None => self.detectors.no_peer(),
            Some(_) if client.is_trusted || head.described_by_proxy => {}
            Some(peer) => self.detectors.untrusted(peer, head.headers),
        }
    }
}

impl<S> Clone for RequestLimiter<S> {
    /// The clone shares the gate.
    fn clone(&self) -> Self {
        Self {
            gate: self.gate.clone(),
            client_address: self.client_address.clone(),
            responder: self.responder.clone(),
            detectors: self.detectors.clone(),
            settler: self.settler.clone(),
            exposes_decision: self.exposes_decision,
        }
    }
}
