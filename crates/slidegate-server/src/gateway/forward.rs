//! A request's way to upstream and back.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use slidegate_tower::{PathReading, ResolvedClient};
use smallvec::SmallVec;

use super::body::{Timed, UpstreamBody};
use super::error::GatewayError;
use super::head;
use super::http1::{Exchange, ExchangeError, Http1Connection, IncomingBody};
use super::pool::PooledConnection;
use super::progress::{BodyProgress, UploadError};
use super::proxy_headers::{self, ProxyHeaders};
use super::route::{Route, Routes};
use super::upstream::Upstream;
use super::{ReverseProxy, tunnel};
use crate::listener::{OnUpgrade, RequestBody};
use crate::observe::UpstreamOutcome;

/// Takes what may pass to upstream.
#[derive(Clone, Copy)]
pub(crate) struct Forward<'p> {
    pub(crate) proxy: &'p ReverseProxy,
    pub(crate) worker: usize,
    pub(crate) is_secure: bool,
    pub(crate) paths: PathReading,
    pub(crate) client: ResolvedClient,
}

/// The most servers tried for one request.
const MOST_SERVERS: usize = 3;

/// Subtracted from the keep-alive timeout that upstream announces: a request
/// that leaves in the last moment would arrive too late.
const KEEP_ALIVE_SLACK: Duration = Duration::from_secs(1);

const LATE: &str = "no response within timeouts.response";

/// A request until it leaves. It is lent from step to step, because it is large to hand over.
struct ForwardAttempt {
    request: Option<Request<Timed>>,
    proxy_headers: ProxyHeaders,
    /// Whether it was sent on a connection that closed without a response.
    was_sent: bool,
}

impl ForwardAttempt {
    /// Whether the request can be retried if upstream closes without a response: it may have done
    /// so before it read the request, and if not, no harm is done. But only once: it may be the
    /// request that breaks upstream.
    fn is_repeatable(&self) -> bool {
        let Some(request) = &self.request else { return false };
        !self.was_sent && request.method().is_idempotent() && request.body().is_end_stream()
    }
}

/// An attempt that came to nothing.
enum Failed {
    /// The request can be sent to another server: nothing of it has left, or it does no harm twice.
    Unsent(GatewayError),
    /// It may have had an effect.
    Sent(GatewayError),
}

