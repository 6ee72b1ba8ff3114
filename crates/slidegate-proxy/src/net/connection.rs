//! Serves one client connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use ::http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use bytes::BytesMut;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::select;
use tokio::time::{Instant, sleep, timeout_at};

use super::activity::{Activity, InFlight, TrackedBody};
use super::body::BodyLimits;
use super::connections::{Admitted, ConnectionSlot, count};
use super::idle::IdleTimeout;
use super::lifecycle::{DRAIN_GRACE, End, Lifecycle};
use super::proxy_header::read_proxy_header;
use super::stream::{BoxIo, ClientStream};
use super::{Accepted, Handler, Protocol, RequestBody, Settings, tls};

/// The HTTP/2 connection preface.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Concurrent requests on one HTTP/2 connection: more than browsers send, and few enough that one
/// connection cannot monopolize a worker.
const MAX_HTTP2_STREAMS: u32 = 256;

/// Bytes buffered for an HTTP/2 stream whose client does not read: 16 MiB per connection over all
/// streams.
const HTTP2_STREAM_BUFFER_BYTES: usize = 64 * 1024;

/// The minimum buffer size that hyper accepts.
const MIN_BUFFER_BYTES: usize = 8192;

/// An accepted connection.
pub(super) struct Socket {
    pub(super) io: BoxIo,
    pub(super) peer: Option<IpAddr>,
}

impl Socket {
    pub(super) fn tcp(stream: TcpStream, peer: SocketAddr) -> Self {
        Self { io: Box::new(stream), peer: Some(peer.ip().to_canonical()) }
    }

    pub(super) fn unix(stream: UnixStream) -> Self {
        Self { io: Box::new(stream), peer: None }
    }
}

/// Serves the connections of one worker.
pub(super) struct ConnectionServer<H> {
    settings: Settings,
    handler: Arc<H>,
    body_limits: Arc<BodyLimits>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

/// Why a connection was closed before its first request.
pub(super) enum HandshakeError {
    Untrusted { peer: Option<IpAddr> },
    ProxyHeader { peer: Option<IpAddr>, error: io::Error },
    Tls(io::Error),
    TooManyOfAddress,
    FirstBytes(io::Error),
}

/// A connection after its handshakes.
pub(super) struct OpenConnection {
    pub(super) io: BoxIo,
    pub(super) accepted: Accepted,
    pub(super) slot: ConnectionSlot,
    /// Whether ALPN selected HTTP/2. `None` without TLS or ALPN.
    is_http2: Option<bool>,
}

/// A connection that is ready for HTTP.
struct HttpConnection {
    io: BoxIo,
    /// Bytes read while detecting the HTTP version.
    read: BytesMut,
    is_http2: bool,
    accepted: Accepted,
    activity: Arc<Activity>,
    slot: ConnectionSlot,
}

impl Settings {
    /// Reads the PROXY header if one is required, takes a slot, and completes the TLS handshake.
    pub(super) async fn open(
        &self,
        socket: Socket,
        admitted: Admitted,
        activity: &Arc<Activity>,
    ) -> Result<OpenConnection, HandshakeError> {
        let deadline = Instant::now() + self.timeouts.head;
        let Socket { mut io, peer } = socket;
        let mut client = peer;
        if self.needs_proxy_header {
            if !self.trusts(peer) {
                return Err(HandshakeError::Untrusted { peer });
            }
            let source = in_time(deadline, read_proxy_header(&mut io)).await;
            let source = source.map_err(|error| HandshakeError::ProxyHeader { peer, error })?;
            client = source.or(peer);
        }
        // A trusted proxy carries many clients.
        let counted = client.filter(|_| client != peer || !self.trusts(peer));
        let slot = self
            .connections
            .open(admitted, counted, activity)
            .ok_or(HandshakeError::TooManyOfAddress)?;
        let mut is_http2 = None;
        if let Some(tls) = &self.tls {
            let stream = in_time(deadline, tls.accept(io)).await.map_err(HandshakeError::Tls)?;
            is_http2 = tls::negotiated_http2(&stream);
            io = Box::new(stream);
        }
        let accepted = Accepted { secure: self.tls.is_some(), ..Accepted::new(client) };
        Ok(OpenConnection { io, accepted, slot, is_http2 })
    }

