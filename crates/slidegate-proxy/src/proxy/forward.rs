//! Forwards one request to upstream and returns the response.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, Version, header, request};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use hyper::upgrade::OnUpgrade;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::RequestOrigin;
use super::body::{ProxyBody, UpstreamBody};
use super::error::ProxyError;
use super::in_flight::InFlightPermit;
use super::pool::{Http1Connection, PooledConnection};
use super::proxy_headers::{self, ProxyHeaders, RequestFields};
use super::upstream::Upstream;
use super::{ReverseProxy, tunnel};
use crate::net::{IdleTimeout, RequestBody, RequestBodyError, Upload};

/// Forwards an allowed request to upstream.
#[derive(Clone, Copy)]
pub(crate) struct Forward<'p> {
    pub(crate) proxy: &'p ReverseProxy,
    pub(crate) worker: usize,
    /// In its normal form.
    pub(crate) path: &'p str,
    pub(crate) origin: RequestOrigin<'p>,
}

/// Maximum servers tried for one request.
const MAX_SERVERS_TRIED: usize = 3;

/// A request that upstream has not answered yet.
struct Attempt<'h> {
    headers: &'h ProxyHeaders,
    /// `None` while it is being sent.
    request: Option<Request<RequestBody>>,
    /// The head, for a retry.
    copy: Option<request::Parts>,
    /// Whether it was sent on a connection that closed without a response.
    was_sent: bool,
    /// Whether the route has another server.
    has_others: bool,
}

impl Attempt<'_> {
    /// The request for a server.
    ///
    /// An idempotent request without a body is retried if upstream closes without a response, but
    /// only once: the request itself may be what crashes upstream. Its head is copied only where a
    /// retry is of use: on a connection that was idle in the pool, or if there is another server.
    fn take(&mut self, server: &Upstream, is_pooled: bool) -> Option<Request<RequestBody>> {
        let (mut head, body) = self.request.take()?.into_parts();
        self.headers.address(&mut head, server);
        if !server.http2 && !body.is_end_stream() && body.size_hint().exact().is_none() {
            // hyper sends no body with a GET or HEAD whose head does not announce one.
            head.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let is_repeatable = (is_pooled || self.has_others)
            && !self.was_sent
            && head.method.is_idempotent()
            && body.is_end_stream();
        self.copy = is_repeatable.then(|| head.clone());
        Some(Request::from_parts(head, body))
    }

    /// Restores a request of which nothing was sent.
    fn put_back(&mut self, request: Request<RequestBody>) {
        self.request = Some(request);
    }

    /// Prepares a retry after the request was sent. Returns whether one is possible.
    fn repeat(&mut self) -> bool {
        self.was_sent = true;
        let copy = self.copy.take();
        self.request = copy.map(|head| Request::from_parts(head, RequestBody::default()));
        self.request.is_some()
    }
}

/// Why a server did not respond.
enum Failed {
    /// The request can be sent to another server: nothing of it was sent, or it is idempotent.
    Unsent(ProxyError),
    /// Upstream may have processed the request.
    Sent(ProxyError),
}

/// Why there was no response on a connection.
enum ExchangeError {
    /// Nothing of the request was sent. Contains the request.
    Unsent(Box<Request<RequestBody>>),
    /// Upstream closed the connection without a response.
    Closed,
    /// Upstream sent an invalid response.
    Malformed(hyper::Error),
    /// There was no response within `timeouts.response`.
    Timeout,
}

/// A response, and the connection of its body unless a separate task drives it.
type UpstreamResponse = (Response<Incoming>, Option<Box<Http1Connection>>);

