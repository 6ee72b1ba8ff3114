//! Connections to one upstream server.

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
    /// HTTP/2 has many requests on one connection.
    shared: Mutex<Option<http2::SendRequest<RequestBody>>>,
    most: usize,
}

#[derive(Debug, Default)]
struct IdleConnections {
    /// The one used last is taken first, so that the others grow old and are closed.
    connections: VecDeque<IdleConnection>,
    /// No connection is used twice until then.
    distrusted_until: Option<Instant>,
}

#[derive(Debug)]
struct IdleConnection {
    connection: Box<Http1Connection>,
    until: Instant,
}

/// Upstreams close connections that were idle for long, many after a minute and some after five
/// seconds; one that was closed at the wrong moment costs a retry.
const IDLE_FOR: Duration = Duration::from_secs(30);

/// For how long connections to an upstream are not used twice after it has sent bytes on an idle
/// one. If such bytes come a moment later, they are taken for the response to the next request.
const DISTRUST: Duration = Duration::from_secs(60);

impl Pool {
    pub(crate) fn new(most: usize) -> Self {
        Self { idle: Mutex::default(), shared: Mutex::default(), most }
    }

    /// A connection that was in use before and is good for another request.
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
        // Those that have been there longest.
        while let Some(oldest) = idle.connections.front_mut()
            && (now >= oldest.until || !oldest.connection.is_reusable())
        {
            if oldest.connection.has_late_bytes() {
                idle.distrust(now);
            }
            idle.connections.pop_front();
        }
        if idle.connections.len() < self.most && !idle_for.is_zero() && idle.is_trusted(now) {
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
                seconds = DISTRUST.as_secs(),
                "upstream sent bytes on an idle connection; connections to it are not reused"
            );
        }
        self.distrusted_until = Some(now + DISTRUST);
        self.connections.clear();
    }

    fn is_trusted(&self, now: Instant) -> bool {
        self.distrusted_until.is_none_or(|until| until <= now)
    }
}

/// An HTTP/1.1 connection to upstream. The request that waits for a response, or reads its body,
/// polls the connection, so that no task and no channel is between client and upstream.
pub(crate) struct Http1Connection {
    sender: SendRequest<RequestBody>,
    connection: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    has_ended: bool,
    pub(super) meter: Arc<Meter>,
    /// For the responses of all requests, one after the other.
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

    /// Sends a request. The connection has to be polled until the response comes.
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

    /// Whether it waits for a request. If upstream has closed it, or has sent what nobody asked
    /// for, it never does.
    fn is_reusable(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// Whether upstream has sent something on an idle connection.
    fn has_late_bytes(&self) -> bool {
        self.meter.read() > 0
    }

    fn is_ready(&self) -> bool {
        !self.has_ended && self.sender.is_ready()
    }

    /// Drives the connection until it has changed to another protocol.
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

/// A connection over which a response comes, and the pool that it goes back to.
pub(crate) struct PooledConnection {
    connection: Option<Box<Http1Connection>>,
    pool: Arc<Pool>,
    idle_for: Duration,
}

impl PooledConnection {
    /// Upstream may have said for how long it keeps idle connections open.
    pub(crate) fn new(
        connection: Box<Http1Connection>,
        pool: Arc<Pool>,
        kept_for: Option<Duration>,
    ) -> Self {
        let idle_for = kept_for.map_or(IDLE_FOR, |kept_for| kept_for.min(IDLE_FOR));
        Self { connection: Some(connection), pool, idle_for }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection {
            connection.poll(cx);
        }
    }

    /// Gives the connection back if it is free. Returns false if it still sends the request.
    pub(super) fn finish(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.give_back()
    }

    /// Ready when the request was sent and the connection given back, or has ended.
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
