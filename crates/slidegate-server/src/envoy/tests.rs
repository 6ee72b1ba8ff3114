//! The services, called as Envoy calls them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use prost::Message;
use serde_json::{Value, json};
use slidegate::limit::SystemClock;
use slidegate::policy::{KeyHash, PoliciesBuilder, UnknownKeys};
use slidegate::{
    Ban, Gate, ManualClock, MemoryStore, OnStoreError, Plan, Policies, Policy, Quota, Source,
    Timestamp,
};
use slidegate_proxy::Accepted;
use slidegate_testbed::http1::response;
use slidegate_testbed::{TokenIssuer, Upstream};
use slidegate_tower::{AddressSource, ClientAddress, Responder};
use tonic::Code as Grpc;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tower_service::Service;

use super::proto::envoy::config::core::v3::address::Address as PeerAddress;
use super::proto::envoy::config::core::v3::{Address, HeaderValue, SocketAddress};
use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use super::proto::envoy::service::auth::v3::attribute_context::{self, HttpRequest, Peer};
use super::proto::envoy::service::auth::v3::check_response::HttpResponse;
use super::proto::envoy::service::auth::v3::{AttributeContext, CheckRequest, CheckResponse};
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::proto::envoy::r#type::v3::RateLimitUnit;
use super::{EnvoyService, router};
use crate::config::{
    CustomersConfig, JwtConfig, KeySetPlace, KeySourceConfig, KeySourceKind, LimiterConfig,
    LogConfig, LogFormat, Secret,
};
use crate::customers;
use crate::live_config::LiveConfig;
use crate::logs::tests::lines_of;
use crate::observe::{MetricsFormat, Observer};
use crate::store::AnyStore;

const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const LOG: LogConfig = LogConfig { format: LogFormat::Auto, level: String::new(), access: false };

/// The services, on a clock that stands still.
struct Envoy {
    router: Router,
    observer: Observer,
}

fn policies() -> Policies {
    let login = [("remote_address", "*"), ("path", "/login")];
    Policies::builder()
        .policy(Policy::new("login").descriptors("edge", login).quota(Quota::per_minute(2)))
        .policy(Policy::new("watch").descriptors("edge", login).quota(Quota::per_day(1)).shadow())
        .policy(
            Policy::new("tenant")
                .descriptors("edge", [("tenant", "*")])
                .quota(Quota::per_hour(10))
                .quota("5/90s")
                .ban(Ban::after(Quota::per_minute(3))),
        )
        .policy(Policy::new("path").path("/limited").quota(Quota::per_minute(1)))
        .policy(
            Policy::new("named")
                .path("/named")
                .identity(Source::Header("x-tenant".parse().unwrap()))
                .quota(Quota::per_minute(1)),
        )
        .build()
        .unwrap()
}

async fn envoy() -> Envoy {
    let clock = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
    Envoy::new(policies(), MemoryStore::builder().clock(clock).build(), None).await
}

impl Envoy {
    async fn new(policies: Policies, store: impl Into<AnyStore>, token: Option<&Secret>) -> Self {
        let clients =
            ClientAddress::new(AddressSource::XForwardedFor, ["10.0.0.0/8".parse().unwrap()]);
        let live = LiveConfig::of(LimiterConfig::new(policies, Responder::new(), clients), store);
        Self::of(live, token).await
    }

    async fn of(live: Arc<LiveConfig>, token: Option<&Secret>) -> Self {
        let clock = Arc::new(SystemClock::new());
        let observer = Observer::new(live.gate().clone(), &LOG, None, clock.clone());
        let service = EnvoyService { live, observer: observer.clone(), clock };
        Self { router: router(service, token).await, observer }
    }

    /// Calls a method with a message and perhaps a token.
    async fn call<M: Message, A: Message + Default>(
        &self,
        path: &str,
        message: &M,
        token: Option<&str>,
    ) -> Result<A, Grpc> {
        let mut frame = vec![0; 5];
        message.encode(&mut frame).unwrap();
        let length = u32::try_from(frame.len() - 5).unwrap();
        frame[1..5].copy_from_slice(&length.to_be_bytes());
        let mut request = Request::post(path).header("content-type", "application/grpc");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut request = request.body(Body::new(Full::new(Bytes::from(frame)))).unwrap();
        let peer = Some(IpAddr::from([10, 0, 0, 1]));
        request.extensions_mut().insert(Accepted::new(peer));
        let Ok(response) = self.router.clone().call(request).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().unwrap_or(&head.headers);
        let status = trailers["grpc-status"].as_bytes();
        match Grpc::from_bytes(status) {
            Grpc::Ok => Ok(A::decode(&body.to_bytes()[5..]).unwrap()),
            error => Err(error),
        }
    }