impl Forward<'_> {
    /// Sends the request to upstream.
    pub(crate) async fn call(
        self,
        fields: RequestFields,
        request: Request<RequestBody>,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        if request.body().is_too_large() {
            return Err(ProxyError::BodyTooLarge);
        }
        let routes = self.proxy.routes.load_full();
        let route = routes.find(self.path).ok_or(ProxyError::NoRoute)?;
        let permit = self.proxy.in_flight.begin(self.origin.client);
        let permit = permit.ok_or(ProxyError::Overloaded)?;
        let (mut head, body) = request.into_parts();
        let upgrade = head.extensions.remove::<OnUpgrade>();
        head.extensions.clear();
        let headers = ProxyHeaders::new(self.origin, &self.proxy.config, fields, &mut head);
        let upgrade = upgrade.filter(|_| headers.wants_upgrade());
        let upload = body.upload();
        let request = Some(Request::from_parts(head, body));
        // Fix the order first: a server that fails during this request must not come up again.
        let servers: SmallVec<[_; MAX_SERVERS_TRIED]> =
            route.servers().take(MAX_SERVERS_TRIED).collect();
        let (copy, was_sent, has_others) = (None, false, servers.len() > 1);
        let mut attempt = Attempt { headers: &headers, request, copy, was_sent, has_others };
        let mut failed = ProxyError::UpstreamUnreachable;
        for server in servers {
            match self.send(server, &mut attempt, upload.as_ref()).await {
                Ok(received) => {
                    server.succeeded();
                    return self.client_response(server, received, permit, upgrade);
                }
                Err(Failed::Unsent(error)) => failed = error,
                Err(Failed::Sent(error)) => return Err(error),
            }
        }
        Err(failed)
    }

    async fn send(
        &self,
        server: &Upstream,
        attempt: &mut Attempt<'_>,
        upload: Option<&Upload>,
    ) -> Result<UpstreamResponse, Failed> {
        if server.http2 {
            return Box::pin(self.send_http2(server, attempt, upload)).await;
        }
        let pool = server.pool(self.worker);
        // An idle connection may be closed by upstream while the request is sent.
        let mut may_be_idle = true;
        loop {
            let idle = may_be_idle.then(|| pool.take()).flatten();
            may_be_idle = idle.is_some();
            let connection = match idle {
                Some(connection) => connection,
                // Rare, and its state is large; boxing keeps it out of the future of other requests.
                None => Box::pin(self.proxy.connector.http1(server)).await.map_err(|error| {
                    server.failed(error);
                    Failed::Unsent(ProxyError::UpstreamUnreachable)
                })?,
            };
            let request = attempt.take(server, may_be_idle);
            let request = request.ok_or(Failed::Sent(ProxyError::UpstreamFailed))?;
            match self.exchange_http1(connection, request, upload).await {
                Ok((response, connection)) => return Ok((response, Some(connection))),
                Err(ExchangeError::Unsent(request)) => {
                    attempt.put_back(*request);
                    if !may_be_idle {
                        return Err(Failed::Unsent(ProxyError::UpstreamUnreachable));
                    }
                }
                Err(ExchangeError::Closed) if attempt.repeat() => {
                    if !may_be_idle {
                        return Err(Failed::Unsent(broken(server, None)));
                    }
                    may_be_idle = false;
                }
                Err(error) => return Err(Failed::Sent(self.failed(server, error, upload))),
            }
        }
    }

    /// Sends a request and drives the connection until the response head arrives.
    async fn exchange_http1(
        &self,
        mut connection: Box<Http1Connection>,
        request: Request<RequestBody>,
        upload: Option<&Upload>,
    ) -> Result<(Response<Incoming>, Box<Http1Connection>), ExchangeError> {
        let response_timeout = self.proxy.config.timeouts.response;
        connection.timeout.set(Instant::now() + response_timeout);
        let mut sending = pin!(connection.send(request));
        let sent = poll_fn(|cx| {
            loop {
                if let Poll::Ready(sent) = sending.as_mut().poll(cx) {
                    return Poll::Ready(Some(sent));
                }
                connection.poll(cx);
                if let Poll::Ready(sent) = sending.as_mut().poll(cx) {
                    return Poll::Ready(Some(sent));
                }
                if connection.timeout.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                if !postpone(&mut connection.timeout, response_timeout, upload) {
                    return Poll::Ready(None);
                }
            }
        })
        .await;
        connection.timeout.stop();
        connection.meter.begin_response();
        Ok((received(sent)?, connection))
    }

    async fn send_http2(
        &self,
        server: &Upstream,
        attempt: &mut Attempt<'_>,
        upload: Option<&Upload>,
    ) -> Result<UpstreamResponse, Failed> {
        let pool = server.pool(self.worker);
        // Upstream may close it while the request is sent.
        let mut shared = pool.shared();
        loop {
            let was_shared = shared.is_some();
            let connection = match shared.take() {
                Some(connection) => connection,
                None => {
                    let connected = self.proxy.connector.http2(server).await;
                    let connection = connected.map_err(|error| {
                        server.failed(error);
                        Failed::Unsent(ProxyError::UpstreamUnreachable)
                    })?;
                    pool.share(&connection);
                    connection
                }
            };
            let request = attempt.take(server, false);
            let request = request.ok_or(Failed::Sent(ProxyError::UpstreamFailed))?;
            match self.exchange_http2(connection, request, upload).await {
                Ok(response) => return Ok((response, None)),
                Err(ExchangeError::Unsent(request)) => {
                    attempt.put_back(*request);
                    if !was_shared {
                        return Err(Failed::Unsent(ProxyError::UpstreamUnreachable));
                    }
                }
                Err(error) => return Err(Failed::Sent(self.failed(server, error, upload))),
            }
        }
    }

    async fn exchange_http2(
        &self,
        mut connection: http2::SendRequest<RequestBody>,
        request: Request<RequestBody>,
        upload: Option<&Upload>,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let response_timeout = self.proxy.config.timeouts.response;
        let mut timeout = IdleTimeout::after(response_timeout);
        let mut sending = pin!(connection.try_send_request(request));
        let sent = poll_fn(|cx| {
            loop {
                if let Poll::Ready(sent) = sending.as_mut().poll(cx) {
                    return Poll::Ready(Some(sent));
                }
                if timeout.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                if !postpone(&mut timeout, response_timeout, upload) {
                    return Poll::Ready(None);
                }
            }
        })
        .await;
        received(sent)
    }

    fn failed(
        &self,
        server: &Upstream,
        error: ExchangeError,
        upload: Option<&Upload>,
    ) -> ProxyError {
        let upload_error = upload.and_then(Upload::error);
        match error {
            ExchangeError::Malformed(error) if upload_error.is_none() => {
                server.failed(error);
                ProxyError::UpstreamFailed
            }
            ExchangeError::Timeout => {
                server.failed("no response within timeouts.response");
                ProxyError::UpstreamTimeout
            }
            _ => broken(server, upload_error),
        }
    }

    /// The response to the client.
    fn client_response(
        &self,
        server: &Upstream,
        (mut response, connection): UpstreamResponse,
        permit: InFlightPermit,
        upgrade: Option<OnUpgrade>,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(client), Some(connection)) = (upgrade, connection) else {
                return Err(broken(server, None));
            };
            let idle = self.proxy.config.timeouts.tunnel;
            return Ok(tunnel::open(client, response, *connection, idle, permit));
        }
        *response.version_mut() = Version::HTTP_11;
        let framing = proxy_headers::clean_response(response.headers_mut());
        let framing = framing.map_err(|ambiguity| {
            server.failed(ambiguity);
            ProxyError::UpstreamFailed
        })?;
        let pool = server.pool(self.worker);
        let connection = connection
            .map(|connection| PooledConnection::new(connection, pool.clone(), framing.kept_for));
        let (idle, on_broken) =
            (self.proxy.config.timeouts.idle, self.proxy.on_broken_body.clone());
        Ok(response.map(|incoming| {
            let body = UpstreamBody::new(incoming, connection, idle, on_broken, permit);
            ProxyBody::Upstream(Box::new(body))
        }))
    }
}

