//! The operator's pages, asked for as probes and scrapers do.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use slidegate::limit::SystemClock;
use slidegate::{Clock, Facts, MemoryStore, OnStoreError, Policies, Policy, Quota, Scope};
use slidegate_redis::{LeasedStore, RedisStore, ResilientStore};
use slidegate_tower::{AddressSource, ClientAddress, Responder};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::now::NowService;
use super::{Operator, RecentLists, now, router};
use crate::config::{LimiterConfig, LogConfig, LogFormat, Secret};
use crate::live_config::LiveConfig;
use crate::observe::Observer;
use crate::shared::Heartbeats;
use crate::shared::{OverrideService, Persistence};
use crate::store::AnyStore;

const LOG: LogConfig = LogConfig { format: LogFormat::Json, level: String::new(), access: false };

fn endpoint(live: Arc<LiveConfig>) -> (Router, CancellationToken) {
    endpoint_with(live, None)
}

fn endpoint_with(live: Arc<LiveConfig>, token: Option<&Secret>) -> (Router, CancellationToken) {
    let (draining, gate) = (CancellationToken::new(), live.gate().clone());
    let observer = Observer::new(gate.clone(), &LOG, None, Arc::new(SystemClock::new()));
    let overrides = Arc::new(OverrideService::open(gate, Persistence::Process).unwrap());
    let recent = RecentLists::default();
    let operator = Operator { live, overrides, observer: observer.clone(), recent };
    let clock = Arc::new(SystemClock::new());
    let heartbeats = Arc::new(Heartbeats::new(clock.wall()));
    let now = Arc::new(NowService::new(observer, heartbeats, clock));
    (router(operator, draining.clone(), token, now::router(now)), draining)
}

fn memory_endpoint() -> (Router, CancellationToken) {
    endpoint(live(OnStoreError::Deny, MemoryStore::new()))
}

fn live(action: OnStoreError, store: impl Into<AnyStore>) -> Arc<LiveConfig> {
    let address = ClientAddress::new(AddressSource::Peer, []);
    let limiter = LimiterConfig::new(policies(action), Responder::new(), address);
    LiveConfig::of(limiter, store)
}

/// One shared policy that says this to a store in trouble, and others that do not care.
fn policies(action: OnStoreError) -> Policies {
    let policy = |name| Policy::new(name).quota(Quota::per_minute(100));
    Policies::builder()
        .policy(policy("api").on_store_error(action))
        .policy(policy("flood").scope(Scope::Local).on_store_error(OnStoreError::Deny))
        .policy(policy("trial").shadow().on_store_error(OnStoreError::Deny))
        .build()
        .unwrap()
}

async fn ask(router: &Router, method: Method, path: &str) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    router.clone().call(request).await.unwrap()
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn readiness(router: &Router) -> (StatusCode, Value) {
    let response = ask(router, Method::GET, "/readyz").await;
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    (response.status(), serde_json::from_str(&text(response).await).unwrap())
}