    async fn ask<const N: usize>(
        &self,
        domain: &str,
        descriptors: [RateLimitDescriptor; N],
    ) -> RateLimitResponse {
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: descriptors.to_vec(),
            hits_addend: 0,
        };
        let answer: RateLimitResponse = self.call(LIMIT, &request, None).await.unwrap();
        assert_eq!(answer.statuses.len(), N);
        answer
    }

    async fn check(&self, source: &str, path: &str, headers: &[(&str, &str)]) -> CheckResponse {
        let socket = SocketAddress { address: source.to_owned() };
        let address = Address { address: Some(PeerAddress::SocketAddress(socket)) };
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let http = HttpRequest {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: headers.chain([(":path".to_owned(), path.to_owned())]).collect(),
            header_map: None,
        };
        let request = Some(attribute_context::Request { http: Some(http) });
        let attributes =
            AttributeContext { source: Some(Peer { address: Some(address) }), request };
        let request = CheckRequest { attributes: Some(attributes) };
        self.call(CHECK, &request, None).await.unwrap()
    }

    fn has_metric(&self, line: &str) {
        let page = self.observer.metrics(MetricsFormat::OpenMetrics).unwrap();
        assert!(page.lines().any(|other| other == line), "{line} is not in\n{page}");
    }
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

fn login(address: &str) -> RateLimitDescriptor {
    descriptor(&[("remote_address", address), ("path", "/login")])
}

fn tenant(name: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[("tenant", name)]) }
}

fn header<'a>(headers: &'a [HeaderValue], name: &str) -> Option<&'a str> {
    headers.iter().find(|header| header.key == name).map(|header| &*header.value)
}

/// The code, the limit as `units/unit of name`, what remains, and the seconds until the reset.
fn shown(status: &DescriptorStatus) -> (Code, String, u32, i64) {
    let limit = status.current_limit.as_ref().map_or_else(String::new, |limit| {
        format!("{}/{} of {}", limit.requests_per_unit, limit.unit().as_str_name(), limit.name)
    });
    let reset = status.duration_until_reset.as_ref().map_or(0, |reset| reset.seconds);
    (status.code(), limit, status.limit_remaining, reset)
}

