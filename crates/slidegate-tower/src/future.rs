//! The future of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, Version};
use pin_project_lite::pin_project;
use slidegate::policy::BadRequest;
use slidegate::{Decision, Store};
use tower_service::Service;

use crate::bad_request::bad_request;
use crate::body::ResponseBody;
use crate::client_address::ResolvedClient;
use crate::decided::Decided;
use crate::facts::RequestHead;
use crate::limiter::RequestLimiter;
use crate::responder::Answer;

/// A decision that waits for its store. It has the request, which it looks at, and gives it back.
type Deciding<B> = Pin<Box<dyn Future<Output = (Request<B>, Decided)> + Send>>;

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit) service.
    ///
    /// Only a store that may wait costs an allocation; with a memory store there is none.
    pub struct ResponseFuture<T, S, B>
    where
        T: Service<Request<B>>,
    {
        #[pin]
        state: State<T, S, B, T::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<T, S, B, F> {
        Deciding { deciding: Deciding<B>, ready_inner: T, limiter: Arc<RequestLimiter<S>> },
        Passing { #[pin] inner: F, told: Option<Told<S>> },
        Refused { refused: Option<(Answer, Decided)> },
        BadRequest { response: Option<Box<Response<Bytes>>> },
    }
}

/// What an allowed request's response is to tell.
pub(crate) struct Told<S> {
    limiter: Arc<RequestLimiter<S>>,
    decided: Decided,
    /// Whether it can be told in lines.
    takes_lines: bool,
}

impl<T, S, B> ResponseFuture<T, S, B>
where
    T: Service<Request<B>>,
    S: Store,
    B: Send + 'static,
{
    pub(crate) fn exempt(inner: T::Future) -> Self {
        Self { state: State::Passing { inner, told: None } }
    }

    pub(crate) fn passing(inner: T::Future, told: Told<S>) -> Self {
        Self { state: State::Passing { inner, told: Some(told) } }
    }

    pub(crate) fn refused(answer: Answer, decided: Decided) -> Self {
        Self { state: State::Refused { refused: Some((answer, decided)) } }
    }

    pub(crate) fn bad_request(error: &BadRequest) -> Self {
        Self { state: State::BadRequest { response: Some(Box::new(bad_request(error))) } }
    }

    pub(crate) fn deciding(
        limiter: Arc<RequestLimiter<S>>,
        ready_inner: T,
        request: Request<B>,
        sender: Option<ResolvedClient>,
    ) -> Self {
        let deciding = Box::pin(decide(limiter.clone(), request, sender));
        Self { state: State::Deciding { deciding, ready_inner, limiter } }
    }
}

/// A body need not be shareable, so only the head is lent to the gate.
async fn decide<S: Store, B>(
    limiter: Arc<RequestLimiter<S>>,
    request: Request<B>,
    sender: Option<ResolvedClient>,
) -> (Request<B>, Decided) {
    let (parts, body) = request.into_parts();
    let head = RequestHead::from(&parts);
    let (paths, is_aside) = (limiter.other_paths(head), sender.is_some());
    let decided = Decided::by(&limiter.gate, &limiter.facts(head, &paths, sender), is_aside).await;
    (Request::from_parts(parts, body), decided)
}

impl<T, S, B, R> Future for ResponseFuture<T, S, B>
where
    T: Service<Request<B>, Response = Response<R>>,
    S: Store,
    B: Send + 'static,
{
    type Output = Result<Response<ResponseBody<R>>, T::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project().state.project() {
                StateProj::Deciding { deciding, ready_inner, limiter } => {
                    let (request, decided) = ready!(deciding.as_mut().poll(cx));
                    match limiter.responder.refuse_decided(decided.decision(), request.headers()) {
                        Some(answer) => Self::refused(answer, decided),
                        None => {
                            let told = Told::new(limiter.clone(), decided, request.version());
                            Self::passing(ready_inner.call(request), told)
                        }
                    }
                }
                StateProj::Passing { inner, told } => {
                    let mut response = ready!(inner.poll(cx))?.map(ResponseBody::inner);
                    if let Some(told) = told.take() {
                        told.tell(&mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProj::Refused { refused } => {
                    let (answer, decided) = refused.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(answer.into_response(decided)));
                }
                StateProj::BadRequest { response } => {
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response.map(ResponseBody::refusal)));
                }
            };
            self.set(next);
        }
    }
}

impl<S> Told<S> {
    pub(crate) fn new(
        limiter: Arc<RequestLimiter<S>>,
        mut decided: Decided,
        version: Version,
    ) -> Self {
        let takes_lines = version <= Version::HTTP_11 && decided.aside_mut().is_some();
        Self { limiter, decided, takes_lines }
    }

    fn tell<R>(mut self, response: &mut Response<ResponseBody<R>>) {
        let Some(decision) = self.decided.decision() else { return };
        let responder = &self.limiter.responder;
        if self.takes_lines {
            let lines = responder.lines(decision, response);
            self.decided.aside_mut().expect("only a server takes lines").lines = lines;
        } else {
            responder.annotate(decision, response);
        }
        let Some(decision) = self.decided.decision() else { return };
        if let Some(inner) = response.extensions().get::<Decision>() {
            self.limiter.detectors.decided_twice(inner, decision);
            // What a layer further in has refused is the better thing to log.
            if !inner.is_allowed() {
                return self.decided.give_way(response);
            }
        }
        self.decided.put_into(response);
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
