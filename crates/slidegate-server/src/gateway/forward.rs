//! A request's way to upstream and back.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::upgrade::OnUpgrade;
use slidegate_tower::PathReading;
use tower_service::Service;

use super::body::{Timed, UpstreamBody};
use super::head::{self, Passage};
use super::pool::Lease;
use super::problem::Problem;
use super::progress::{Flaw, Progress};
use super::route::{Route, Routes};
use super::upstream::Upstream;
use super::{Proxy, tunnel};
use crate::config::HostRule;
use crate::listener::Accepted;

/// Takes what may pass to upstream: the inner service of the middleware.
#[derive(Clone)]
pub(crate) struct Forward {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) worker: usize,
    pub(crate) accepted: Accepted,
    pub(crate) paths: PathReading,
    pub(crate) trusted: bool,
    pub(crate) client: Option<IpAddr>,
}

/// How many servers are tried before it is said that there is none.
const MOST_SERVERS: usize = 3;

/// An upstream that says how long it keeps connections is believed, but for this much: a request
/// that leaves in the last moment would arrive too late.
const KEEP_ALIVE_SLACK: Duration = Duration::from_secs(1);
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

impl Service<Request<Incoming>> for Forward {
    type Response = Response<UpstreamBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let forward = self.clone();
        let (request, upgrade) = forward.prepare(request);
        let mut pending = Some(request);
        Box::pin(async move {
            let passed = forward.pass(&mut pending, upgrade).await;
            Ok(passed.unwrap_or_else(|problem| forward.own_up(problem)))
        })
    }
}

/// A request until it leaves. It is lent from step to step, because it is large to hand over.
type Pending = Option<Request<Timed>>;

/// An attempt that came to nothing.
enum Failed {
    /// Nothing of the request has left.
    Unsent,
    /// It may have had an effect.
    Sent(Problem),
}

impl Forward {
    async fn pass(
        &self,
        pending: &mut Pending,
        upgrade: Option<OnUpgrade>,
    ) -> Result<Response<UpstreamBody>, Problem> {
        let routes = self.proxy.routes.load_full();
        let route = self.route(&routes, pending).ok_or(Problem::NoRoute)?;
        let flight = self.proxy.flights.begin().ok_or(Problem::Crowded)?;
        let sending = pending.as_mut().and_then(|request| request.body_mut().progress());
        for server in route.servers().take(MOST_SERVERS) {
            self.address(pending, server);
            match self.send(server, pending).await {
                Ok((response, connection)) => {
                    server.succeeded();
                    self.proxy.observer.upstream_answered(response.status());
                    let observer = self.proxy.observer.clone();
                    let pool = server.pool(self.worker).clone();
                    let lease = Lease::new(pool, connection, sending, flight, observer);
                    return self.hand_back(response, lease, upgrade);
                }
                Err(Failed::Unsent) => {}
                Err(Failed::Sent(problem)) => return Err(problem),
            }
        }
        Err(Problem::Unreachable)
    }

    fn own_up(&self, problem: Problem) -> Response<UpstreamBody> {
        if let Some(error) = problem.upstream_error() {
            self.proxy.observer.upstream_failed(error);
        }
        problem.response()
    }