#[tokio::test]
async fn admin_pages_exist_and_other_paths_are_problems() {
    let (router, _closing) = memory_endpoint();
    let metrics = ask(&router, Method::GET, "/metrics").await;
    let media_type = metrics.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    assert!(media_type.starts_with("text/plain; version=0.0.4"), "{media_type}");
    assert!(text(metrics).await.contains("\n# TYPE slidegate_requests_total counter\n"));
    assert_eq!(text(ask(&router, Method::GET, "/healthz").await).await, "ok\n");
    assert!(text(ask(&router, Method::GET, "/").await).await.contains("/readyz"));
    assert_eq!(ask(&router, Method::HEAD, "/healthz").await.status(), StatusCode::OK);
    for (method, path, status) in [
        (Method::GET, "/nowhere", StatusCode::NOT_FOUND),
        (Method::POST, "/metrics", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let response = ask(&router, method, path).await;
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let problem: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(problem["status"], status.as_u16());
    }
}

#[tokio::test]
async fn metrics_need_the_token_and_probes_do_not() {
    let live = live(OnStoreError::Deny, MemoryStore::new());
    let (router, _closing) = endpoint_with(live, Some(&Secret::new("hunter2")));
    for (path, shown, status) in [
        ("/metrics", Some("Bearer hunter2"), StatusCode::OK),
        ("/metrics", Some("bearer  hunter2"), StatusCode::OK),
        ("/metrics", None, StatusCode::UNAUTHORIZED),
        ("/metrics", Some(""), StatusCode::UNAUTHORIZED),
        ("/metrics", Some("Bearer "), StatusCode::UNAUTHORIZED),
        ("/metrics", Some("Bearer hunter"), StatusCode::UNAUTHORIZED),
        ("/metrics", Some("Bearer hunter22"), StatusCode::UNAUTHORIZED),
        ("/metrics", Some("hunter2"), StatusCode::UNAUTHORIZED),
        ("/metrics", Some("Basic hunter2"), StatusCode::UNAUTHORIZED),
        ("/v1/now", Some("Bearer hunter2"), StatusCode::OK),
        ("/v1/now", None, StatusCode::UNAUTHORIZED),
        ("/", None, StatusCode::OK),
        ("/healthz", None, StatusCode::OK),
        ("/readyz", None, StatusCode::OK),
        ("/nowhere", None, StatusCode::NOT_FOUND),
    ] {
        let request = Request::builder().uri(path);
        let request = shown.iter().fold(request, |r, s| r.header(header::AUTHORIZATION, *s));
        let response = router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{path} with {shown:?}");
        if status == StatusCode::UNAUTHORIZED {
            assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
            let problem: Value = serde_json::from_str(&text(response).await).unwrap();
            assert_eq!(problem["status"], 401);
        }
    }
}

#[tokio::test]
async fn a_server_on_memory_is_ready_until_it_drains() {
    let (router, closing) = memory_endpoint();
    let (status, said) = readiness(&router).await;
    assert_eq!(status, StatusCode::OK);
    let expected =
        serde_json::json!({"ready": true, "degraded": false, "draining": false, "store": "memory"});
    assert_eq!(said, expected);
    closing.cancel();
    let (status, said) = readiness(&router).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((&said["ready"], &said["draining"]), (&Value::from(false), &Value::from(true)));
    assert_eq!(ask(&router, Method::GET, "/healthz").await.status(), StatusCode::OK);
}

/// A gate on a Redis that is not there.
fn forsaken(action: OnStoreError) -> Arc<LiveConfig> {
    let redis = RedisStore::builder("redis://127.0.0.1:1").build().unwrap();
    let store = ResilientStore::builder(redis).opens_after(1).build();
    live(action, LeasedStore::new(store))
}

#[tokio::test]
async fn a_failing_redis_is_reported_and_counts_only_where_a_policy_needs_it() {
    for (action, status) in [
        (OnStoreError::Local, StatusCode::OK),
        (OnStoreError::Allow, StatusCode::OK),
        (OnStoreError::Deny, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let live = forsaken(action);
        let (router, _closing) = endpoint(live.clone());
        let (before, said) = readiness(&router).await;
        assert_eq!((before, &said["state"]), (status, &Value::from("unreached")));
        assert_eq!(said["degraded"], true);
        let facts = Facts::new(&Method::GET, "/").client([10, 0, 0, 1].into());
        let _ = live.gate().decide(&facts).await;
        let (after, said) = readiness(&router).await;
        assert_eq!(after, status, "{said}");
        assert_eq!((&said["store"], &said["state"]), (&Value::from("redis"), &Value::from("open")));
        assert_eq!(said["degraded"], true);
        let refusing = (action == OnStoreError::Deny).then(|| serde_json::json!(["api"]));
        assert_eq!(said.get("refusing"), refusing.as_ref());
    }
}

#[tokio::test]
async fn a_crowded_store_is_degraded_and_says_why() {
    let live = live(OnStoreError::Local, MemoryStore::builder().capacity(4).build());
    let (router, _closing) = endpoint(live.clone());
    assert_eq!(readiness(&router).await.1["degraded"], false);
    for n in 1..=4 {
        let facts = Facts::new(&Method::GET, "/").client([10, 0, 0, n].into());
        let _ = live.gate().decide(&facts).await.unwrap();
    }
    let (status, said) = readiness(&router).await;
    assert_eq!((status, &said["degraded"]), (StatusCode::OK, &Value::from(true)));
    let reason = said["warnings"][0].as_str().unwrap();
    assert!(reason.starts_with("the memory store has 4 of 4 accounts"), "{reason}");
}