    pub(super) fn report(&self, error: HandshakeError) {
        let counts = &self.connections.counts;
        match error {
            HandshakeError::Untrusted { peer } => {
                count(&counts.untrusted);
                tracing::debug!(?peer, "untrusted peer where a PROXY header is required");
            }
            HandshakeError::ProxyHeader { peer, error } => {
                count(&counts.proxy_header_failures);
                tracing::debug!(?peer, %error, "invalid or missing PROXY header");
            }
            HandshakeError::Tls(error) => {
                count(&counts.tls_failures);
                tracing::debug!(%error, "TLS handshake failed");
            }
            HandshakeError::TooManyOfAddress => {
                tracing::debug!("connection closed: too many connections from this address");
            }
            HandshakeError::FirstBytes(error) if error.kind() == io::ErrorKind::TimedOut => {
                count(&counts.timeouts);
            }
            HandshakeError::FirstBytes(_) => {}
        }
    }
}

impl<H: Handler> ConnectionServer<H> {
    pub(super) fn new(settings: Settings, handler: H) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .max_header_size(settings.bounds.head_bytes)
            .max_buf_size(settings.bounds.head_bytes.max(MIN_BUFFER_BYTES))
            // `drive` applies the timeouts.
            .header_read_timeout(None);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_HTTP2_STREAMS)
            .max_send_buf_size(HTTP2_STREAM_BUFFER_BYTES)
            .max_header_list_size(u32::try_from(settings.bounds.head_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(settings.timeouts.idle)
            .keep_alive_timeout(settings.timeouts.head);
        let body_limits = Arc::new(BodyLimits::new(&settings.timeouts, &settings.bounds));
        Self { settings, handler: Arc::new(handler), body_limits, http1, http2 }
    }

    /// Completes `DRAIN_GRACE` after draining starts.
    async fn grace(&self) {
        self.settings.connections.draining.cancelled().await;
        sleep(DRAIN_GRACE).await;
    }

    async fn open(
        &self,
        socket: Socket,
        admitted: Admitted,
        activity: &Arc<Activity>,
    ) -> Result<HttpConnection, HandshakeError> {
        let open = self.settings.open(socket, admitted, activity).await?;
        let OpenConnection { mut io, accepted, slot, is_http2 } = open;
        let mut read = BytesMut::new();
        let is_http2 = match is_http2 {
            Some(is_http2) => is_http2,
            None => {
                let deadline = Instant::now() + self.settings.timeouts.head;
                let begins = in_time(deadline, begins_http2(&mut io, &mut read)).await;
                begins.map_err(HandshakeError::FirstBytes)?
            }
        };
        let activity = Arc::clone(activity);
        Ok(HttpConnection { io, read, is_http2, accepted, activity, slot })
    }

    async fn speak_http(&self, connection: HttpConnection) {
        let HttpConnection { io, read, is_http2, accepted, activity, slot } = connection;
        if is_http2 {
            activity.set_opaque();
        }
        let stream = TokioIo::new(ClientStream::new(io, read, Arc::clone(&activity), slot));
        let (handler, limits) = (Arc::clone(&self.handler), Arc::clone(&self.body_limits));
        let requests = Arc::clone(&activity);
        let service = service_fn(move |request: Request<Incoming>| {
            let request = request.map(|body| RequestBody::new(body, &limits));
            respond(Arc::clone(&handler), accepted.clone(), request, requests.begin())
        });
        let timed_out = if is_http2 {
            // Its state is large; boxing keeps it out of the future of HTTP/1.1 connections.
            let mut connection = Box::pin(self.http2.serve_connection(stream, service));
            self.drive(connection.as_mut(), &activity).await
        } else {
            let connection = self.http1.serve_connection(stream, service).with_upgrades();
            self.drive(std::pin::pin!(connection), &activity).await
        };
        if timed_out {
            count(&self.settings.connections.counts.timeouts);
        }
    }

    /// Drives a connection to its end. Returns true if it was cut because the client exceeded a
    /// timeout.
    async fn drive<C: HyperConnection>(
        &self,
        mut connection: Pin<&mut C>,
        activity: &Activity,
    ) -> bool {
        let mut lifecycle = Lifecycle::new(&self.settings.timeouts);
        let mut timeout = IdleTimeout::default();
        poll_fn(|cx| {
            loop {
                if let Some(why) = activity.driven_by(cx.waker())
                    && lifecycle.close(why, activity.phase())
                {
                    connection.as_mut().finish();
                }
                if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                    if let Err(error) = result {
                        let error = &error as &dyn std::error::Error;
                        tracing::debug!(error, "connection failed");
                    }
                    return Poll::Ready(false);
                }
                let Some(deadline) = lifecycle.deadline(activity.phase()) else {
                    return Poll::Pending;
                };
                timeout.set(deadline.at);
                if timeout.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                if deadline.end == End::Cut {
                    return Poll::Ready(true);
                }
                if lifecycle.finish() {
                    connection.as_mut().finish();
                }
            }
        })
        .await
    }
}

