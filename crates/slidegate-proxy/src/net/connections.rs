//! The connections of one listener: how many there may be, of whom, and which go first.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Unwanted};
use crate::Bounds;

/// How soon an idle connection is looked for again if there was none.
const RETRY: Duration = Duration::from_millis(100);

/// How long a connection that was asked to close may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// All connections of a listener, over all workers.
#[derive(Debug)]
pub struct ConnectionTable {
    table: Mutex<OpenConnections>,
    room: Arc<Semaphore>,
    pub(super) draining: CancellationToken,
    most_per_address: usize,
    pub(super) counts: ConnectionCounts,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next_id: u64,
    open: HashMap<u64, Arc<Activity>>,
    /// How many there are from each address.
    addresses: HashMap<IpAddr, usize>,
}

/// Connections since the start, and those open now.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    /// Open now.
    pub open: AtomicU64,
    /// Accepted since the start.
    pub accepted: AtomicU64,
    /// Waited for another's end.
    pub waited: AtomicU64,
    /// Closed because the peer is not trusted to send the PROXY header that is required.
    pub refused: AtomicU64,
    /// Closed because their address had too many.
    pub over_address_limit: AtomicU64,
    /// Closed because the TLS handshake failed or took too long.
    pub tls_failures: AtomicU64,
    /// Closed because a trusted peer's PROXY header was invalid or took too long.
    pub proxy_header_failures: AtomicU64,
    /// Cut because the client took too long over a request's head or its response.
    pub timeouts: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl ConnectionTable {
    /// An empty table.
    pub fn new(bounds: &Bounds) -> Self {
        let most = bounds.connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            table: Mutex::default(),
            room: Arc::new(Semaphore::new(most)),
            draining: CancellationToken::new(),
            most_per_address: bounds.connections_per_address,
            counts: ConnectionCounts::default(),
        }
    }

    /// What it has counted.
    pub fn counts(&self) -> &ConnectionCounts {
        &self.counts
    }

    pub(super) fn try_admit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Waits for a free slot, closing the longest-idle connection to make one, those that
    /// were idle longest first.
    pub(super) async fn admit(&self) -> OwnedSemaphorePermit {
        loop {
            // There may be room by now: whoever waits here may have been interrupted.
            if let Some(permit) = self.try_admit() {
                return permit;
            }
            let wait = if self.close_longest_idle() { CLOSE_TIMEOUT } else { RETRY };
            let permit = Arc::clone(&self.room).acquire_owned();
            if let Ok(permit) = timeout(wait, permit).await {
                return permit.expect("the semaphore is never closed");
            }
        }
    }

    /// Returns whether there was an idle one.
    fn close_longest_idle(&self) -> bool {
        let table = self.table.lock();
        let idle = table.open.values().filter_map(|one| Some((one.idle_since()?, one)));
        let longest = idle.min_by_key(|(since, _)| *since);
        longest.inspect(|(_, longest)| longest.close(Unwanted::Evicted)).is_some()
    }

    /// Asks all connections to close as soon as there is nothing to lose.
    pub(super) fn drain(&self) {
        self.draining.cancel();
        let table = self.table.lock();
        table.open.values().for_each(|connection| connection.close(Unwanted::Draining));
    }

    /// A slot for a connection, from an address whose connections are counted. None if there are
    /// too many of that address.
    pub(super) fn open(
        self: &Arc<Self>,
        admitted: Admitted,
        address: Option<IpAddr>,
        activity: &Arc<Activity>,
    ) -> Option<ConnectionSlot> {
        let address = address.map(network);
        let mut table = self.table.lock();
        if let Some(address) = address {
            let from_here = table.addresses.entry(address).or_insert(0);
            if *from_here >= self.most_per_address {
                count(&self.counts.over_address_limit);
                return None;
            }
            *from_here += 1;
        }
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

/// The part of an address that one client has for itself: of IPv6, the usual network.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

/// Room for one connection, and word to its worker when it ends.
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

/// An open connection's entry, until dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connections: Arc<ConnectionTable>,
    id: u64,
    address: Option<IpAddr>,
    _admitted: Admitted,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut table = self.connections.table.lock();
        table.open.remove(&self.id);
        if let Some(address) = self.address
            && let Some(from_here) = table.addresses.get_mut(&address)
        {
            *from_here -= 1;
            if *from_here == 0 {
                table.addresses.remove(&address);
            }
        }
        self.connections.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}
