//! The proxying endpoint: what may pass goes to upstream, the rest is refused here.

mod body;
mod connect;
mod error;
mod forward;
mod in_flight;
mod pool;
mod proxy_headers;
mod route;
mod tunnel;
mod upstream;
mod upstream_stream;
mod validate;

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response};
use slidegate::Clock;
use slidegate::limit::SystemClock;
use slidegate_tower::{LimiterOutcome, RequestHead};

use self::body::GatewayBody;
use self::connect::Connector;
use self::forward::Forward;
use self::in_flight::InFlightLimit;
use self::route::Routes;
use crate::config::{GatewayConfig, HeaderRules, HostRule, Timeouts};
use crate::live_config::LiveConfig;
use crate::net::{Accepted, Handler, RequestBody};
use crate::observe::{ListenerKind, Observer, RequestOutcome};

/// The gateway, for all workers.
pub(crate) struct Gateway {
    live: Arc<LiveConfig>,
    proxy: Arc<ReverseProxy>,
}

/// The part that knows nothing of limits.
pub(crate) struct ReverseProxy {
    routes: ArcSwap<Routes>,
    host: HostRule,
    headers: HeaderRules,
    upgrades: Vec<HeaderValue>,
    timeouts: Timeouts,
    in_flight: InFlightLimit,
    connector: Connector,
    observer: Observer,
    clock: Arc<SystemClock>,
    workers: usize,
    most_idle: usize,
}

impl Gateway {
    /// Its answers are timed by the observer's clock.
    pub(crate) fn new(
        config: &GatewayConfig,
        live: Arc<LiveConfig>,
        observer: Observer,
        clock: Arc<SystemClock>,
    ) -> Self {
        let (workers, most_idle) = (config.workers, config.bounds.idle_upstream);
        let routes = Routes::new(&config.routes, workers, most_idle, None);
        let proxy = ReverseProxy {
            routes: ArcSwap::from_pointee(routes),
            host: config.host,
            headers: config.headers,
            upgrades: config.upgrades.clone(),
            timeouts: config.timeouts.clone(),
            in_flight: InFlightLimit::new(&config.bounds),
            connector: Connector::new(config.timeouts.connect),
            observer,
            clock,
            workers,
            most_idle,
        };
        Self { live, proxy: Arc::new(proxy) }
    }

    /// Sends requests by other routes from now on.
    pub(crate) fn reroute(&self, config: &GatewayConfig) {
        let before = self.proxy.routes.load();
        let (workers, most_idle) = (self.proxy.workers, self.proxy.most_idle);
        let routes = Routes::new(&config.routes, workers, most_idle, Some(&before));
        self.proxy.routes.store(Arc::new(routes));
    }

    /// What answers the requests of one worker's connections.
    pub(crate) fn worker(&self, index: usize) -> GatewayWorker {
        GatewayWorker { live: self.live.clone(), proxy: self.proxy.clone(), index }
    }
}

/// Answers the requests of one worker's connections.
pub(crate) struct GatewayWorker {
    live: Arc<LiveConfig>,
    proxy: Arc<ReverseProxy>,
    index: usize,
}

impl Handler for GatewayWorker {
    type Body = GatewayBody;

    async fn answer(
        &self,
        accepted: Accepted,
        mut request: Request<RequestBody>,
    ) -> Response<GatewayBody> {
        let (proxy, settings) = (&*self.proxy, self.live.settings());
        let began = proxy.clock.now();
        // Before anything is read from them, so that policies and upstream see the same.
        validate::clean(request.headers_mut(), proxy.headers, &settings.identity_headers);
        let (method, path) = (request.method().clone(), request.uri().path_and_query().cloned());
        let client = settings.client_address.resolve_client(accepted.peer, request.headers());
        let mut decided = None;
        let response = match validate::validate(&request, proxy.headers) {
            Some(problem) => problem.response(),
            None => {
                let head = RequestHead::from(&request).client(client);
                let outcome = settings.limiter.decide(head).await;
                decided = Some(proxy.clock.now());
                match outcome {
                    LimiterOutcome::Refuse(response) => response.map(GatewayBody::full),
                    LimiterOutcome::Pass(decision) => {
                        let forward = Forward {
                            proxy,
                            worker: self.index,
                            is_secure: accepted.secure,
                            paths: settings.paths,
                            client,
                        };
                        // Boxed, so that refusals do not carry its large state.
                        let mut response = Box::pin(forward.call(request)).await;
                        settings.limiter.annotate(decision, &mut response);
                        response
                    }
                }
            }
        };
        proxy.observer.record(&RequestOutcome {
            listener: ListenerKind::Gateway,
            method: &method,
            path: path.as_ref().map_or("", PathAndQuery::path),
            client: client.client,
            status: response.status(),
            decision: response.extensions().get(),
            upstream: response.extensions().get().copied().unwrap_or_default(),
            began,
            asked: began,
            decided,
            ended: proxy.clock.now(),
        });
        response
    }
}
