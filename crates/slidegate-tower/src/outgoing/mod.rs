//! Outgoing calls, kept within a third party's quota.

mod account_queues;
mod queue;

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use slidegate::{Decision, Gate, MemoryStore, Store, StoreError};
use tower_layer::Layer;
use tower_service::Service;

pub use self::queue::OutgoingQueue;
use crate::client_address::ResolvedClient;
use crate::request::RequestHead;

/// Keeps the calls of a client within a quota, for instance a third party's.
///
/// Each call is decided by the gate like a request, with the method, path and headers that it has,
/// and the [extensions](crate#what-is-where) of the application. It has no client address: a policy that counts by address has one
/// account for all calls. Headers are trusted, since the application itself has written them.
///
/// What may not go out waits or fails, as the [`OutgoingQueue`] says.
///
/// ```
/// use std::time::Duration;
///
/// use slidegate::{Gate, MemoryStore, Policies, Policy, Quota};
/// use slidegate_tower::{OutgoingLayer, OutgoingQueue};
///
/// let vendor = Policy::new("vendor").quota(Quota::per_second(5));
/// let gate = Gate::new(Policies::builder().policy(vendor).build()?, MemoryStore::new());
/// let layer = OutgoingLayer::new(OutgoingQueue::new(gate).wait_up_to(Duration::from_secs(10)));
/// # Ok::<(), slidegate::PolicyErrors>(())
/// ```
#[derive(Debug)]
pub struct OutgoingLayer<S = MemoryStore> {
    queue: Arc<OutgoingQueue<S>>,
}

impl<S: Store> OutgoingLayer<S> {
    /// Sends calls through this queue. Layers that are given the same queue wait together.
    pub fn new(queue: impl Into<Arc<OutgoingQueue<S>>>) -> Self {
        Self { queue: queue.into() }
    }

    /// Asks this gate, and fails at once where it does not allow.
    pub fn fail_at_once(gate: impl Into<Arc<Gate<S>>>) -> Self {
        Self::new(OutgoingQueue::new(gate))
    }
}

impl<S> Clone for OutgoingLayer<S> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<S, T> Layer<T> for OutgoingLayer<S> {
    type Service = OutgoingService<T, S>;

    fn layer(&self, inner: T) -> Self::Service {
        OutgoingService { inner, queue: self.queue.clone() }
    }
}

/// The service of an [`OutgoingLayer`].
#[derive(Debug)]
pub struct OutgoingService<T, S = MemoryStore> {
    inner: T,
    queue: Arc<OutgoingQueue<S>>,
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
            // A body need not be `Sync`, so only the head is borrowed while this waits.
            let (parts, body) = request.into_parts();
            let head = RequestHead::from(&parts);
            if !head.is_exempt {
                // The program itself is the client.
                let own = ResolvedClient { peer: None, client: None, is_trusted: true };
                let _ = queue.pass(&head.facts(own)).await?;
            }
            let request = Request::from_parts(parts, body);
            ready_inner.call(request).await.map_err(OutgoingError::Inner)
        })
    }
}

/// Why a call did not go out. Nothing was spent on it, unless a policy counts denied requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RateLimited {
    /// It could not go out within the longest wait.
    #[error("no quota for the call within the longest wait")]
    Denied(Box<Decision>),
    /// It would have had to wait, and the queue is full.
    #[error("no quota for the call, and the queue is full")]
    QueueFull(Box<Decision>),
    /// The store could not count, and a policy says `deny` to that.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RateLimited {
    /// The last decision about the call. If it failed while it waited behind others, this is where
    /// it stood then, as by [`Gate::peek`](slidegate::Gate::peek).
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Denied(decision) | Self::QueueFull(decision) => Some(decision),
            Self::Store(_) => None,
        }
    }

    /// How long that decision says to wait, if waiting helps.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }
}

/// Why an outgoing call failed: it did not go out, or the inner service failed.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError<E> {
    /// It did not go out.
    #[error(transparent)]
    RateLimited(#[from] RateLimited),
    /// The inner service's error.
    #[error("the call failed")]
    Inner(#[source] E),
}
