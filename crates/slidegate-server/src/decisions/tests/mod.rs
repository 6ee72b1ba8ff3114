//! The endpoint, asked as a program would.

mod arbitrary;
mod auth;
mod charges;
mod decide;
mod fuzz;
mod mistakes;
mod openapi;
mod page;
mod settle;
mod several;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use slidegate::limit::SystemClock;
use slidegate::{
    AccessList, Ban, ManualClock, MemoryStore, OnStoreError, Plan, Policies, Policy, Quota, Source,
    Timestamp,
};
use slidegate_proxy::Accepted;
use slidegate_tower::{AddressSource, ClientAddress, Responder};

use super::{Access, DecisionService, Decisions};
use crate::config::{LimiterConfig, Secret};
use crate::config::{LogConfig, LogFormat};
use crate::endpoint::token::RequiredToken;
use crate::holds::Holds;
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, Observer};
use crate::store::AnyStore;

/// The endpoint, and what was observed of it.
struct DecisionsApi {
    service: DecisionService,
    observer: Observer,
    /// By which ids expire.
    time: ManualClock,
}

/// A response.
struct Got {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

const LOG: LogConfig = LogConfig { format: LogFormat::Json, level: String::new(), access: false };

fn rules() -> LimiterConfig {
    let policies = Policies::builder()
        .plan(Plan::new("free", [Quota::per_minute(3), Quota::per_day(50)]))
        .plan(Plan::new("pro", [Quota::per_minute(30), Quota::per_day(500)]))
        .policy(
            Policy::new("api")
                .path("/api/{*rest}")
                .identity([Source::User, Source::ApiKey, Source::ip()])
                .plan_header("x-plan".parse().unwrap(), "free"),
        )
        .policy(
            Policy::new("login")
                .method(Method::POST)
                .path("/login")
                .quota(Quota::per_minute(1))
                .ban(Ban::after(Quota::per_minute(2)).lasting(std::time::Duration::from_secs(600)))
                .on_store_error(OnStoreError::Deny),
        )
        .policy(Policy::new("export").path("/export").quota(Quota::per_minute(5)))
        .policy(Policy::new("watch").path("/export").quota(Quota::per_minute(1)).shadow())
        .policy(
            Policy::new("tenant")
                .path("/tenant")
                .identity([Source::Header("x-tenant".parse().unwrap())])
                .quota(Quota::per_minute(1)),
        )
        .blocked(AccessList::new().network("198.51.100.0/24".parse().unwrap()))
        .exempt(AccessList::new().path("/healthz"))
        .build()
        .unwrap();
    let client_address =
        ClientAddress::new(AddressSource::XForwardedFor, ["10.0.0.0/8".parse().unwrap()]);
    LimiterConfig::new(policies, Responder::new(), client_address)
}

fn api() -> DecisionsApi {
    let clock = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
    DecisionsApi::new(rules(), MemoryStore::builder().clock(clock).build())
}

impl DecisionsApi {
    fn new(limiter: LimiterConfig, store: impl Into<AnyStore>) -> Self {
        Self::with_token(limiter, store, None)
    }

    fn with_token(
        limiter: LimiterConfig,
        store: impl Into<AnyStore>,
        token: Option<&Secret>,
    ) -> Self {
        Self::of(LiveConfig::of(limiter, store), token)
    }

    fn of(live: Arc<LiveConfig>, token: Option<&Secret>) -> Self {
        let clock = Arc::new(SystemClock::new());
        let observer = Observer::new(live.gate().clone(), &LOG, None, clock.clone());
        let time = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
        let within = Duration::from_secs(60);
        let holds = Arc::new(Holds::new(observer.clone(), Arc::new(time.clone()), within));
        let decisions = Decisions { live, observer: observer.clone(), clock, holds };
        let failures = Arc::default();
        let access = match token {
            Some(token) => {
                Access::Token(RequiredToken::new(token, ListenerKind::Decisions, &failures))
            }
            None => Access::Program(Arc::from([8081])),
        };
        Self { service: DecisionService { decisions, access }, observer, time }
    }

    async fn send(&self, peer: &str, request: Request<Full<Bytes>>) -> Got {
        let peer = (!peer.is_empty()).then(|| peer.parse::<IpAddr>().unwrap());
        let (head, body) = self.service.respond(Accepted::new(peer), request).await.into_parts();
        let got = Got { status: head.status, headers: head.headers, body };
        openapi::check(&got);
        got
    }

    async fn post(&self, target: &str, body: impl Into<Bytes>) -> Got {
        let request = Request::post(target).header("content-type", "application/json");
        self.send("127.0.0.1", request.body(Full::new(body.into())).unwrap()).await
    }

    /// The reply to a question that there is nothing wrong with.
    async fn ask(&self, question: Value) -> Value {
        let got = self.post("/v1/decide", question.to_string()).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.json()
    }

    async fn peek(&self, question: Value) -> Value {
        // As Python writes it; JavaScript writes it in small letters.
        let got = self.post("/v1/decide?peek=True", question.to_string()).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.json()
    }

    fn observed(&self) -> Vec<String> {
        self.observer.take_recorded()
    }
}

impl Got {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}