impl Forward<'_> {
    /// Sends the request to upstream. What fails is answered by the gateway itself.
    pub(crate) async fn call(self, request: Request<RequestBody>) -> Response<UpstreamBody> {
        let (request, proxy_headers, upgrade) = self.prepare(request);
        let mut pending = ForwardAttempt { request: Some(request), proxy_headers, was_sent: false };
        let passed = self.pass(&mut pending, upgrade).await;
        passed.unwrap_or_else(|problem| self.error_response(problem))
    }

    async fn pass(
        &self,
        pending: &mut ForwardAttempt,
        upgrade: Option<OnUpgrade>,
    ) -> Result<Response<UpstreamBody>, GatewayError> {
        let routes = self.proxy.routes.load_full();
        let route = self.route(&routes, pending).ok_or(GatewayError::NoRoute)?;
        let permit = self.proxy.in_flight.begin().ok_or(GatewayError::Crowded)?;
        let mut problem = GatewayError::Unreachable;
        // In the order of now, lest one that fails meanwhile comes up again as the last resort.
        let servers: SmallVec<[_; MOST_SERVERS]> = route.servers().take(MOST_SERVERS).collect();
        for server in servers {
            match self.send(server, pending).await {
                Ok(response) => {
                    server.succeeded();
                    let observer = self.proxy.observer.clone();
                    let pooled =
                        PooledConnection::new(server.pool(self.worker).clone(), permit, observer);
                    let mut response = self.client_response(response, pooled, upgrade)?;
                    response.extensions_mut().insert(UpstreamOutcome::Answered);
                    return Ok(response);
                }
                Err(Failed::Unsent(why)) => problem = why,
                Err(Failed::Sent(problem)) => return Err(problem),
            }
        }
        Err(problem)
    }

    fn error_response(&self, problem: GatewayError) -> Response<UpstreamBody> {
        let mut response = problem.response();
        if let Some(error) = problem.upstream_error() {
            response.extensions_mut().insert(UpstreamOutcome::Failed(error));
        }
        response
    }

    fn route<'r>(&self, routes: &'r Routes, pending: &ForwardAttempt) -> Option<&'r Route> {
        match self.paths.read(pending.request.as_ref()?.uri().path()) {
            // Of the service as a whole.
            path if path == "*" => routes.find("/"),
            path => routes.find(&path),
        }
    }

    /// The request, what upstream is to know of it, and the client's side of a change of protocol.
    fn prepare(
        &self,
        request: Request<RequestBody>,
    ) -> (Request<Timed>, ProxyHeaders, Option<OnUpgrade>) {
        let (mut head, body) = request.into_parts();
        let mut on_upgrade = head.extensions.remove::<OnUpgrade>();
        head.extensions.clear();
        let upgrade = on_upgrade.as_ref().and_then(|_| head::wanted_upgrade(&head));
        on_upgrade = on_upgrade.filter(|_| upgrade.is_some());
        let (client, is_secure) = (self.client, self.is_secure);
        let proxy_headers = ProxyHeaders { client, is_secure, host: self.proxy.host, upgrade };
        let body = Timed::new(body, self.proxy.timeouts.idle);
        (Request::from_parts(head, body), proxy_headers, on_upgrade)
    }

    async fn send(
        &self,
        server: &Upstream,
        pending: &mut ForwardAttempt,
    ) -> Result<Response<Coming>, Failed> {
        if server.http2 {
            let response = Box::pin(self.send_http2(server, pending)).await?;
            return Ok(response.map(Coming::Http2));
        }
        Ok(self.send_http1(server, pending).await?.map(Coming::Http1))
    }

    async fn send_http1(
        &self,
        server: &Upstream,
        pending: &mut ForwardAttempt,
    ) -> Result<Response<IncomingBody>, Failed> {
        let pool = server.pool(self.worker);
        // Any that were idle may have been closed just now.
        let mut may_be_idle = true;
        loop {
            let idle = may_be_idle.then(|| pool.take(pending.is_repeatable())).flatten();
            may_be_idle = idle.is_some();
            let connection = match idle {
                Some(connection) => connection,
                // It is seldom and its state large: apart, no other request has to carry it.
                None => Box::pin(self.connect_http1(server)).await?,
            };
            match self.exchange_http1(server, connection, pending).await {
                Err(ExchangeError::Unsent) if may_be_idle => {}
                Err(ExchangeError::Silent) if may_be_idle && pending.is_repeatable() => {
                    pending.was_sent = true;
                    may_be_idle = false;
                }
                outcome => return outcome.map_err(|failure| failed(server, failure, pending)),
            }
        }
    }

    async fn connect_http1(&self, server: &Upstream) -> Result<Box<Http1Connection>, Failed> {
        let connected = self.proxy.connector.http1(server).await;
        connected.map_err(|error| {
            server.failed(error);
            Failed::Unsent(GatewayError::Unreachable)
        })
    }

    async fn exchange_http1(
        &self,
        server: &Upstream,
        connection: Box<Http1Connection>,
        pending: &mut ForwardAttempt,
    ) -> Result<Response<IncomingBody>, ExchangeError> {
        let (patience, idle) = (self.proxy.timeouts.response, self.proxy.timeouts.idle);
        let ForwardAttempt { request, proxy_headers, .. } = pending;
        let begun =
            Exchange::begin(connection, request, proxy_headers, &server.authority, patience).await;
        begun?.response(patience, idle).await
    }

    async fn send_http2(
        &self,
        server: &Upstream,
        pending: &mut ForwardAttempt,
    ) -> Result<Response<Incoming>, Failed> {
        let pool = server.pool(self.worker);
        // It may have been closed just now.
        if let Some(connection) = pool.shared() {
            match self.exchange_http2(server, connection, pending).await {
                Err(Failed::Unsent(_)) => {}
                outcome => return outcome,
            }
        }
        let connection = self.proxy.connector.http2(server).await.map_err(|error| {
            server.failed(error);
            Failed::Unsent(GatewayError::Unreachable)
        })?;
        pool.share(&connection);
        self.exchange_http2(server, connection, pending).await
    }

    async fn exchange_http2(
        &self,
        server: &Upstream,
        mut connection: http2::SendRequest<Timed>,
        pending: &mut ForwardAttempt,
    ) -> Result<Response<Incoming>, Failed> {
        let mut request = pending.request.take().ok_or(Failed::Sent(GatewayError::Broken))?;
        let progress = request.body_mut().progress();
        let (scheme, authority) = (&server.scheme, &server.authority);
        let addressed =
            proxy_headers::for_http2(&request, &pending.proxy_headers, scheme, authority);
        let (head, body) = request.into_parts();
        let sending = connection.try_send_request(addressed.map(|()| body));
        match self.in_time(server, sending, progress).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(unsent)) => {
                pending.request = Some(Request::from_parts(head, unsent));
                Err(Failed::Unsent(GatewayError::Unreachable))
            }
            Err(problem) => Err(Failed::Sent(problem)),
        }
    }

    /// The response, or the body of the request if nothing of it has left, unless it is late. It is
    /// not as long as the request's body still moves.
    async fn in_time(
        &self,
        server: &Upstream,
        sending: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Timed>>>>,
        progress: Option<Arc<BodyProgress>>,
    ) -> Result<Result<Response<Incoming>, Timed>, GatewayError> {
        let patience = self.proxy.timeouts.response;
        let outcome = match &progress {
            None => tokio::time::timeout(patience, sending).await.ok(),
            Some(progress) => tokio::select! {
                biased;
                outcome = sending => Some(outcome),
                () = progress.ceased_for(patience) => None,
            },
        };
        match outcome {
            Some(Ok(response)) => Ok(Ok(response)),
            Some(Err(mut failed)) => match failed.take_message() {
                Some(unsent) => Ok(Err(unsent.into_body())),
                None => Err(broken(server, progress.and_then(|progress| progress.flaw()))),
            },
            None => {
                server.failed(LATE);
                Err(GatewayError::Late)
            }
        }
    }

    /// Upstream's response as the client is to have it.
    fn client_response(
        &self,
        mut response: Response<Coming>,
        mut pooled: PooledConnection,
        upgrade: Option<OnUpgrade>,
    ) -> Result<Response<UpstreamBody>, GatewayError> {
        *response.version_mut() = Version::HTTP_11;
        if matches!(response.body(), Coming::Http2(_)) {
            // HTTP/2 has no other hop-by-hop field; with HTTP/1.1 none gets as far as here.
            response.headers_mut().remove(header::PROXY_AUTHENTICATE);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let client = upgrade.ok_or(GatewayError::Broken)?;
            let (head, coming) = response.into_parts();
            let Coming::Http1(body) = coming else { return Err(GatewayError::Broken) };
            let connection = body.into_upgraded().ok_or(GatewayError::Broken)?;
            return Ok(tunnel::open(client, head, *connection, &self.proxy.tunnels));
        }
        Ok(response.map(|coming| match coming {
            Coming::Http1(body) => {
                if let Some(kept_for) = body.kept_for() {
                    pooled.good_for(kept_for.saturating_sub(KEEP_ALIVE_SLACK));
                }
                UpstreamBody::http1(body, pooled)
            }
            Coming::Http2(body) => {
                UpstreamBody::http2(Timed::new(body, self.proxy.timeouts.idle), pooled)
            }
        }))
    }
}