#[tokio::test]
async fn statuses_say_where_each_descriptor_stands_and_headers_tell_the_client() {
    let envoy = envoy().await;
    for remaining in [1, 0] {
        let answer = envoy.ask("edge", [login("203.0.113.7")]).await;
        assert_eq!(answer.overall_code(), Code::Ok);
        let limit = "2/MINUTE of login".to_owned();
        assert_eq!(shown(&answer.statuses[0]), (Code::Ok, limit, remaining, 60));
        let headers = &answer.response_headers_to_add;
        let remaining = remaining.to_string();
        assert_eq!(header(headers, "x-ratelimit-remaining"), Some(&*remaining));
        assert!(header(headers, "ratelimit-policy").unwrap().contains("\"login\";q=2;w=60"));
        assert_eq!(answer.raw_body, b"");
    }
    let answer = envoy.ask("edge", [login("203.0.113.7"), tenant("acme", 1)]).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let limit = "2/MINUTE of login".to_owned();
    assert_eq!(shown(&answer.statuses[0]), (Code::OverLimit, limit, 0, 60));
    assert_eq!(answer.statuses[1].code(), Code::Ok);
    assert_eq!(header(&answer.response_headers_to_add, "retry-after"), Some("60"));
    let body = String::from_utf8(answer.raw_body).unwrap();
    assert!(body.contains("quota-exceeded") && body.contains("login"), "{body}");

    // The tenant has spent nothing, and the tighter of its quotas has no unit of Envoy's.
    let answer = envoy.ask("edge", [tenant("acme", 5)]).await;
    let limit = "5/UNKNOWN of tenant".to_owned();
    assert_eq!(shown(&answer.statuses[0]), (Code::Ok, limit, 0, 90));
    envoy.has_metric(r#"slidegate_requests_total{listener="rls",verdict="allow"} 3"#);
    envoy.has_metric(r#"slidegate_requests_total{listener="rls",verdict="deny"} 1"#);
    envoy.has_metric(r#"rate_limit_exceeded_total{policy="login"} 1"#);
    envoy.has_metric(r#"slidegate_shadow_denials_total{policy="watch"} 2"#);
}

#[tokio::test]
async fn what_no_policy_is_for_is_allowed_and_counted() {
    let envoy = envoy().await;
    for (domain, asked) in [
        ("elsewhere", [login("203.0.113.7"), login("203.0.113.8")]),
        ("edge", [descriptor(&[("path", "/login")]), descriptor(&[])]),
        ("edge", [descriptor(&[("path", "/logout")]), descriptor(&[("path", "/login")])]),
    ] {
        let answer = envoy.ask(domain, asked).await;
        assert_eq!(answer.overall_code(), Code::Ok);
        let nothing = (Code::Ok, String::new(), 0, 0);
        assert!(answer.statuses.iter().all(|status| shown(status) == nothing), "{answer:?}");
        assert_eq!(answer.response_headers_to_add, []);
    }
    let beside = envoy.ask("edge", [descriptor(&[("a", "b")]), tenant("acme", 1)]).await;
    assert_eq!(shown(&beside.statuses[0]).1, "");
    assert_eq!(shown(&beside.statuses[1]).2, 4);
    envoy.has_metric(r#"slidegate_unmatched_descriptors_total{unknown="domain"} 2"#);
    envoy.has_metric(r#"slidegate_unmatched_descriptors_total{unknown="descriptor"} 5"#);
    envoy.has_metric(r#"slidegate_requests_total{listener="rls",verdict="none"} 3"#);
}

#[tokio::test]
async fn all_descriptors_are_one_decision() {
    let tenants = Policy::new("tenant").descriptors("edge", [("tenant", "*")]).quota("5/90s");
    let policies = Policies::builder().policy(tenants.admit_only()).build().unwrap();
    let envoy = Envoy::new(policies, MemoryStore::new(), None).await;
    let remaining = async |name: &str| {
        let answer = envoy.ask("edge", [tenant(name, 0)]).await;
        answer.statuses[0].limit_remaining
    };
    let both = envoy.ask("edge", [tenant("a", 3), tenant("b", 2)]).await;
    assert_eq!(both.overall_code(), Code::Ok);
    let denied = envoy.ask("edge", [tenant("a", 2), tenant("b", 2), tenant("b", 2)]).await;
    assert_eq!(denied.overall_code(), Code::OverLimit, "one account twice is the sum");
    let codes: Vec<Code> = denied.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit, Code::OverLimit]);
    assert_eq!((remaining("a").await, remaining("b").await), (2, 3));

    // What only looks has a say as well, and nothing is refunded if the rest is denied.
    assert_eq!(envoy.ask("edge", [tenant("a", 2)]).await.overall_code(), Code::Ok);
    let refund = RateLimitDescriptor { is_negative_hits: true, ..tenant("b", 1) };
    let denied = envoy.ask("edge", [tenant("a", 0), tenant("b", 1), refund.clone()]).await;
    assert_eq!(denied.overall_code(), Code::OverLimit);
    assert_eq!(remaining("b").await, 3);
    let refunded = envoy.ask("edge", [refund, tenant("c", 1)]).await;
    assert_eq!(refunded.overall_code(), Code::Ok);
    assert_eq!(shown(&refunded.statuses[0]).2, 4);
    assert_eq!((remaining("b").await, remaining("c").await), (4, 4));
    // As far as there is something to refund.
    let all = RateLimitDescriptor { is_negative_hits: true, ..tenant("b", 1000) };
    assert_eq!(shown(&envoy.ask("edge", [all]).await.statuses[0]).2, 5);
}

#[tokio::test]
async fn hits_and_limits_of_a_call_are_honoured() {
    let envoy = envoy().await;
    let request = |hits_addend, descriptor| RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![descriptor],
        hits_addend,
    };
    for (hits, asked, remaining) in [
        (2, descriptor(&[("tenant", "a")]), 3),
        (0, descriptor(&[("tenant", "a")]), 2),
        (9, tenant("a", 1), 1),
        (9, tenant("a", 0), 1),
    ] {
        let answer: RateLimitResponse =
            envoy.call(LIMIT, &request(hits, asked), None).await.unwrap();
        assert_eq!(shown(&answer.statuses[0]).2, remaining);
    }
    let limited = |requests_per_unit, unit: RateLimitUnit, hits| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: unit.into() }),
        ..tenant("b", hits)
    };
    let day = envoy.ask("edge", [limited(100, RateLimitUnit::Day, 60)]).await;
    assert_eq!(shown(&day.statuses[0]).1, "100/DAY of tenant");
    let over = envoy.ask("edge", [limited(100, RateLimitUnit::Day, 60)]).await;
    assert_eq!(over.overall_code(), Code::OverLimit);
    let month = envoy.ask("edge", [limited(7, RateLimitUnit::Month, 1)]).await;
    assert_eq!(shown(&month.statuses[0]), (Code::Ok, "7/MONTH of tenant".into(), 6, 30 * 86_400));
    let unknown = envoy.ask("edge", [limited(7, RateLimitUnit::Unknown, 1)]).await;
    assert_eq!(shown(&unknown.statuses[0]).1, "5/UNKNOWN of tenant");
    let none = envoy.ask("edge", [limited(0, RateLimitUnit::Day, 1)]).await;
    assert_eq!((none.overall_code(), none.statuses[0].code()), (Code::OverLimit, Code::OverLimit));
    let too_many = envoy.ask("edge", [tenant("c", u64::MAX)]).await;
    assert_eq!(too_many.overall_code(), Code::OverLimit);
    assert_eq!(Unit::Week as i32, 7);
}

/// The services with these policies, and their clock.
async fn envoy_with<const N: usize>(list: [Policy; N]) -> (Envoy, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
    let builder = list.into_iter().fold(Policies::builder(), PoliciesBuilder::policy);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (Envoy::new(builder.build().unwrap(), store, None).await, clock)
}

/// 1000 units a minute for each account.
fn tokens(name: &str) -> Policy {
    Policy::new(name).descriptors("edge", [("account", "*")]).quota(Quota::per_minute(1000))
}

fn account(name: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[("account", name)]) }
}