/// Extends the response deadline while upstream reads the request body or waits for the client.
/// Returns whether it did.
fn postpone(
    timeout: &mut IdleTimeout,
    response_timeout: Duration,
    upload: Option<&Upload>,
) -> bool {
    let Some(upload) = upload else { return false };
    let deadline = upload.moved_at() + response_timeout;
    timeout.set(deadline);
    deadline > Instant::now()
}

type Sent = Option<Result<Response<Incoming>, TrySendError<Request<RequestBody>>>>;

fn received(sent: Sent) -> Result<Response<Incoming>, ExchangeError> {
    match sent {
        Some(Ok(response)) => Ok(response),
        Some(Err(mut error)) => Err(match error.take_message() {
            Some(request) => ExchangeError::Unsent(Box::new(request)),
            None if error.error().is_parse() => ExchangeError::Malformed(error.into_error()),
            None => ExchangeError::Closed,
        }),
        None => Err(ExchangeError::Timeout),
    }
}

/// The error for an exchange that ended early, which the client may have caused.
fn broken(server: &Upstream, upload_error: Option<RequestBodyError>) -> ProxyError {
    match upload_error {
        Some(RequestBodyError::TooSlow) => ProxyError::BodyTimeout,
        Some(RequestBodyError::TooLarge) => ProxyError::BodyTooLarge,
        Some(RequestBodyError::Broken) => ProxyError::BadRequest("The request's body ended early."),
        None => {
            server.failed("connection closed before the response");
            ProxyError::UpstreamFailed
        }
    }
}
