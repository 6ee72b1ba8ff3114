//! The layer for clients.

use std::sync::Arc;

use slidegate::{Gate, MemoryStore, Store};
use tower_layer::Layer;

use crate::outgoing::queue::Queue;
use crate::outgoing::service::Outgoing;

/// Keeps the calls of a client within a quota, for instance a third party's.
///
/// Each call is decided by the gate like a request, with the method, path and headers that it has,
/// and the extensions [`User`](crate::User), [`UserPlan`](crate::UserPlan), [`Cost`](crate::Cost)
/// and [`Exempt`](crate::Exempt). It has no client address: a policy that counts by address has one
/// account for all calls. Headers are trusted, since the application itself has written them.
///
/// What may not go out waits or fails, as the [`Queue`] says.
///
/// ```
/// use std::time::Duration;
///
/// use slidegate::{Gate, MemoryStore, Policies, Policy, Quota};
/// use slidegate_tower::{OutgoingLayer, Queue};
///
/// let vendor = Policy::new("vendor").quota(Quota::per_second(5));
/// let gate = Gate::new(Policies::builder().policy(vendor).build()?, MemoryStore::new());
/// let layer = OutgoingLayer::new(Queue::new(gate).wait_up_to(Duration::from_secs(10)));
/// # Ok::<(), slidegate::PolicyErrors>(())
/// ```
#[derive(Debug)]
pub struct OutgoingLayer<S = MemoryStore> {
    queue: Arc<Queue<S>>,
}

impl<S: Store> OutgoingLayer<S> {
    /// Sends calls through this queue. Layers that are given the same queue wait together.
    pub fn new(queue: impl Into<Arc<Queue<S>>>) -> Self {
        Self { queue: queue.into() }
    }

    /// Asks this gate, and fails at once where it does not allow.
    pub fn fail_at_once(gate: impl Into<Arc<Gate<S>>>) -> Self {
        Self::new(Queue::new(gate))
    }
}

impl<S> Clone for OutgoingLayer<S> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<S, T> Layer<T> for OutgoingLayer<S> {
    type Service = Outgoing<T, S>;

    fn layer(&self, inner: T) -> Self::Service {
        Outgoing { inner, queue: self.queue.clone() }
    }
}
