//! The responses that docs/http.md shows are the ones that clients get.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::body::Body;
use axum::{Router, routing};
use http::{HeaderValue, Request, Response, header};
use slidegate::policy::{Action, Override, Overrides, PoliciesBuilder, UnknownKeys};
use slidegate::{
    AccessList, Ban, Gate, ManualClock, OnStoreError, Plan, Policies, Policy, Quota, Source,
    Timestamp,
};
use slidegate_tower::{Cost, Dialect, Headers, RateLimitLayer, Refusal, Shape, User, UserPlan};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Down, gate, get, policies, text};

const PAGE: &str = include_str!("../../../docs/http.md");

/// Noon of 15 November 2026.
const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);

/// Responses by name, as they are on the wire.
type Responses = BTreeMap<&'static str, String>;

#[tokio::test]
async fn docs_http_page_shows_what_clients_get() {
    let mut sent = Responses::new();
    send_standings(&mut sent).await;
    send_shapes(&mut sent).await;
    send_reasons(&mut sent).await;
    let mut shown = shown();
    for (name, response) in &sent {
        assert_eq!(shown.remove(name).as_ref(), Some(response), "{name} is\n\n{response}\n");
        shown.remove(name);
    }
    assert!(shown.is_empty(), "nothing sends {:?}", shown.keys());
}

#[tokio::test]
async fn inside_nest_policies_see_the_path_without_its_prefix() {
    let counted = |path: &'static str, inside: bool| async move {
        let policy = Policy::new("api").path(path).quota(Quota::per_minute(9));
        let layer = RateLimitLayer::new(gate(&ManualClock::new(NOON), policies([policy])));
        let inner = Router::new().route("/users", routing::get(|| async {}));
        let app = match inside {
            true => Router::new().nest("/api", inner.layer(layer)),
            false => Router::new().nest("/api", inner).layer(layer),
        };
        let response = app.oneshot(get("/api/users")).await.unwrap();
        assert_eq!(response.status(), 200);
        response.headers().contains_key("ratelimit")
    };
    assert!(counted("/users", true).await && !counted("/api/users", true).await);
    assert!(!counted("/users", false).await && counted("/api/users", false).await);
}

#[tokio::test]
async fn a_layer_on_a_method_router_is_around_its_405() {
    let layer = || RateLimitLayer::per_ip(Quota::per_minute(9));
    let route = || routing::post(|| async {});
    for (route, counted) in [(route().layer(layer()), true), (route().route_layer(layer()), false)]
    {
        let app: Router = Router::new().route("/", route);
        let response = app.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers().contains_key("ratelimit"), counted);
    }
}

/// The blocks of the page that show a response: each begins with `http` and its name.
fn shown() -> Responses {
    let blocks = PAGE.split("\n```http ").skip(1).map(|block| {
        let (name, rest) = block.split_once('\n').unwrap();
        let (response, _) = rest.split_once("\n```").unwrap();
        (name, response.to_owned())
    });
    blocks.collect()
}

/// Ann has sent 24 requests, four a second, and may send more.
async fn send_standings(sent: &mut Responses) {
    for (name, headers) in [
        ("default", Headers::default()),
        ("ietf-draft-11", Headers::new([Dialect::Draft11])),
        ("ietf-draft-07", Headers::new([Dialect::Draft07])),
        ("ietf-draft-06", Headers::new([Dialect::Draft06])),
        ("x-ratelimit", Headers::new([Dialect::XRateLimit])),
        ("x-ratelimit-delta", Headers::new([Dialect::XRateLimitDelta])),
    ] {
        let clock = ManualClock::new(NOON);
        let layer = RateLimitLayer::new(gate(&clock, plans()));
        let service = layer.headers(headers.clock(clock.clone())).layer(service_fn(hello));
        sent.insert(name, last_of(24, &clock, service, from_ann).await);
    }
    sent.insert("two-layers", send_through_two_layers().await);
}

async fn send_through_two_layers() -> String {
    let clock = ManualClock::new(NOON);
    let flood = Policy::new("flood").quota(Quota::per_second(50));
    let layer = |policies| {
        let headers = Headers::default().clock(clock.clone());
        RateLimitLayer::new(gate(&clock, policies)).headers(headers)
    };
    let inner = layer(plans()).layer(service_fn(hello));
    let service = layer(Policies::builder().policy(flood)).layer(inner);
    last_of(24, &clock, service, from_ann).await
}

