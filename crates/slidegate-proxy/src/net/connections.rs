//! The connections of one listener: limits in total and per address, and eviction of idle ones.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Unwanted};
use crate::Bounds;
use crate::per_address::{AddressPermit, PerAddressLimit};

/// Delay before the next search for an idle connection if there was none.
const EVICTION_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long to wait for an evicted connection to close.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// All connections of a listener, over all workers.
#[derive(Debug)]
pub struct ConnectionTable {
    table: Mutex<OpenConnections>,
    room: Arc<Semaphore>,
    pub(super) draining: CancellationToken,
    per_address: PerAddressLimit,
    pub(super) counts: ConnectionCounts,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next_id: u64,
    open: HashMap<u64, Arc<Activity>>,
}

/// Connections since the start, and those open now.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    /// Open now.
    pub open: AtomicU64,
    /// Accepted since the start.
    pub accepted: AtomicU64,
    /// Waited because the connection limit was reached.
    pub waited: AtomicU64,
    /// Closed because the peer is not trusted to send the PROXY header that is required.
    pub untrusted: AtomicU64,
    /// Closed because their address reached its connection limit.
    pub over_address_limit: AtomicU64,
    /// Closed because the TLS handshake failed or took too long.
    pub tls_failures: AtomicU64,
    /// Closed because a trusted peer's PROXY header was invalid or took too long.
    pub proxy_header_failures: AtomicU64,
    /// Closed because the client was too slow to send a request head or to read its response.
    pub timeouts: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl ConnectionTable {
    /// An empty table.
    pub fn new(bounds: &Bounds) -> Self {
        let max = bounds.connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            table: Mutex::default(),
            room: Arc::new(Semaphore::new(max)),
            draining: CancellationToken::new(),
            per_address: PerAddressLimit::new(bounds.connections_per_address),
            counts: ConnectionCounts::default(),
        }
    }

    /// The counters of these connections.
    pub fn counts(&self) -> &ConnectionCounts {
        &self.counts
    }

    pub(super) fn try_admit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Waits for a free slot, closing the longest-idle connection to make one.
    pub(super) async fn admit(&self) -> OwnedSemaphorePermit {
        loop {
            // A slot may be free by now: an earlier call may have been cancelled while it waited.
            if let Some(permit) = self.try_admit() {
                return permit;
            }
            let wait =
                if self.close_longest_idle() { EVICTION_TIMEOUT } else { EVICTION_RETRY_DELAY };
            let permit = Arc::clone(&self.room).acquire_owned();
            if let Ok(permit) = timeout(wait, permit).await {
                return permit.expect("the semaphore is never closed");
            }
        }
    }

    /// Returns whether a connection was idle.
    fn close_longest_idle(&self) -> bool {
        let table = self.table.lock();
        let idle = table.open.values().filter_map(|one| Some((one.idle_since()?, one)));
        let longest = idle.min_by_key(|(since, _)| *since);
        longest.inspect(|(_, longest)| longest.close(Unwanted::Evicted)).is_some()
    }

    /// Asks all connections to close once they have no request in flight.
    pub(super) fn drain(&self) {
        self.draining.cancel();
        let table = self.table.lock();
        table.open.values().for_each(|connection| connection.close(Unwanted::Draining));
    }

    /// Takes a slot for a connection. With an `address`, returns `None` if that address has
    /// reached its connection limit.
    pub(super) fn open(
        self: &Arc<Self>,
        admitted: Admitted,
        address: Option<IpAddr>,
        activity: &Arc<Activity>,
    ) -> Option<ConnectionSlot> {
        let address = match address.map(|address| self.per_address.acquire(address)) {
            Some(None) => {
                count(&self.counts.over_address_limit);
                return None;
            }
            permit => permit.flatten(),
        };
        let mut table = self.table.lock();
        let id = table.next_id;
        table.next_id += 1;
        table.open.insert(id, Arc::clone(activity));
        if self.draining.is_cancelled() {
            activity.close(Unwanted::Draining);
        }
        count(&self.counts.accepted);
        count(&self.counts.open);
        let connections = Arc::clone(self);
        Some(ConnectionSlot { connections, id, address, _admitted: admitted })
    }
}

/// A free slot for one connection. Dropping it signals its worker that the connection has ended.
#[derive(Debug)]
pub(super) struct Admitted {
    _permit: OwnedSemaphorePermit,
    /// When all are dropped, the worker has no connection left.
    _worker: mpsc::Sender<Infallible>,
}

impl Admitted {
    pub(super) fn new(permit: OwnedSemaphorePermit, worker: mpsc::Sender<Infallible>) -> Self {
        Self { _permit: permit, _worker: worker }
    }
}

/// The table entry of an open connection. Dropping it removes the entry.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connections: Arc<ConnectionTable>,
    id: u64,
    address: Option<AddressPermit>,
    _admitted: Admitted,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.table.lock().open.remove(&self.id);
        // Release the permit of the address before the connection counts as closed.
        self.address = None;
        self.connections.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}
