//! The proxying endpoint: what may pass goes to upstream, the rest is refused here.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Request, Response};
use slidegate::Clock;
use slidegate::limit::SystemClock;
use slidegate_proxy::{
    Accepted, Handler, ProxyBody, ProxyError, RequestBody, RequestOrigin, ReverseProxy,
    RouteConfig, UpstreamOutcome,
};
use slidegate_tower::{
    LimiterOutcome, ProblemDetails, RequestHead, ResolvedClient, SettlingBody, Unanswered,
};

use crate::config::GatewayConfig;
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, Observer, RequestOutcome, TracedRequest, Tracer};

/// The gateway, for all workers.
pub(crate) struct Gateway {
    live: Arc<LiveConfig>,
    proxy: Arc<ReverseProxy>,
    observer: Observer,
    tracer: Option<Arc<Tracer>>,
    clock: Arc<SystemClock>,
}

impl Gateway {
    /// Its answers are timed by the observer's clock.
    pub(crate) fn new(
        config: &GatewayConfig,
        live: Arc<LiveConfig>,
        observer: Observer,
        tracer: Option<Arc<Tracer>>,
        clock: Arc<SystemClock>,
    ) -> Self {
        let counting = observer.clone();
        let on_broken_body = move || counting.upstream_body_failed();
        let proxy = Arc::new(ReverseProxy::new(config.proxy.clone(), on_broken_body));
        Self { live, proxy, observer, tracer, clock }
    }

    /// Sends requests by other routes from now on.
    pub(crate) fn reroute(&self, routes: &[RouteConfig]) {
        self.proxy.reroute(routes);
    }

    /// What answers the requests of one worker's connections.
    pub(crate) fn worker(&self, index: usize) -> GatewayWorker {
        let Self { live, proxy, observer, tracer, clock } = self;
        GatewayWorker {
            live: live.clone(),
            proxy: proxy.clone(),
            observer: observer.for_worker(),
            tracer: tracer.clone(),
            clock: clock.clone(),
            index,
        }
    }
}

/// Answers the requests of one worker's connections.
pub(crate) struct GatewayWorker {
    live: Arc<LiveConfig>,
    proxy: Arc<ReverseProxy>,
    observer: Observer,
    tracer: Option<Arc<Tracer>>,
    clock: Arc<SystemClock>,
    index: usize,
}

impl Handler for GatewayWorker {
    type Body = SettlingBody<ProxyBody>;

    async fn answer(
        &self,
        accepted: Accepted,
        mut request: Request<RequestBody>,
    ) -> Response<SettlingBody<ProxyBody>> {
        let settings = self.live.settings();
        let began = self.clock.now();
        // Before anything is read from it, so that policies and upstream see the same.
        let inspected = self.proxy.inspect(&mut request, &settings.identity_headers);
        let (method, target) = (request.method().clone(), request.uri().path_and_query().cloned());
        let path = target.as_ref().map_or("", PathAndQuery::path);
        let readings = settings.paths.read(path);
        let client =
            settings.limiter.client_address.resolve_client(accepted.peer, request.headers());
        let traced = self.tracer.as_deref().map(|tracer| {
            let request = TracedRequest {
                method: &method,
                path,
                headers: request.headers(),
                version: request.version(),
                is_secure: accepted.secure,
                is_trusted: client.is_trusted,
                began: self.clock.wall(),
            };
            (tracer, tracer.begin(request))
        });
        let (mut decided, mut decision) = (None, None);
        let mut upstream = UpstreamOutcome::NotCalled;
        let response = match (inspected, settings.standing_for(request.uri())) {
            (Err(error), _) => error_response(error).map(SettlingBody::plain),
            (Ok(_), Some(standing)) => {
                let head = RequestHead::from(&request).client(client);
                // Boxed, as few requests are for it.
                let bearer = settings.bearer(request.headers(), client.client);
                let answer = standing.answer(&settings.limiter, &request, head, bearer);
                let response = Box::pin(answer).await;
                response.map(ProxyBody::full).map(SettlingBody::plain)
            }
            (Ok(fields), None) => {
                let head = RequestHead::from(&request).client(client).readings(&readings);
                let outcome = settings.decide(head).await;
                decided = Some(self.clock.now());
                match outcome {
                    LimiterOutcome::Refuse(response, denial) => {
                        decision = denial;
                        response.map(ProxyBody::full).map(SettlingBody::plain)
                    }
                    LimiterOutcome::Pass(mut passed) => {
                        let pending = settings.limiter.await_response(passed.as_ref());
                        if let Some(pending) = &pending {
                            pending.restrict(request.headers_mut());
                        }
                        if let Some((tracer, span)) = &traced {
                            tracer.propagate(span, request.headers_mut());
                        }
                        let (origin, path) = (origin(client, &accepted), readings.normal_form());
                        // Boxed, so that refusals do not carry its large state.
                        let forward =
                            self.proxy.forward(self.index, origin, &path, fields, request);
                        let response = Box::pin(forward).await;
                        upstream = outcome_of(&response);
                        let response = response.unwrap_or_else(error_response);
                        let response = settings.limiter.respond(pending, passed.as_mut(), response);
                        decision = passed;
                        response
                    }
                }
            }
        };
        let outcome = RequestOutcome {
            listener: ListenerKind::Gateway,
            method: &method,
            path,
            client: client.client,
            status: response.status(),
            decision: decision.as_ref(),
            upstream,
            began,
            asked: began,
            decided,
            ended: self.clock.now(),
        };
        self.observer.record(&outcome);
        if let Some((tracer, span)) = traced.filter(|(_, span)| span.is_recording()) {
            let route = self.proxy.route_prefix(&readings.normal_form());
            self.observer.end_span(tracer, *span, &outcome, route);
        }
        response
    }
}

fn origin(client: ResolvedClient, accepted: &Accepted) -> RequestOrigin<'_> {
    RequestOrigin { accepted, client: client.client, is_trusted: client.is_trusted }
}

fn outcome_of(forwarded: &Result<Response<ProxyBody>, ProxyError>) -> UpstreamOutcome {
    match forwarded {
        Ok(_) => UpstreamOutcome::Answered,
        Err(error) => error.upstream_error().map_or_else(Default::default, UpstreamOutcome::Failed),
    }
}

/// The gateway's own answer to a request that does not reach upstream, or that upstream does not
/// answer.
fn error_response(error: ProxyError) -> Response<ProxyBody> {
    let mut response = ProblemDetails::new(error.status(), error.detail()).response();
    response.headers_mut().extend(error.headers());
    if error.upstream_error().is_some() {
        response.extensions_mut().insert(Unanswered);
    }
    response.map(ProxyBody::full)
}
