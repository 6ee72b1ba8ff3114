//! The layer.

use std::sync::Arc;

use slidegate::{Gate, MemoryStore, Policies, Policy, Quota, Store};
use tower_layer::Layer;

use crate::client_address::ClientAddress;
use crate::detector::Detectors;
use crate::headers::Headers;
use crate::limiter::RequestLimiter;
use crate::path::PathReading;
use crate::refusal::Refusal;
use crate::responder::Responder;
use crate::service::RateLimit;

/// Asks a gate before each request: the inner service answers what may pass, with headers added
/// that tell where the client stands; the rest is refused.
///
/// Clones share the gate. See the [crate's documentation](crate) for a whole example.
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
    /// Asks this gate. Layers that are given the same gate count together.
    pub fn new(gate: impl Into<Arc<Gate<S>>>) -> Self {
        Self {
            limiter: Arc::new(RequestLimiter {
                gate: gate.into(),
                client_address: ClientAddress::default(),
                paths: PathReading::default(),
                responder: Responder::default(),
                detectors: Arc::new(Detectors::default()),
            }),
        }
    }

    /// How the client's address is found; without it, the peer is the client.
    ///
    /// The headers of a peer that this trusts are trusted: policies that read an identity or a
    /// plan from a named header believe it, and the user is read from the policies'
    /// [`user_header`](slidegate::policy::PoliciesBuilder::user_header).
    #[must_use]
    pub fn client_address(mut self, client_address: ClientAddress) -> Self {
        Arc::make_mut(&mut self.limiter).client_address = client_address;
        self
    }

    /// How paths are read beside how they were sent; without it, by [`PathReading::normal`].
    ///
    /// A policy is for a request if it is for its path in any reading, and a path is exempt only
    /// if it is so in all. The inner service gets the request as it came.
    #[must_use]
    pub fn paths(mut self, paths: PathReading) -> Self {
        Arc::make_mut(&mut self.limiter).paths = paths;
        self
    }

    /// What clients are told, headers and refusals together.
    #[must_use]
    pub fn responder(mut self, responder: Responder) -> Self {
        Arc::make_mut(&mut self.limiter).responder = responder;
        self
    }

    /// Which headers tell a client where it stands.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        let responder = self.limiter.responder.clone();
        self.responder(responder.headers(headers))
    }

    /// How a refused request is answered.
    #[must_use]
    pub fn refusal(self, refusal: impl Into<Refusal>) -> Self {
        let responder = self.limiter.responder.clone();
        self.responder(responder.refusal(refusal))
    }

    /// How a request is answered that this policy refused.
    #[must_use]
    pub fn refusal_for(self, policy: impl Into<Arc<str>>, refusal: impl Into<Refusal>) -> Self {
        let responder = self.limiter.responder.clone();
        self.responder(responder.refusal_for(policy, refusal))
    }

    /// The gate that is asked.
    pub fn gate(&self) -> &Arc<Gate<S>> {
        &self.limiter.gate
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
        RateLimit::new(inner, self.limiter.clone())
    }
}