    fn route<'r>(&self, routes: &'r Routes, pending: &Pending) -> Option<&'r Route> {
        match self.paths.read(pending.as_ref()?.uri().path()) {
            // Of the service as a whole.
            path if path == "*" => routes.find("/"),
            path => routes.find(&path),
        }
    }

    /// The request as upstream is to have it but for the server's name, and the client's side of a
    /// change of protocol.
    fn prepare(&self, mut request: Request<Incoming>) -> (Request<Timed>, Option<OnUpgrade>) {
        let on_upgrade = request.extensions_mut().remove::<OnUpgrade>();
        let (mut head, body) = request.into_parts();
        head.extensions.clear();
        let protocol = head::wanted_upgrade(&head);
        let passage =
            Passage { accepted: self.accepted, trusted: self.trusted, client: self.client };
        head::pass_on(&mut head, &passage);
        let upgrade = on_upgrade.filter(|_| protocol.is_some());
        if let Some(protocol) = protocol {
            head::ask_upgrade(&mut head.headers, protocol);
        }
        let body = Timed::new(body, self.proxy.timeouts.idle);
        (Request::from_parts(head, body), upgrade)
    }

    /// Addresses the request to a server.
    fn address(&self, pending: &mut Pending, server: &Upstream) {
        let Some(request) = pending else { return };
        let named = request.headers().contains_key(header::HOST);
        if !named || self.proxy.host == HostRule::Upstream {
            let host = HeaderValue::from_str(server.authority.as_str());
            let host = host.expect("an authority is a good value");
            request.headers_mut().insert(header::HOST, host);
        }
        if server.http2 && request.version() != Version::HTTP_2 {
            head::for_http2(request, &server.scheme, &server.authority);
        }
    }

    async fn send(
        &self,
        server: &Upstream,
        pending: &mut Pending,
    ) -> Result<(Response<Incoming>, Option<http1::SendRequest<Timed>>), Failed> {
        if server.http2 {
            return Ok((Box::pin(self.send_http2(server, pending)).await?, None));
        }
        let (response, connection) = self.send_http1(server, pending).await?;
        Ok((response, Some(connection)))
    }

    async fn send_http1(
        &self,
        server: &Upstream,
        pending: &mut Pending,
    ) -> Result<(Response<Incoming>, http1::SendRequest<Timed>), Failed> {
        // Any that were idle may have been closed just now.
        while let Some(mut connection) = server.pool(self.worker).take() {
            if !connection.is_ready() && connection.ready().await.is_err() {
                continue;
            }
            match self.exchange_http1(server, &mut connection, pending).await {
                Err(Failed::Unsent) => {}
                outcome => return outcome.map(|response| (response, connection)),
            }
        }
        // Connecting is seldom and its state large: apart, no other request has to carry it.
        let connecting = Box::pin(self.proxy.connector.http1(server));
        let Ok(mut connection) = connecting.await else {
            server.failed();
            return Err(Failed::Unsent);
        };
        let outcome = self.exchange_http1(server, &mut connection, pending).await;
        outcome.map(|response| (response, connection))
    }

    async fn exchange_http1(
        &self,
        server: &Upstream,
        connection: &mut http1::SendRequest<Timed>,
        pending: &mut Pending,
    ) -> Result<Response<Incoming>, Failed> {
        let (request, progress) = leave(pending)?;
        let sending = connection.try_send_request(request);
        self.in_time(server, sending, progress, pending).await
    }

    async fn send_http2(
        &self,
        server: &Upstream,
        pending: &mut Pending,
    ) -> Result<Response<Incoming>, Failed> {
        let pool = server.pool(self.worker);
        // It may have been closed just now.
        if let Some(connection) = pool.shared() {
            match self.exchange_http2(server, connection, pending).await {
                Err(Failed::Unsent) => {}
                outcome => return outcome,
            }
        }
        let Ok(connection) = self.proxy.connector.http2(server).await else {
            server.failed();
            return Err(Failed::Unsent);
        };
        pool.share(&connection);
        self.exchange_http2(server, connection, pending).await
    }

    async fn exchange_http2(
        &self,
        server: &Upstream,
        mut connection: http2::SendRequest<Timed>,
        pending: &mut Pending,
    ) -> Result<Response<Incoming>, Failed> {
        let (request, progress) = leave(pending)?;
        let sending = connection.try_send_request(request);
        self.in_time(server, sending, progress, pending).await
    }

    /// The response, unless it is late. It is not as long as the request's body still moves.
    async fn in_time(
        &self,
        server: &Upstream,
        sending: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Timed>>>>,
        progress: Option<Arc<Progress>>,
        pending: &mut Pending,
    ) -> Result<Response<Incoming>, Failed> {
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
            Some(Ok(response)) => Ok(response),
            Some(Err(mut failed)) => match failed.take_message() {
                Some(unsent) => {
                    *pending = Some(unsent);
                    Err(Failed::Unsent)
                }
                None => {
                    let flaw = progress.and_then(|progress| progress.flaw());
                    Err(Failed::Sent(broken(server, flaw)))
                }
            },
            None => {
                server.failed();
                Err(Failed::Sent(Problem::Late))
            }
        }
    }

    /// Upstream's response as the client is to have it.
    fn hand_back(
        &self,
        mut response: Response<Incoming>,
        mut lease: Lease,
        upgrade: Option<OnUpgrade>,
    ) -> Result<Response<UpstreamBody>, Problem> {
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let client = upgrade.ok_or(Problem::Broken)?;
            return Ok(tunnel::open(client, response, &self.proxy.tunnels));
        }
        if let Some(good_for) = keep_alive(response.headers()) {
            lease.good_for(good_for.saturating_sub(KEEP_ALIVE_SLACK));
        }
        head::strip_hop_by_hop(response.headers_mut());
        let idle = self.proxy.timeouts.idle;
        Ok(response.map(|body| UpstreamBody::streaming(Timed::new(body, idle), lease)))
    }
}

/// The request as it leaves, and how far its body comes.
fn leave(pending: &mut Pending) -> Result<(Request<Timed>, Option<Arc<Progress>>), Failed> {
    let mut request = pending.take().ok_or(Failed::Sent(Problem::Broken))?;
    let progress = request.body_mut().progress();
    Ok((request, progress))
}

/// What to say of an exchange that broke off: it may be the client's doing.
fn broken(server: &Upstream, flaw: Option<Flaw>) -> Problem {
    match flaw {
        Some(Flaw::Stalled) => Problem::BodyLate,
        Some(Flaw::Broken) => Problem::BadRequest("The request's body broke off."),
        None => {
            server.failed();
            Problem::Broken
        }
    }
}

/// How long upstream says that it keeps an idle connection.
fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(KEEP_ALIVE)?.to_str().ok()?;
    let mut words = value.split(',').map(str::trim);
    let seconds = words.find_map(|word| word.strip_prefix("timeout="))?;
    seconds.parse().ok().map(Duration::from_secs)
}
