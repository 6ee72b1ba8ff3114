//! Envoy's rate limit service v3 and its `ext_authz`, over gRPC.

mod authorization;
mod descriptors;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode};
use slidegate::limit::SystemClock;
use slidegate::{Clock, Decision, Timestamp};
use tonic::Status;
use tonic::service::Routes;

use self::proto::envoy::config::core::v3::HeaderValue;
use self::proto::envoy::service::auth::v3::authorization_server::AuthorizationServer;
use self::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use crate::config::Secret;
use crate::endpoint::token::{RequiredToken, TokenError, bearer, peer};
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, Observer, RequestOutcome, UpstreamOutcome};

/// The part of Envoy's API that is spoken here, made of the files in `proto`.
#[allow(unreachable_pub, missing_docs, clippy::all, reason = "generated")]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/envoy.rs"));

    pub(super) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin"));
}

/// The most bytes of a message: a hundred descriptors with long values, or a request's headers.
const MAX_BYTES: usize = 256 * 1024;

/// Decides what Envoy asks about. Clones are the same service.
#[derive(Clone)]
pub(crate) struct EnvoyService {
    pub(crate) live: Arc<LiveConfig>,
    pub(crate) observer: Observer,
    pub(crate) clock: Arc<SystemClock>,
}

/// Both services, with health and reflection. Callers are trusted, with the token if there is one.
pub(crate) async fn router(service: EnvoyService, token: Option<&Secret>) -> Router {
    let failures = service.observer.token_failures();
    let token = token.map(|token| RequiredToken::new(token, ListenerKind::Rls, failures));
    let limits = RateLimitServiceServer::new(service.clone()).max_decoding_message_size(MAX_BYTES);
    let checks = AuthorizationServer::new(service).max_decoding_message_size(MAX_BYTES);
    let (health, health_server) = tonic_health::server::health_reporter();
    health.set_serving::<RateLimitServiceServer<EnvoyService>>().await;
    health.set_serving::<AuthorizationServer<EnvoyService>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("descriptors that the build has made");
    let routes = Routes::new(limits).add_service(checks).add_service(health_server);
    let router = routes.add_service(reflection).prepare().into_axum_router();
    match token {
        Some(token) => router.layer(from_fn_with_state(token, require_token)),
        None => router,
    }
}

/// Lets calls pass that present the token, and those for health.
async fn require_token(
    State(token): State<RequiredToken>,
    request: Request,
    next: Next,
) -> Response {
    let is_health = request.uri().path().starts_with("/grpc.health.v1.Health/");
    if is_health {
        return next.run(request).await;
    }
    match token.check(bearer(request.headers()), peer(&request)) {
        Ok(()) => next.run(request).await,
        Err(TokenError::TooMany { .. }) => {
            Status::resource_exhausted("too many wrong tokens from this address").into_http()
        }
        Err(TokenError::Missing | TokenError::Wrong) => {
            let expected =
                "expected the token of this service in the metadata authorization: Bearer TOKEN";
            Status::unauthenticated(expected).into_http()
        }
    }
}

/// A request that was decided, as far as it is known.
struct Asked<'a> {
    began: Timestamp,
    method: &'a Method,
    path: &'a str,
    client: Option<IpAddr>,
}

impl EnvoyService {
    /// Reports a decided request to the observer.
    fn record(&self, asked: &Asked<'_>, status: StatusCode, decision: Option<&Decision>) {
        let now = self.clock.now();
        self.observer.record(&RequestOutcome {
            listener: ListenerKind::Rls,
            method: asked.method,
            path: asked.path,
            client: asked.client,
            status,
            decision,
            upstream: UpstreamOutcome::NotCalled,
            began: asked.began,
            asked: asked.began,
            decided: (status != StatusCode::BAD_REQUEST).then_some(now),
            ended: now,
        });
    }
}

/// Headers for Envoy to add.
fn header_values(headers: &HeaderMap) -> impl Iterator<Item = HeaderValue> {
    headers.iter().map(|(name, value)| HeaderValue {
        key: name.as_str().to_owned(),
        value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        raw_value: Vec::new(),
    })
}