/// The code, what remains, and the seconds until the reset, for one account.
async fn report(envoy: &Envoy, name: &str, hits: u64) -> (Code, u32, i64) {
    let answer = envoy.ask("edge", [account(name, hits)]).await;
    let (code, _, remaining, reset) = shown(&answer.statuses[0]);
    assert_eq!(answer.overall_code(), code);
    (code, remaining, reset)
}

#[tokio::test]
async fn what_a_response_has_cost_closes_the_account_until_enough_has_left() {
    let (envoy, clock) = envoy_with([tokens("tokens")]).await;
    assert_eq!(report(&envoy, "a", 900).await, (Code::Ok, 100, 60));
    assert_eq!(report(&envoy, "b", 900).await, (Code::Ok, 100, 60));
    clock.advance(Duration::from_secs(10));
    assert_eq!(report(&envoy, "a", 0).await, (Code::Ok, 100, 50));
    assert_eq!(report(&envoy, "a", 600).await.0, Code::OverLimit);
    assert_eq!(report(&envoy, "a", 0).await, (Code::OverLimit, 0, 50));
    for hits in [600, 600, 5000] {
        assert_eq!(report(&envoy, "b", hits).await.0, Code::OverLimit);
        assert_eq!(report(&envoy, "b", 0).await.0, Code::OverLimit);
    }
    // More than the quota, of a fresh account.
    assert_eq!(report(&envoy, "c", 5000).await, (Code::OverLimit, 0, 60));

    clock.advance(Duration::from_secs(50) - Duration::from_millis(1));
    assert_eq!(report(&envoy, "a", 0).await, (Code::OverLimit, 0, 1));
    clock.advance(Duration::from_millis(1));
    assert_eq!(report(&envoy, "a", 0).await, (Code::Ok, 400, 10), "the 900 have left");
    clock.advance(Duration::from_secs(10) - Duration::from_millis(1));
    for name in ["b", "c"] {
        assert_eq!(report(&envoy, name, 0).await, (Code::OverLimit, 0, 1), "{name}");
    }
    clock.advance(Duration::from_millis(1));
    for name in ["a", "b", "c"] {
        assert_eq!(report(&envoy, name, 0).await, (Code::Ok, 1000, 0), "{name}");
    }
}

#[tokio::test]
async fn a_cost_of_one_is_admitted_or_leaves_nothing() {
    let (envoy, clock) = envoy_with([tokens("tokens")]).await;
    assert_eq!(report(&envoy, "a", 5000).await.0, Code::OverLimit);
    for _ in 0..6 {
        clock.advance(Duration::from_secs(9));
        assert_eq!(report(&envoy, "a", 1).await.0, Code::OverLimit);
    }
    clock.advance(Duration::from_secs(6));
    assert_eq!(report(&envoy, "a", 1).await, (Code::Ok, 999, 60));
}

#[tokio::test]
async fn what_a_policy_fixes_as_the_cost_is_admitted_or_leaves_nothing() {
    let (envoy, _) = envoy_with([tokens("tokens").cost(600)]).await;
    let ask = async || envoy.ask("edge", [descriptor(&[("account", "a")])]).await.overall_code();
    assert_eq!((ask().await, ask().await), (Code::Ok, Code::OverLimit));
    assert_eq!(report(&envoy, "a", 1).await.1, 399);
}

#[tokio::test]
async fn charge_admit_spends_a_batch_only_if_it_fits() {
    let (envoy, _) = envoy_with([tokens("batch").admit_only()]).await;
    assert_eq!(report(&envoy, "a", 900).await, (Code::Ok, 100, 60));
    for hits in [600, 5000] {
        assert_eq!(report(&envoy, "a", hits).await.0, Code::OverLimit);
        assert_eq!(report(&envoy, "a", 0).await, (Code::Ok, 100, 60));
    }

    // One descriptor under two policies: each as it says.
    let day = Policy::new("day").descriptors("edge", [("account", "*")]).quota("1000/day");
    let (envoy, clock) = envoy_with([tokens("batch").admit_only(), day]).await;
    assert_eq!(report(&envoy, "a", 900).await.0, Code::Ok);
    assert_eq!(report(&envoy, "a", 600).await.0, Code::OverLimit);
    clock.advance(Duration::from_secs(60));
    assert_eq!(report(&envoy, "a", 0).await, (Code::OverLimit, 0, 86_400 - 60));
}

