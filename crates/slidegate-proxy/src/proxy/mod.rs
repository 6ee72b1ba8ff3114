//! Forwards requests to upstream.

mod body;
mod connect;
mod error;
mod forward;
mod in_flight;
mod pool;
mod proxy_headers;
mod route;
#[cfg(test)]
mod tests;
mod tunnel;
mod upstream;
mod upstream_stream;
mod validate;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderName, Request, Response};

pub use self::body::{ProxyBody, UpstreamBody, UpstreamBodyError};
use self::connect::Connector;
pub use self::error::{ProxyError, UpstreamError, UpstreamOutcome};
use self::forward::Forward;
use self::in_flight::InFlightLimit;
pub use self::proxy_headers::RequestFields;
use self::route::Routes;
use crate::net::{Accepted, RequestBody};
use crate::settings::{ProxyConfig, RouteConfig};

/// Forwards requests, for all workers.
///
/// A handler inspects a request, decides about it, and forwards it:
///
/// ```
/// use std::sync::Arc;
///
/// use http::{Request, Response, StatusCode};
/// use slidegate::policy::PathReading;
/// use slidegate_proxy::{
///     Accepted, Bounds, ForwardingHeader, Handler, HeaderRules, HostRule, ProxyBody, ProxyConfig,
///     ProxyError, RequestBody, RequestOrigin, ReverseProxy, RouteConfig, Timeouts,
/// };
///
/// struct Gateway {
///     proxy: Arc<ReverseProxy>,
///     worker: usize,
/// }
///
/// impl Handler for Gateway {
///     type Body = ProxyBody;
///
///     async fn answer(
///         &self,
///         accepted: Accepted,
///         mut request: Request<RequestBody>,
///     ) -> Response<ProxyBody> {
///         let forwarded = async {
///             let fields = self.proxy.inspect(&mut request, &[])?;
///             // Here it would be decided whether the request may pass.
///             let origin =
///                 RequestOrigin { accepted: &accepted, client: accepted.peer, is_trusted: false };
///             let target = request.uri().clone();
///             let readings = PathReading::default().read(target.path());
///             let path = readings.normal_form();
///             self.proxy.forward(self.worker, origin, &path, fields, request).await
///         };
///         forwarded.await.unwrap_or_else(|error: ProxyError| {
///             let mut response = Response::new(ProxyBody::full(format!("{error:?}").into()));
///             *response.status_mut() = StatusCode::BAD_GATEWAY;
///             response
///         })
///     }
/// }
///
/// let api = RouteConfig {
///     prefix: "/".to_owned(),
///     servers: vec!["http://127.0.0.1:3000".parse()?],
///     http2: false,
/// };
/// let config = ProxyConfig {
///     routes: vec![api],
///     host: HostRule::Keep,
///     headers: HeaderRules::default(),
///     forwarding: ForwardingHeader::DEFAULT.to_vec(),
///     upgrades: Vec::new(),
///     workers: 1,
///     timeouts: Timeouts::default(),
///     bounds: Bounds::default(),
/// };
/// let proxy = Arc::new(ReverseProxy::new(config, || eprintln!("a response ended early")));
/// let gateway = Gateway { proxy, worker: 0 };
/// # Ok::<(), http::uri::InvalidUri>(())
/// ```
///
/// [`serve`](crate::serve) calls the handler.
pub struct ReverseProxy {
    config: ProxyConfig,
    routes: ArcSwap<Routes>,
    in_flight: InFlightLimit,
    connector: Connector,
    on_broken_body: Arc<dyn Fn() + Send + Sync>,
}

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestOrigin<'a> {
    /// The connection.
    pub accepted: &'a Accepted,
    /// The client that sent the request, possibly through proxies.
    pub client: Option<IpAddr>,
    /// Whether the peer is a trusted proxy, so that its forwarding headers are forwarded.
    pub is_trusted: bool,
}

impl ReverseProxy {
    /// A proxy that calls `on_broken_body` whenever the body of a response ends early.
    pub fn new(config: ProxyConfig, on_broken_body: impl Fn() + Send + Sync + 'static) -> Self {
        let routes = Routes::new(&config, None);
        Self {
            routes: ArcSwap::from_pointee(routes),
            in_flight: InFlightLimit::new(&config.bounds),
            connector: Connector::new(config.timeouts.connect),
            on_broken_body: Arc::new(on_broken_body),
            config,
        }
    }

    /// Replaces the routes. Servers that remain keep their connections.
    pub fn reroute(&self, routes: &[RouteConfig]) {
        let before = self.routes.load();
        let config = ProxyConfig { routes: routes.to_vec(), ..self.config.clone() };
        self.routes.store(Arc::new(Routes::new(&config, Some(&before))));
    }

    /// Checks that a request is unambiguous, and returns what [`forward`](Self::forward) acts on. Call
    /// this before reading the headers, so that the handler and upstream see the same: it removes
    /// headers that upstream could mistake for others, and prevents the client from removing forwarding
    /// and `identity` headers through `Connection`.
    pub fn inspect<B>(
        &self,
        request: &mut Request<B>,
        identity: &[HeaderName],
    ) -> Result<RequestFields, ProxyError> {
        validate::inspect(request, self.config.headers, identity)
    }

    /// The prefix of the route that a path in its normal form has, as configured but for a slash at its
    /// end.
    pub fn route_prefix(&self, path: &str) -> Option<String> {
        self.routes.load().find(path).map(|route| route.prefix().to_owned())
    }

    /// Forwards a request that a worker has received. The path says which route it takes: that of the
    /// request in its [normal form](slidegate::policy::PathReadings::normal_form).
    pub async fn forward(
        &self,
        worker: usize,
        origin: RequestOrigin<'_>,
        path: &str,
        fields: RequestFields,
        request: Request<RequestBody>,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        Forward { proxy: self, worker, path, origin }.call(fields, request).await
    }
}

impl fmt::Debug for ReverseProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReverseProxy").field("config", &self.config).finish_non_exhaustive()
    }
}
