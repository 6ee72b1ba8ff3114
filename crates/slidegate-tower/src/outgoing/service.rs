//! The service that the layer for clients wraps around another.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, request};
use slidegate::{MemoryStore, Store};
use tower_service::Service;

use crate::extension::Exempt;
use crate::facts::RequestHead;
use crate::outgoing::error::{OutgoingError, RateLimited};
use crate::outgoing::queue::OutgoingQueue;

/// The service of an [`OutgoingLayer`](crate::OutgoingLayer).
#[derive(Debug)]
pub struct OutgoingService<T, S = MemoryStore> {
    pub(super) inner: T,
    pub(super) queue: Arc<OutgoingQueue<S>>,
}

impl<T: Clone, S> Clone for OutgoingService<T, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), queue: self.queue.clone() }
    }
}

impl<T, S, B> Service<Request<B>> for OutgoingService<T, S>
where
    T: Service<Request<B>> + Clone + Send + 'static,
    T::Future: Send,
    S: Store,
    B: Send + 'static,
{
    type Response = T::Response;
    type Error = OutgoingError<T::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<T::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(OutgoingError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let not_ready_inner = self.inner.clone();
        let mut ready_inner = mem::replace(&mut self.inner, not_ready_inner);
        let queue = self.queue.clone();
        Box::pin(async move {
            // A body need not be shareable, so only the head is lent to the gate.
            let (parts, body) = request.into_parts();
            pass(&queue, &parts).await?;
            let request = Request::from_parts(parts, body);
            ready_inner.call(request).await.map_err(OutgoingError::Inner)
        })
    }
}

async fn pass<S: Store>(
    queue: &OutgoingQueue<S>,
    parts: &request::Parts,
) -> Result<(), RateLimited> {
    if parts.extensions.get::<Exempt>().is_some() {
        return Ok(());
    }
    let facts = RequestHead::from(parts).facts().headers_trusted();
    queue.pass(&facts).await.map(drop)
}