#[tokio::test]
async fn units_are_recorded_by_the_limit_of_a_call_too() {
    let (envoy, clock) = envoy_with([tokens("tokens")]).await;
    let limited = |requests_per_unit, hits| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: RateLimitUnit::Hour.into() }),
        ..account("a", hits)
    };
    let ask = async |asked| shown(&envoy.ask("edge", [asked]).await.statuses[0]);
    assert_eq!(ask(limited(100, 60)).await, (Code::Ok, "100/HOUR of tokens".into(), 40, 3600));
    assert_eq!(ask(limited(100, 60)).await.0, Code::OverLimit);
    assert_eq!(ask(limited(100, 0)).await.0, Code::OverLimit);
    clock.advance(Duration::from_secs(3600));
    assert_eq!(ask(limited(100, 0)).await.2, 100);
    assert_eq!(ask(limited(100, 500)).await.0, Code::OverLimit);
    assert_eq!(ask(limited(100, 0)).await.0, Code::OverLimit, "more than the limit");
    // A limit of none denies, and there is nothing to record.
    for hits in [0, 1, 500] {
        let none = RateLimitDescriptor { entries: account("b", 0).entries, ..limited(0, hits) };
        assert_eq!(ask(none).await.0, Code::OverLimit);
    }
    let other = RateLimitDescriptor { entries: account("b", 0).entries, ..limited(100, 0) };
    assert_eq!(ask(other).await.2, 100);
}

#[tokio::test]
async fn a_call_may_peek_record_admit_and_refund() {
    let (envoy, _) = envoy_with([tokens("tokens")]).await;
    let refund = |name| RateLimitDescriptor { is_negative_hits: true, ..account(name, 100) };
    let left = async |name| report(&envoy, name, 0).await.1;
    assert_eq!(report(&envoy, "refunded", 500).await.0, Code::Ok);
    let asked = [
        account("peeked", 0),
        account("recorded", 400),
        account("admitted", 1),
        refund("refunded"),
    ];
    let answer = envoy.ask("edge", asked.clone()).await;
    assert_eq!(answer.overall_code(), Code::Ok);
    let statuses = answer.statuses.iter().map(|status| shown(status).2).collect::<Vec<_>>();
    assert_eq!(statuses, [1000, 600, 999, 600]);

    // What does not fit is recorded, and nothing else is done.
    assert_eq!(report(&envoy, "recorded", 500).await.1, 100);
    let answer = envoy.ask("edge", asked.clone()).await;
    let codes = |answer: &RateLimitResponse| {
        answer.statuses.iter().map(DescriptorStatus::code).collect::<Vec<_>>()
    };
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(codes(&answer), [Code::Ok, Code::OverLimit, Code::Ok, Code::Ok]);
    assert_eq!((left("recorded").await, left("admitted").await), (0, 999));
    assert_eq!(left("refunded").await, 600);

    // A peek that is denied keeps nothing from being recorded.
    assert_eq!(report(&envoy, "peeked", 5000).await.0, Code::OverLimit);
    let mut other = asked.clone();
    other[1] = account("other", 400);
    let answer = envoy.ask("edge", other).await;
    assert_eq!(codes(&answer), [Code::OverLimit, Code::Ok, Code::Ok, Code::Ok]);
    assert_eq!((left("other").await, left("admitted").await), (600, 999));

    // Nor does an admission that is denied.
    assert_eq!(report(&envoy, "admitted", 5000).await.0, Code::OverLimit);
    let answer = envoy.ask("edge", [account("other", 400), account("admitted", 1)]).await;
    assert_eq!(codes(&answer), [Code::Ok, Code::OverLimit]);
    assert_eq!(left("other").await, 200);
}

