//! Connection pool of one upstream server.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::client::conn::{TrySendError, http2};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::upstream_stream::Meter;
use crate::net::{IdleTimeout, RequestBody};

/// Connections of one worker to one upstream server.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<IdleConnections>,
    /// HTTP/2 multiplexes all requests on one connection.
    shared: Mutex<Option<http2::SendRequest<RequestBody>>>,
    max_idle: usize,
}

#[derive(Debug, Default)]
struct IdleConnections {
    /// LIFO: the most recently used connection is taken first, so that surplus ones expire.
    connections: VecDeque<IdleConnection>,
    /// No connection is reused before this instant.
    distrusted_until: Option<Instant>,
}

#[derive(Debug)]
struct IdleConnection {
    connection: Box<Http1Connection>,
    until: Instant,
}

/// Many upstreams close idle connections after a minute, some after five seconds. A connection that
/// closes while a request is sent costs a retry.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long connections to an upstream are not reused after it has sent bytes on an idle one. Such
/// bytes would be taken for the response to the next request if they arrived later.
const REUSE_PAUSE: Duration = Duration::from_secs(60);

impl Pool {
    pub(crate) fn new(max_idle: usize) -> Self {
        Self { idle: Mutex::default(), shared: Mutex::default(), max_idle }
    }

    /// Takes an idle connection that is ready for another request.
    pub(crate) fn take(&self) -> Option<Box<Http1Connection>> {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        while let Some(IdleConnection { mut connection, until }) = idle.connections.pop_back() {
            let is_reusable = now < until && connection.is_reusable();
            if connection.has_late_bytes() {
                idle.distrust(now);
            } else if is_reusable {
                return Some(connection);
            }
        }
        None
    }

    fn put(&self, connection: Box<Http1Connection>, idle_for: Duration) {
        let (mut idle, now) = (self.idle.lock(), Instant::now());
        // Drop expired and closed connections, oldest first.
        while let Some(oldest) = idle.connections.front_mut()
            && (now >= oldest.until || !oldest.connection.is_reusable())
        {
            if oldest.connection.has_late_bytes() {
                idle.distrust(now);
            }
            idle.connections.pop_front();
        }
        if idle.connections.len() < self.max_idle && !idle_for.is_zero() && idle.is_trusted(now) {
            connection.meter.become_idle();
            idle.connections.push_back(IdleConnection { connection, until: now + idle_for });
        }
    }

    pub(crate) fn shared(&self) -> Option<http2::SendRequest<RequestBody>> {
        self.shared.lock().as_ref().filter(|connection| !connection.is_closed()).cloned()
    }

    pub(crate) fn share(&self, connection: &http2::SendRequest<RequestBody>) {
        *self.shared.lock() = Some(connection.clone());
    }
}

impl IdleConnections {
    fn distrust(&mut self, now: Instant) {
        if self.is_trusted(now) {
            tracing::warn!(
                seconds = REUSE_PAUSE.as_secs(),
                "upstream sent bytes on an idle connection; connections to it are not reused"
            );
        }
        self.distrusted_until = Some(now + REUSE_PAUSE);
        self.connections.clear();
    }

    fn is_trusted(&self, now: Instant) -> bool {
        self.distrusted_until.is_none_or(|until| until <= now)
    }
}

/// An HTTP/1.1 connection to upstream. The request that waits for a response, or reads its body,
/// polls the connection, so no task or channel is between client and upstream.
pub(crate) struct Http1Connection {
    sender: SendRequest<RequestBody>,
    connection: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    has_ended: bool,
    pub(super) meter: Arc<Meter>,
    /// Response timeout, reused by successive requests.
    pub(super) timeout: IdleTimeout,
}

impl Http1Connection {
    pub(crate) fn new(
        sender: SendRequest<RequestBody>,
        connection: impl Future<Output = hyper::Result<()>> + Send + 'static,
        meter: Arc<Meter>,
    ) -> Self {
        let timeout = IdleTimeout::default();
        Self { sender, connection: Box::pin(connection), has_ended: false, meter, timeout }
    }

    /// Sends a request. The caller must poll the connection until the response arrives.
    pub(super) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> + use<>
    {
        self.meter.await_response();
        self.sender.try_send_request(request)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if !self.has_ended && self.connection.as_mut().poll(cx).is_ready() {
            self.has_ended = true;
        }
    }

    /// Whether it is ready for a request: upstream has not closed it or sent unsolicited bytes.
    fn is_reusable(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// Whether upstream has sent bytes on an idle connection.
    fn has_late_bytes(&self) -> bool {
        self.meter.read() > 0
    }

    fn is_ready(&self) -> bool {
        !self.has_ended && self.sender.is_ready()
    }

    /// Drives the connection until it is upgraded.
    pub(super) async fn upgraded(self) {
        if !self.has_ended {
            let _ = self.connection.await;
        }
    }
}

impl fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Connection").finish_non_exhaustive()
    }
}

/// A connection with a response in progress, and the pool that it returns to.
pub(crate) struct PooledConnection {
    connection: Option<Box<Http1Connection>>,
    pool: Arc<Pool>,
    idle_for: Duration,
}

impl PooledConnection {
    /// `kept_for` is the keep-alive timeout that upstream announced.
    pub(crate) fn new(
        connection: Box<Http1Connection>,
        pool: Arc<Pool>,
        kept_for: Option<Duration>,
    ) -> Self {
        let idle_for =
            kept_for.map_or(POOL_IDLE_TIMEOUT, |kept_for| kept_for.min(POOL_IDLE_TIMEOUT));
        Self { connection: Some(connection), pool, idle_for }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection {
            connection.poll(cx);
        }
    }

    /// Returns the connection to the pool if it is idle. Returns false if it still sends the request.
    pub(super) fn finish(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.give_back()
    }

    /// Ready once the request was sent and the connection is back in the pool, or has ended.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll(cx);
        if self.give_back() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn give_back(&mut self) -> bool {
        if let Some(connection) = self.connection.take_if(|connection| connection.is_ready()) {
            self.pool.put(connection, self.idle_for);
        }
        self.connection.as_ref().is_none_or(|connection| connection.has_ended)
    }
}
