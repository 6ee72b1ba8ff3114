//! The Tower middleware.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use slidegate::{Gate, MemoryStore, Policies, Policy, Quota, Store};
use tower_layer::Layer;
use tower_service::Service;

use crate::client_address::ClientAddress;
use crate::future::{ResponseBody, ResponseFuture};
use crate::headers::Headers;
use crate::limiter::RequestLimiter;
use crate::refusal::Refusal;
use crate::request::RequestHead;
use crate::responder::Responder;

/// Limits the requests to a service by a [`RequestLimiter`].
///
/// Clones share the gate. See the [crate's documentation](crate) for a whole example.
///
/// ```
/// use slidegate_tower::RateLimitLayer;
///
/// let layer = RateLimitLayer::per_ip("100/min".parse()?);
/// # Ok::<(), slidegate::QuotaError>(())
/// ```
#[derive(Debug)]
pub struct RateLimitLayer<S = MemoryStore> {
    limiter: Arc<RequestLimiter<S>>,
}

impl RateLimitLayer<MemoryStore> {
    /// One quota for each client address, counted in memory, under a policy called `default`.
    pub fn per_ip(quota: Quota) -> Self {
        let policies = Policies::builder().policy(Policy::new("default").quota(quota)).build();
        let policies = policies.expect("a policy with one quota and no cost is sound");
        Self::new(Gate::new(policies, MemoryStore::new()))
    }
}

impl<S: Store> RateLimitLayer<S> {
    /// Decides by this gate. Layers that are given the same gate count together.
    pub fn new(gate: impl Into<Arc<Gate<S>>>) -> Self {
        RequestLimiter::new(gate).into()
    }

    /// How the client's address is found: [`RequestLimiter::client_address`].
    #[must_use]
    pub fn client_address(self, client_address: ClientAddress) -> Self {
        self.map(|limiter| limiter.client_address(client_address))
    }

    /// Which headers responses get, and how requests are refused.
    #[must_use]
    pub fn responder(self, responder: Responder) -> Self {
        self.map(|limiter| limiter.responder(responder))
    }

    /// Which headers say where a client stands.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        let responder = self.limiter.responder.clone();
        self.responder(responder.headers(headers))
    }

    /// How a request is refused.
    #[must_use]
    pub fn refusal(self, refusal: impl Into<Refusal>) -> Self {
        let responder = self.limiter.responder.clone();
        self.responder(responder.refusal(refusal))
    }

    /// How a request is refused by this policy: [`Responder::refusal_for`].
    #[must_use]
    pub fn refusal_for(self, policy: impl Into<Arc<str>>, refusal: impl Into<Refusal>) -> Self {
        let responder = self.limiter.responder.clone();
        self.responder(responder.refusal_for(policy, refusal))
    }

    /// Puts the [`Decision`](slidegate::Decision) into the extensions of each response, for a layer
    /// around this one that logs it. It costs a request three allocations.
    ///
    /// ```
    /// use slidegate::Decision;
    /// use slidegate_tower::RateLimitLayer;
    ///
    /// fn log(response: &http::Response<()>) {
    ///     if let Some(decision) = response.extensions().get::<Decision>() {
    ///         println!("{:?}", decision.verdict());
    ///     }
    /// }
    ///
    /// let layer = RateLimitLayer::per_ip("100/min".parse()?).expose_decision();
    /// # Ok::<(), slidegate::QuotaError>(())
    /// ```
    #[must_use]
    pub fn expose_decision(self) -> Self {
        self.map(|limiter| limiter.exposing_decision())
    }

    /// The gate that decides.
    pub fn gate(&self) -> &Arc<Gate<S>> {
        self.limiter.gate()
    }

    fn map(self, change: impl FnOnce(RequestLimiter<S>) -> RequestLimiter<S>) -> Self {
        change(Arc::unwrap_or_clone(self.limiter)).into()
    }
}

impl<S> From<RequestLimiter<S>> for RateLimitLayer<S> {
    fn from(limiter: RequestLimiter<S>) -> Self {
        Self { limiter: Arc::new(limiter) }
    }
}

impl<S> Clone for RateLimitLayer<S> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone() }
    }
}

impl<S, T> Layer<T> for RateLimitLayer<S> {
    type Service = RateLimit<T, S>;

    fn layer(&self, inner: T) -> Self::Service {
        RateLimit { inner, limiter: self.limiter.clone() }
    }
}

/// The service of a [`RateLimitLayer`].
#[derive(Debug)]
pub struct RateLimit<T, S = MemoryStore> {
    inner: T,
    limiter: Arc<RequestLimiter<S>>,
}

impl<T: Clone, S> Clone for RateLimit<T, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), limiter: self.limiter.clone() }
    }
}

impl<T, S, B, R> Service<Request<B>> for RateLimit<T, S>
where
    T: Service<Request<B>, Response = Response<R>> + Clone,
    S: Store,
    B: Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = T::Error;
    type Future = ResponseFuture<T, S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limiter = self.limiter.clone();
        if S::NEVER_WAITS {
            let outcome = limiter.decide_now(RequestHead::from(&request));
            return ResponseFuture::decided(limiter, outcome, request, &mut self.inner);
        }
        let not_ready_inner = self.inner.clone();
        let ready_inner = mem::replace(&mut self.inner, not_ready_inner);
        ResponseFuture::deciding(limiter, request, ready_inner)
    }
}