#[tokio::test]
async fn what_is_recorded_beyond_a_quota_is_no_denial() {
    let policy = || tokens("tokens").ban(Ban::after(Quota::per_minute(3)));
    let (envoy, _) = envoy_with([policy()]).await;
    for _ in 0..10 {
        assert_eq!(report(&envoy, "a", 5000).await.0, Code::OverLimit);
    }
    envoy.has_metric(r#"slidegate_requests_total{listener="rls",verdict="recorded"} 10"#);
    envoy.has_metric(r#"slidegate_requests_total{listener="rls",verdict="deny"} 0"#);
    let decisions = |verdict: &str, count: u32| {
        let labels = format!(r#"policy="tokens",plan="",verdict="{verdict}""#);
        envoy.has_metric(&format!("slidegate_policy_decisions_total{{{labels}}} {count}"));
    };
    decisions("recorded", 10);
    decisions("deny", 0);
    envoy.has_metric(r#"rate_limit_exceeded_total{policy="tokens"} 0"#);
    let (accounts, now) = envoy.observer.accounts();
    assert_eq!(accounts.most_denied(10, now), []);
    assert_eq!(envoy.observer.request_totals().values(), [10, 0, 0]);
    // A request that finds the account closed is denied, and counts towards a ban.
    assert_eq!(report(&envoy, "a", 0).await.0, Code::OverLimit);
    decisions("deny", 1);
    assert_eq!(accounts.most_denied(10, now)[0].denials, 1);
    envoy.has_metric(r#"slidegate_blocks_total{listener="rls",reason="banned"} 0"#);

    // In one call with an admission that is denied, each policy has its own.
    let login = Policy::new("login").descriptors("edge", [("k", "*")]).quota(Quota::per_minute(1));
    let (envoy, _) = envoy_with([policy(), login]).await;
    for _ in 0..2 {
        let _ = envoy.ask("edge", [account("a", 5000), descriptor(&[("k", "v")])]).await;
        let _ = envoy.ask("edge", [account("b", 2), descriptor(&[("k", "v")])]).await;
    }
    envoy.has_metric(r#"rate_limit_exceeded_total{policy="login"} 2"#);
    envoy.has_metric(r#"rate_limit_exceeded_total{policy="tokens"} 0"#);
    envoy.has_metric(r#"slidegate_requests_total{listener="rls",verdict="recorded"} 1"#);
    envoy.has_metric(r#"slidegate_requests_total{listener="rls",verdict="deny"} 2"#);
}

#[tokio::test]
async fn a_ban_holds_for_every_cost() {
    let (envoy, _) = envoy_with([tokens("tokens").ban(Ban::after(Quota::per_minute(3)))]).await;
    assert_eq!(report(&envoy, "a", 5000).await.0, Code::OverLimit);
    for _ in 0..4 {
        assert_eq!(report(&envoy, "a", 1).await.0, Code::OverLimit);
    }
    let before = envoy.ask("edge", [account("a", 5)]).await;
    assert_eq!(before.overall_code(), Code::OverLimit);
    envoy.has_metric(r#"slidegate_blocks_total{listener="rls",reason="banned"} 2"#);
}

/// What is logged while the services answer.
fn logged_by<F: Future<Output = ()>>(level: &str, work: impl FnOnce() -> F) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    lines_of(level, || runtime.block_on(work()))
}

#[test]
fn a_policy_that_is_only_peeked_at_is_warned_about_once() {
    let other = Policy::new("other").descriptors("edge", [("tenant", "*")]).quota("5/min");
    let lines = logged_by("warn", async || {
        let (envoy, _) = envoy_with([tokens("tokens"), other]).await;
        // Others are charged now and then, be it for another account.
        let _ = envoy.ask("edge", [tenant("a", 2)]).await;
        for _ in 0..2100 {
            let _ = envoy.ask("edge", [account("a", 0), tenant("b", 0)]).await;
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["policy"], "tokens");
    let message = lines[0]["message"].as_str().unwrap();
    assert!(message.contains("apply_on_stream_done"), "{message}");
}

#[test]
fn reports_are_not_in_the_log_of_denials() {
    let logged = |hits| {
        let lines = logged_by("info", async || {
            let (envoy, _) = envoy_with([tokens("tokens")]).await;
            assert_eq!(report(&envoy, "a", 5000).await.0, Code::OverLimit);
            assert_eq!(report(&envoy, "a", hits).await.0, Code::OverLimit);
        });
        lines.iter().filter(|line| line["target"] == "slidegate::denied").count()
    };
    assert_eq!((logged(5000), logged(0)), (0, 1));
}

#[tokio::test]
async fn shadow_policies_deny_nothing_and_bans_hold() {
    let watch = Policy::new("watch").descriptors("d", [("k", "*")]).quota(Quota::per_day(1));
    let policies = Policies::builder().policy(watch.shadow()).build().unwrap();
    let watching = Envoy::new(policies, MemoryStore::new(), None).await;
    for _ in 0..3 {
        let answer = watching.ask("d", [descriptor(&[("k", "v")])]).await;
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(shown(&answer.statuses[0]), (Code::Ok, String::new(), 0, 0));
    }

    let envoy = envoy().await;
    assert_eq!(envoy.ask("edge", [tenant("a", 5)]).await.overall_code(), Code::Ok);
    for _ in 0..4 {
        let denied = envoy.ask("edge", [tenant("a", 1)]).await;
        assert_eq!(denied.overall_code(), Code::OverLimit);
    }
    envoy.has_metric(r#"slidegate_blocks_total{listener="rls",reason="banned"} 1"#);
}

#[tokio::test]
async fn tokens_are_verified_for_ext_authz_too() {
    let issuer = TokenIssuer::new("one");
    let jwt = JwtConfig {
        issuer: "a".to_owned(),
        jwks: KeySetPlace::File(issuer.key_file()),
        audience: vec!["api".to_owned()],
        algorithms: vec!["RS256".parse().unwrap()],
        user: Some("sub".to_owned()),
        customer: None,
        plan: None,
        refuses_invalid: true,
        authorities: None,
    };
    let config = CustomersConfig { key_source: None, issuers: vec![jwt] };
    let customers = customers::open(&config, Arc::new(SystemClock::new())).unwrap();
    let running = customers.clone();
    tokio::spawn(async move { running.run().await });
    let user = Policy::new("user").identity([Source::User, Source::ip()]).quota("1/min");
    let gate =
        Gate::new(Policies::builder().policy(user).build().unwrap(), MemoryStore::new().into());
    let (responder, clients) = (Responder::new(), ClientAddress::default());
    let live = LiveConfig::new(gate, responder, clients, None, Some(Arc::new(customers)));
    let envoy = Envoy::of(Arc::new(live), None).await;
    let token = |user: &str| {
        let claims = json!({"iss": "a", "aud": "api", "exp": 4_102_444_800_u64, "sub": user});
        format!("Bearer {}", issuer.token(&claims))
    };
    let code = async |bearer: &str| {
        let answer = envoy.check("203.0.113.7", "/", &[("authorization", bearer)]).await;
        Grpc::from_i32(answer.status.unwrap().code)
    };
    let (ann, ben) = (token("ann"), token("ben"));
    // Until the keys are read, the issuer is unavailable.
    while code(&ann).await == Grpc::Unavailable {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(code(&ann).await, Grpc::ResourceExhausted);
    assert_eq!(code(&ben).await, Grpc::Ok, "another user of the same address");
    assert_eq!(code(&format!("{}AAAA", &ben[..ben.len() - 4])).await, Grpc::PermissionDenied);
}

#[tokio::test]
async fn keys_are_looked_up_for_ext_authz_too() {
    let service = Upstream::answering(|request| {
        let is_for = |key: &str| request.target().ends_with(&KeyHash::Sha256.hex(key.as_bytes()));
        let status = match (is_for("k1") || is_for("k2"), is_for("k5")) {
            (true, _) => "200 OK",
            (_, true) => "500 Internal Server Error",
            _ => "404 Not Found",
        };
        let json = "Content-Type: application/json\r\n";
        response(status, json, r#"{"customer": "acme", "quotas": ["3/day"]}"#).into_bytes()
    });
    let hour = Duration::from_secs(3600);
    let kind = KeySourceKind::Http { fresh: hour, stale: hour, unknown: hour, token: None };
    let key_source = KeySourceConfig {
        url: format!("{}/{{digest}}", service.url()),
        hash: KeyHash::Sha256,
        kind,
        refuses_on_error: true,
        authorities: None,
    };
    let config = CustomersConfig { key_source: Some(key_source), issuers: Vec::new() };
    let customers = customers::open(&config, Arc::new(SystemClock::new())).unwrap();
    let running = customers.clone();
    tokio::spawn(async move { running.run().await });
    let api = Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("free");
    let plan = Plan::new("free", [Quota::per_day(1)]);
    let policies = Policies::builder().plan(plan).policy(api).unknown_keys(UnknownKeys::Refuse);
    let gate = Gate::new(policies.build().unwrap(), MemoryStore::new().into());
    let (responder, clients) = (Responder::new(), ClientAddress::default());
    let live = LiveConfig::new(gate, responder, clients, None, Some(Arc::new(customers)));
    let envoy = Envoy::of(Arc::new(live), None).await;
    let code = async |headers: &[(&str, &str)]| {
        let answer = envoy.check("203.0.113.7", "/", headers).await;
        Grpc::from_i32(answer.status.unwrap().code)
    };
    let known = async |key: &str| {
        // A busy machine may exceed the deadline of a look-up.
        loop {
            match code(&[("x-api-key", key)]).await {
                Grpc::Unavailable => tokio::time::sleep(Duration::from_millis(1)).await,
                known => return known,
            }
        }
    };
    for (key, expected) in [
        ("k1", Grpc::Ok),
        ("k2", Grpc::Ok),
        ("k1", Grpc::Ok),
        ("k2", Grpc::ResourceExhausted),
        ("k9", Grpc::PermissionDenied),
    ] {
        assert_eq!(known(key).await, expected, "{key}");
    }
    assert_eq!(code(&[("x-api-key", "k5")]).await, Grpc::Unavailable, "an error is no answer");
    assert_eq!((code(&[]).await, code(&[]).await), (Grpc::Ok, Grpc::ResourceExhausted));
}

#[tokio::test]
async fn a_store_in_trouble_is_no_limit() {
    for (action, expected) in
        [(OnStoreError::Deny, Err(Grpc::Unavailable)), (OnStoreError::Allow, Ok(Code::Ok))]
    {
        let policy = Policy::new("p").descriptors("d", [("k", "*")]).quota(Quota::per_day(1));
        let policies = Policies::builder().policy(policy.on_store_error(action)).build().unwrap();
        let envoy = Envoy::new(policies, AnyStore::Failing, None).await;
        let descriptors = vec![descriptor(&[("k", "v")])];
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend: 0 };
        let answer = envoy.call::<_, RateLimitResponse>(LIMIT, &request, None).await;
        assert_eq!(answer.map(|answer| answer.overall_code()), expected);
    }
}

#[tokio::test]
async fn what_is_no_question_is_an_error() {
    let envoy = envoy().await;
    let many = vec![login("203.0.113.7"); 101];
    let long = vec![descriptor(&[("k", "v"); 65])];
    for (domain, descriptors) in
        [("", vec![login("203.0.113.7")]), ("edge", Vec::new()), ("edge", many), ("edge", long)]
    {
        let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 1 };
        let answer = envoy.call::<_, RateLimitResponse>(LIMIT, &request, None).await;
        assert_eq!(answer.unwrap_err(), Grpc::InvalidArgument);
    }
    let huge = descriptor(&[("k", &"v".repeat(300_000))]);
    let request =
        RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![huge], hits_addend: 1 };
    let answer = envoy.call::<_, RateLimitResponse>(LIMIT, &request, None).await;
    assert_eq!(answer.unwrap_err(), Grpc::OutOfRange);
    let check = envoy.call::<_, CheckResponse>(CHECK, &CheckRequest::default(), None).await;
    assert_eq!(check.unwrap_err(), Grpc::InvalidArgument);
}

#[tokio::test]
async fn requests_are_checked_by_the_policies_for_requests() {
    let envoy = envoy().await;
    let status = |answer: &CheckResponse| match answer.http_response.as_ref().unwrap() {
        HttpResponse::OkResponse(_) => 200,
        HttpResponse::DeniedResponse(denied) => denied.status.as_ref().unwrap().code,
    };
    let allowed = envoy.check("203.0.113.7", "/limited?a=b", &[]).await;
    assert_eq!(allowed.status.unwrap().code, 0);
    let HttpResponse::OkResponse(allowed) = allowed.http_response.unwrap() else { panic!() };
    let headers = allowed.response_headers_to_add.into_iter().map(|option| option.header.unwrap());
    let headers: Vec<HeaderValue> = headers.collect();
    assert_eq!(header(&headers, "x-ratelimit-remaining"), Some("0"));

    let denied = envoy.check("203.0.113.7", "/limited", &[]).await;
    assert_eq!(denied.status.as_ref().unwrap().code, Grpc::ResourceExhausted as i32);
    assert_eq!(status(&denied), 429);
    let HttpResponse::DeniedResponse(denied) = denied.http_response.unwrap() else { panic!() };
    assert!(denied.body.contains("quota-exceeded"), "{}", denied.body);

    // What a client says of itself is believed only if a trusted proxy sent it on.
    let forged = [("x-forwarded-for", "198.51.100.9")];
    assert_eq!(status(&envoy.check("203.0.113.7", "/limited", &forged).await), 429);
    assert_eq!(status(&envoy.check("10.0.0.2", "/limited", &forged).await), 200);
    assert_eq!(status(&envoy.check("198.51.100.9", "/limited", &[]).await), 429);
    // A header of its own counts, because this Envoy's address is trusted.
    for (tenant, expected) in [("a", 200), ("b", 200), ("a", 429)] {
        let answer = envoy.check("203.0.113.7", "/named", &[("x-tenant", tenant)]).await;
        assert_eq!(status(&answer), expected, "{tenant}");
    }
    assert_eq!(status(&envoy.check("203.0.113.7", "/free", &[]).await), 200);
    envoy.has_metric(r#"slidegate_requests_total{listener="rls",verdict="deny"} 4"#);
}

#[tokio::test]
async fn a_spelling_of_a_path_is_that_path_and_what_is_none_is_refused() {
    let envoy = envoy().await;
    let code = async |path| {
        let answer = envoy.check("203.0.113.9", path, &[]).await;
        Grpc::from_i32(answer.status.unwrap().code)
    };
    assert_eq!(code("/limited#x").await, Grpc::Ok);
    for path in ["/limited", "/limited#x", "/LIMITED", "/x%2F..%2Flimited", "/x\\..\\limited"] {
        assert_eq!(code(path).await, Grpc::ResourceExhausted, "{path}");
    }
    for path in ["limited", "", "#x"] {
        assert_eq!(code(path).await, Grpc::PermissionDenied, "{path:?}");
    }
}

#[tokio::test]
async fn health_and_reflection_answer_and_a_token_is_asked_for() {
    let token = Secret::new("t0ken");
    let envoy = Envoy::new(policies(), MemoryStore::new(), Some(&token)).await;
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let health: HealthCheckResponse = envoy.call(HEALTH, &request, None).await.unwrap();
        assert_eq!(health.status(), ServingStatus::Serving, "{service}");
    }
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    for token in [None, Some("wrong")] {
        let refused = envoy.call::<_, ServerReflectionResponse>(path, &request, token).await;
        assert_eq!(refused.unwrap_err(), Grpc::Unauthenticated);
    }
    let listed: ServerReflectionResponse = envoy.call(path, &request, Some("t0ken")).await.unwrap();
    let Some(MessageResponse::ListServicesResponse(listed)) = listed.message_response else {
        panic!("{listed:?}")
    };
    let names: Vec<&str> = listed.service.iter().map(|service| &*service.name).collect();
    for name in ["RateLimitService", "Authorization", "Health"] {
        assert!(names.iter().any(|known| known.ends_with(name)), "{name}: {names:?}");
    }
}