/// A body that comes from upstream.
enum Coming {
    Http1(IncomingBody),
    Http2(Incoming),
}

/// What a failure over HTTP/1.1 means for the request.
fn failed(server: &Upstream, failure: ExchangeError, pending: &mut ForwardAttempt) -> Failed {
    match failure {
        ExchangeError::Unsent => Failed::Unsent(GatewayError::Unreachable),
        ExchangeError::Silent if pending.is_repeatable() => {
            pending.was_sent = true;
            Failed::Unsent(broken(server, None))
        }
        ExchangeError::Silent | ExchangeError::Broken => Failed::Sent(broken(server, None)),
        ExchangeError::Body(flaw) => Failed::Sent(broken(server, Some(flaw))),
        ExchangeError::Late => {
            server.failed(LATE);
            Failed::Sent(GatewayError::Late)
        }
    }
}

/// What to say of an exchange that broke off: it may be the client's doing.
fn broken(server: &Upstream, flaw: Option<UploadError>) -> GatewayError {
    match flaw {
        Some(UploadError::Stalled) => GatewayError::BodyLate,
        Some(UploadError::Broken) => GatewayError::BadRequest("The request's body ended early."),
        None => {
            server.failed("it closed the connection before it answered");
            GatewayError::Broken
        }
    }
}
