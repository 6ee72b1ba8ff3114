//! The service that a layer wraps around another.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use slidegate::{MemoryStore, Store};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::client_address::ResolvedClient;
use crate::decided::Decided;
use crate::extension::Exempt;
use crate::facts::RequestHead;
use crate::future::{ResponseFuture, Told};
use crate::limiter::RequestLimiter;

/// The service of a [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Debug)]
pub struct RateLimit<T, S = MemoryStore> {
    inner: T,
    limiter: Arc<RequestLimiter<S>>,
    sender: Option<ResolvedClient>,
}

impl<T, S> RateLimit<T, S> {
    pub(crate) fn new(inner: T, limiter: Arc<RequestLimiter<S>>) -> Self {
        Self { inner, limiter, sender: None }
    }

    /// For a server that calls the service itself, and that has found out already whom a request
    /// comes from, by the layer's [`ClientAddress`](crate::ClientAddress). The request then needs no
    /// [`Peer`](crate::Peer).
    ///
    /// The response is not whole: some of it is [aside](ResponseBody::take_aside), in a form that the
    /// server can send and log without copying it.
    #[must_use]
    pub fn for_server(self, sender: ResolvedClient) -> Self {
        Self { sender: Some(sender), ..self }
    }
}

impl<T: Clone, S> Clone for RateLimit<T, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), limiter: self.limiter.clone(), sender: self.sender }
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
        if request.extensions().get::<Exempt>().is_some() {
            return ResponseFuture::exempt(self.inner.call(request));
        }
        let head = RequestHead::from(&request);
        if let Err(error) = self.limiter.gate.check(&head.plain_facts()) {
            return ResponseFuture::bad_request(&error);
        }
        let Some(gate) = self.limiter.ready_gate() else {
            let not_ready_inner = self.inner.clone();
            let ready_inner = mem::replace(&mut self.inner, not_ready_inner);
            return ResponseFuture::deciding(
                self.limiter.clone(),
                ready_inner,
                request,
                self.sender,
            );
        };
        let paths = self.limiter.other_paths(head);
        let is_aside = self.sender.is_some();
        let decided = Decided::now(gate, &self.limiter.facts(head, &paths, self.sender), is_aside);
        match self.limiter.responder.refuse_decided(decided.decision(), request.headers()) {
            Some(answer) => ResponseFuture::refused(answer, decided),
            None => {
                let told = Told::new(self.limiter.clone(), decided, request.version());
                ResponseFuture::passing(self.inner.call(request), told)
            }
        }
    }
}
