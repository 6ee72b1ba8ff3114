//! Connections to one upstream server that wait for their next request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2;
use tokio::time::Instant;

use super::body::Timed;
use super::http1::Http1Connection;
use super::in_flight::InFlightPermit;
use crate::observe::Observer;

/// Connections of one worker to one upstream server.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The one used last is taken first, so that the others grow old and are closed.
    idle: Mutex<VecDeque<Idle>>,
    /// HTTP/2 has many requests on one connection.
    shared: Mutex<Option<http2::SendRequest<Timed>>>,
    most: usize,
}

#[derive(Debug)]
struct Idle {
    connection: Box<Http1Connection>,
    since: Instant,
    until: Instant,
}

/// Upstreams close connections that were idle for long, many after a minute and some after five
/// seconds; one that was closed at the wrong moment costs a retry.
const IDLE_FOR: Duration = Duration::from_secs(30);

/// A connection returned to the pool less than this ago is reused without probing the socket.
const FRESH_FOR: Duration = Duration::from_secs(1);

impl Idle {
    /// Whether it is not known to be useless.
    fn is_good(&mut self, now: Instant) -> bool {
        now < self.until && self.connection.is_reusable(true)
    }
}

impl Pool {
    pub(crate) fn new(most: usize) -> Self {
        Self { idle: Mutex::default(), shared: Mutex::default(), most }
    }

    /// A connection that was in use before, if there is one that is good for such a request.
    pub(crate) fn take(&self, is_repeatable: bool) -> Option<Box<Http1Connection>> {
        let mut idle = self.idle();
        let now = Instant::now();
        while let Some(Idle { mut connection, since, until }) = idle.pop_back() {
            let is_fresh = is_repeatable && now < since + FRESH_FOR;
            if now < until && connection.is_reusable(is_fresh) {
                return Some(connection);
            }
        }
        None
    }

    fn put(&self, connection: Box<Http1Connection>, good_for: Duration) {
        let (mut idle, now) = (self.idle(), Instant::now());
        // Those that have been there longest.
        while idle.front_mut().is_some_and(|oldest| !oldest.is_good(now)) {
            idle.pop_front();
        }
        if idle.len() < self.most && !good_for.is_zero() {
            idle.push_back(Idle { connection, since: now, until: now + good_for });
        }
    }

    pub(crate) fn shared(&self) -> Option<http2::SendRequest<Timed>> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.as_ref().filter(|connection| !connection.is_closed()).cloned()
    }

    pub(crate) fn share(&self, connection: &http2::SendRequest<Timed>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = Some(connection.clone());
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a connection goes that a response still comes over, and a place among the requests under
/// way.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    pool: Arc<Pool>,
    good_for: Duration,
    observer: Observer,
    _permit: InFlightPermit,
}

impl PooledConnection {
    pub(crate) fn new(pool: Arc<Pool>, permit: InFlightPermit, observer: Observer) -> Self {
        Self { pool, good_for: IDLE_FOR, observer, _permit: permit }
    }

    /// Upstream closes the connection when it was idle for longer.
    pub(crate) fn good_for(&mut self, time: Duration) {
        self.good_for = time.min(IDLE_FOR);
    }

    /// Upstream broke off or stopped in the middle of the response.
    pub(crate) fn fail(&self) {
        self.observer.upstream_body_failed();
    }

    /// The response is complete, and its connection free for others.
    pub(crate) fn end(self, connection: Box<Http1Connection>) {
        self.pool.put(connection, self.good_for);
    }
}