impl<H: Handler> Protocol for ConnectionServer<H> {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    async fn serve(self: Arc<Self>, socket: Socket, admitted: Admitted) {
        let activity = Arc::new(Activity::new());
        let opened = select! {
            biased;
            opened = self.open(socket, admitted, &activity) => opened,
            () = activity.evicted() => return,
            () = self.grace() => return,
        };
        match opened {
            Ok(connection) => self.speak_http(connection).await,
            Err(error) => self.settings.report(error),
        }
    }
}

/// Answers one request.
///
/// If the handler has not read all of an HTTP/1.1 request's body, the rest precedes the next request
/// on the connection: it is drained within a bound, or the response closes the connection.
async fn respond<H: Handler>(
    handler: Arc<H>,
    accepted: Accepted,
    request: Request<RequestBody>,
    in_flight: InFlight,
) -> Result<Response<TrackedBody<H::Body>>, Infallible> {
    let body = request.body().upload().filter(|_| request.version() <= Version::HTTP_11);
    let awaits_continue = request.headers().contains_key(header::EXPECT);
    // In HTTP/1.1, hyper leaves the body out itself.
    let is_hidden = *request.method() == Method::HEAD && request.version() == Version::HTTP_2;
    let mut response = handler.answer(accepted, request).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        in_flight.activity().set_opaque();
    } else if let Some(body) = body
        && !body.finish(awaits_continue).await
    {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        in_flight.activity().leave_body_unread();
    }
    Ok(response.map(|body| {
        let body = TrackedBody::new(body, in_flight);
        if is_hidden { body.hidden() } else { body }
    }))
}

async fn in_time<T>(deadline: Instant, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout_at(deadline, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether a connection starts with the HTTP/2 preface. The bytes read stay in the buffer.
async fn begins_http2(io: &mut BoxIo, read: &mut BytesMut) -> io::Result<bool> {
    loop {
        let has_ended = io.read_buf(read).await? == 0;
        let compared = read.len().min(HTTP2_PREFACE.len());
        if has_ended || read[..compared] != HTTP2_PREFACE[..compared] {
            return Ok(false);
        }
        if compared == HTTP2_PREFACE.len() {
            return Ok(true);
        }
    }
}

/// A hyper connection of either HTTP version.
trait HyperConnection: Future<Output = hyper::Result<()>> {
    /// Starts a graceful shutdown: requests in flight complete, no new ones are accepted.
    fn finish(self: Pin<&mut Self>);
}

impl<S, B> HyperConnection for http1::UpgradeableConnection<TokioIo<ClientStream>, S>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<S, B> HyperConnection for http2::Connection<TokioIo<ClientStream>, S, TokioExecutor>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    TokioExecutor: hyper::rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
