//! The future of a response, and the response's body.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use slidegate::{Decision, Store};
use tower_service::Service;

use crate::limiter::{LimiterOutcome, RequestLimiter};
use crate::request::RequestHead;
use crate::settle::{PendingCost, SettlingBody};

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit) service.
    ///
    /// Only with a store that may wait is it an allocation.
    pub struct ResponseFuture<T, S, B>
    where
        T: Service<Request<B>>,
    {
        #[pin]
        state: FutureState<T, B, T::Future>,
        limiter: Arc<RequestLimiter<S>>,
    }
}

pin_project! {
    #[project = FutureStateProj]
    enum FutureState<T, B, F> {
        Deciding { deciding: Deciding<B>, ready_inner: T },
        Passing { #[pin] inner: F, decision: Option<Decision>, pending: Option<PendingCost> },
        Refused { refusal: Option<(Response<Bytes>, Option<Decision>)> },
    }
}

/// It owns the request while it decides, and returns it with the outcome.
type Deciding<B> = Pin<Box<dyn Future<Output = (Request<B>, LimiterOutcome)> + Send>>;

impl<T, S, B> ResponseFuture<T, S, B>
where
    T: Service<Request<B>>,
    S: Store,
    B: Send + 'static,
{
    pub(crate) fn decided(
        limiter: Arc<RequestLimiter<S>>,
        outcome: LimiterOutcome,
        request: Request<B>,
        inner: &mut T,
    ) -> Self {
        Self { state: FutureState::decided(&limiter, outcome, request, inner), limiter }
    }

    pub(crate) fn deciding(
        limiter: Arc<RequestLimiter<S>>,
        request: Request<B>,
        ready_inner: T,
    ) -> Self {
        let deciding = {
            let limiter = limiter.clone();
            Box::pin(async move {
                // A body need not be `Sync`, so only the head is borrowed while this waits.
                let (parts, body) = request.into_parts();
                let outcome = limiter.decide(RequestHead::from(&parts)).await;
                (Request::from_parts(parts, body), outcome)
            })
        };
        Self { state: FutureState::Deciding { deciding, ready_inner }, limiter }
    }
}

impl<T, B> FutureState<T, B, T::Future>
where
    T: Service<Request<B>>,
{
    fn decided<S: Store>(
        limiter: &RequestLimiter<S>,
        outcome: LimiterOutcome,
        mut request: Request<B>,
        inner: &mut T,
    ) -> Self {
        match outcome {
            LimiterOutcome::Pass(decision) => {
                let pending = limiter.await_response(decision.as_ref());
                if let Some(pending) = &pending {
                    pending.restrict(request.headers_mut());
                }
                Self::Passing { inner: inner.call(request), decision, pending }
            }
            LimiterOutcome::Refuse(response, decision) => {
                Self::Refused { refusal: Some((response, decision)) }
            }
        }
    }
}

impl<T, S, B, R> Future for ResponseFuture<T, S, B>
where
    T: Service<Request<B>, Response = Response<R>>,
    S: Store,
{
    type Output = Result<Response<ResponseBody<R>>, T::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                FutureStateProj::Deciding { deciding, ready_inner } => {
                    let (request, outcome) = ready!(deciding.as_mut().poll(cx));
                    FutureState::decided(this.limiter, outcome, request, ready_inner)
                }
                FutureStateProj::Passing { inner, decision, pending } => {
                    let response = ready!(inner.poll(cx));
                    let pending = pending.take();
                    let response = match response {
                        Ok(response) => response,
                        Err(error) => {
                            pending.into_iter().for_each(PendingCost::on_failure);
                            return Poll::Ready(Err(error));
                        }
                    };
                    let response = this.limiter.respond(pending, decision.as_mut(), response);
                    let mut response = response.map(ResponseBody::inner);
                    this.limiter.attach(decision.take(), &mut response);
                    return Poll::Ready(Ok(response));
                }
                FutureStateProj::Refused { refusal } => {
                    let (mut response, decision) =
                        refusal.take().expect("polled after it was ready");
                    this.limiter.attach(decision, &mut response);
                    return Poll::Ready(Ok(response.map(ResponseBody::refusal)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<T, S, B> fmt::Debug for ResponseFuture<T, S, B>
where
    T: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

pin_project! {
    /// The inner service's body, or the bytes of a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        inner: Option<SettlingBody<B>>,
        refusal: Bytes,
    }
}

impl<B> ResponseBody<B> {
    fn inner(body: SettlingBody<B>) -> Self {
        Self { inner: Some(body), refusal: Bytes::new() }
    }

    fn refusal(bytes: Bytes) -> Self {
        Self { inner: None, refusal: bytes }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll_frame(cx),
            None if this.refusal.is_empty() => Poll::Ready(None),
            None => Poll::Ready(Some(Ok(Frame::data(std::mem::take(this.refusal).into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().map_or(self.refusal.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let refusal = || SizeHint::with_exact(self.refusal.len() as u64);
        self.inner.as_ref().map_or_else(refusal, Body::size_hint)
    }
}