/// Ann has sent 60 requests in 15 seconds, and another one.
async fn send_shapes(sent: &mut Responses) {
    let template = r#"{"error":"slow down","plan":"{plan}","wait":{retry_after}}"#;
    let template = Refusal::template("application/json", template).unwrap();
    for (name, headers, refusal) in [
        ("problem", Headers::default(), Refusal::default()),
        ("error", Headers::none(), Shape::Error.into()),
        ("plan", Headers::none(), Shape::Plan.into()),
        ("code", Headers::none(), Shape::Code.into()),
        ("text", Headers::none(), Shape::Text.into()),
        ("bare", Headers::none(), Shape::Bare.into()),
        ("template", Headers::none(), template),
    ] {
        let clock = ManualClock::new(NOON);
        let layer = RateLimitLayer::new(gate(&clock, plans())).refusal(refusal);
        let service = layer.headers(headers.clock(clock.clone())).layer(service_fn(hello));
        sent.insert(name, last_of(61, &clock, service, from_ann).await);
    }
}

/// Other reasons to refuse, and other callers.
async fn send_reasons(sent: &mut Responses) {
    let ban = Ban::after(Quota::per_minute(20)).lasting(Duration::from_secs(600));
    let login = Policy::new("login").quota(Quota::per_minute(5)).ban(ban);
    let blocked = plans().blocked(AccessList::new().user("ann"));
    let by_key = Policy::new("api").identity(Source::ApiKey).quota(Quota::per_minute(60));
    let refusing = policies([by_key]).unknown_keys(UnknownKeys::Refuse);
    for (name, policies, request, times) in [
        ("banned", policies([login]), from_ann as fn() -> Request<Body>, 26),
        ("blocked", blocked, from_ann, 1),
        ("cost-above-units", plans(), costly, 1),
        ("unknown-key", refusing, with_key, 1),
        ("grpc", plans(), grpc, 61),
    ] {
        let clock = ManualClock::new(NOON);
        let layer = RateLimitLayer::new(gate(&clock, policies)).headers(Headers::none());
        let service = layer.layer(service_fn(hello));
        sent.insert(name, last_of(times, &clock, service, request).await);
    }
    sent.insert("suspended", send_suspended().await);
    let strict = Policy::new("api").quota(Quota::per_minute(60)).on_store_error(OnStoreError::Deny);
    let gate = Gate::new(policies([strict]).build().unwrap(), Down);
    let service = RateLimitLayer::new(gate).layer(service_fn(hello));
    let clock = ManualClock::new(NOON);
    sent.insert("store-unavailable", last_of(1, &clock, service, from_ann).await);
}

async fn send_suspended() -> String {
    let clock = ManualClock::new(NOON);
    let gate = gate(&clock, plans());
    let ban = Override {
        identity: "user:ann".parse().unwrap(),
        policy: None,
        action: Action::Ban,
        until: gate.now() + Duration::from_secs(600),
    };
    gate.admin().replace_overrides(Overrides::new([ban]).unwrap());
    let service = RateLimitLayer::new(gate).layer(service_fn(hello));
    last_of(1, &clock, service, from_ann).await
}

fn plans() -> PoliciesBuilder {
    let free = Plan::new("free", [Quota::per_minute(60), Quota::per_day(10_000)])
        .upgrade_url("https://app.example.com/upgrade");
    let api = Policy::new("api").identity([Source::User, Source::ip()]).plans("free");
    policies([api]).plan(free)
}

fn from_ann() -> Request<Body> {
    let mut request = get("/");
    request.extensions_mut().insert(User("ann".into()));
    request.extensions_mut().insert(UserPlan("free".into()));
    request
}

fn with_key() -> Request<Body> {
    let mut request = get("/");
    request.headers_mut().insert("x-api-key", HeaderValue::from_static("k-1"));
    request
}

fn costly() -> Request<Body> {
    let mut request = from_ann();
    request.extensions_mut().insert(Cost::Units(NonZeroU32::new(100).unwrap()));
    request
}

fn grpc() -> Request<Body> {
    let mut request = from_ann();
    let grpc = HeaderValue::from_static("application/grpc");
    request.headers_mut().insert(header::CONTENT_TYPE, grpc);
    request
}

async fn hello(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new("Hello!\n".into()))
}

/// The last response to so many requests, four a second.
async fn last_of<T, B>(
    times: u32,
    clock: &ManualClock,
    mut service: T,
    request: fn() -> Request<Body>,
) -> String
where
    T: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    for _ in 1..times {
        service.ready().await.unwrap().call(request()).await.unwrap();
        clock.advance(Duration::from_millis(250));
    }
    let response = service.ready().await.unwrap().call(request()).await.unwrap();
    on_the_wire(response).await.trim_end().to_owned()
}

async fn on_the_wire<B>(response: Response<B>) -> String
where
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    let mut wire = format!("HTTP/1.1 {}\n", response.status());
    for (name, value) in response.headers() {
        writeln!(wire, "{name}: {}", value.to_str().unwrap()).unwrap();
    }
    wire + "\n" + &text(response).await
}
