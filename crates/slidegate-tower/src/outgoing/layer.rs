//! The layer for clients.

use std::sync::Arc;

use slidegate::{Gate, MemoryStore, Store};
use tower_layer::Layer;

use crate::outgoing::queue::OutgoingQueue;
use crate::outgoing::service::OutgoingService;

/// Keeps the calls of a client within a quota, for instance a third party's.
///
/// Each call is decided by the gate like a request, with the method, path and headers that it has,
/// and the extensions [`User`](crate::User), [`UserPlan`](crate::UserPlan), [`Cost`](crate::Cost)
/// and [`Exempt`](crate::Exempt). It has no client address: a policy that counts by address has one
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
