//! The layer on axum routers: for a whole router, per route, several at once.

use std::net::SocketAddr;

use crate::support::{Slow, field, gate, get, get_from, policies, text};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing;
use http::{HeaderMap, StatusCode};
use slidegate::{Decision, Gate, ManualClock, MemoryStore, Plan, Policy, Quota, Source};
use slidegate_tower::{Headers, RateLimitLayer, User, UserPlan};
use tower::ServiceExt;

const HELLO: &str = "hello";

async fn hello() -> &'static str {
    HELLO
}

fn per_ip(quota: &str) -> RateLimitLayer {
    RateLimitLayer::per_ip(quota.parse().unwrap())
}

async fn send(app: &Router, request: Request) -> (StatusCode, HeaderMap) {
    let response = app.clone().oneshot(request).await.unwrap();
    (response.status(), response.headers().clone())
}

async fn statuses(app: &Router, path: &str, times: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(send(app, get(path)).await.0.as_u16());
    }
    statuses
}

#[tokio::test]
async fn one_line_limits_a_whole_router() {
    let app = Router::new()
        .route("/a", routing::get(hello))
        .route("/b", routing::get(hello))
        .layer(per_ip("3/min"));
    assert_eq!(statuses(&app, "/a", 2).await, [200, 200]);
    assert_eq!(statuses(&app, "/b", 2).await, [200, 429], "one quota for all routes");
    let other = send(&app, get_from("203.0.113.8", "/a")).await.0;
    assert_eq!(other, 200, "another client");
}

#[tokio::test]
async fn a_layer_on_a_route_leaves_the_others_free() {
    let limited = routing::get(hello).layer(per_ip("1/min"));
    let app = Router::new().route("/limited", limited).route("/free", routing::get(hello));
    assert_eq!(statuses(&app, "/limited", 2).await, [200, 429]);
    assert_eq!(statuses(&app, "/free", 3).await, [200, 200, 200]);
    let (_, headers) = send(&app, get("/free")).await;
    assert!(!headers.contains_key("ratelimit"), "nothing to tell where nothing is counted");
}

#[tokio::test]
async fn an_allowed_response_is_the_inner_one_with_headers_added() {
    let clock = ManualClock::default();
    let policy = Policy::new("api").quota(Quota::per_minute(2));
    let layer = RateLimitLayer::new(gate(&clock, policies([policy])))
        .headers(Headers::default().clock(clock.clone()))
        .expose_decision();
    let app = Router::new().route("/", routing::get(hello)).layer(layer);
    let response = app.oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), 200);
    let headers = response.headers();
    assert_eq!(field(headers, "ratelimit-policy"), r#""api";q=2;w=60"#);
    assert_eq!(field(headers, "ratelimit"), r#""api";r=1;t=60"#);
    assert_eq!(field(headers, "x-ratelimit-limit"), "2");
    assert_eq!(field(headers, "x-ratelimit-remaining"), "1");
    assert_eq!(field(headers, "x-ratelimit-reset"), "1767225660");
    assert_eq!(field(headers, "content-type"), "text/plain; charset=utf-8");
    assert!(!headers.contains_key("retry-after"));
    let decision = response.extensions().get::<Decision>().unwrap();
    assert!(decision.is_allowed());
    assert_eq!(text(response).await, HELLO);
}

#[tokio::test]
async fn two_layers_on_one_request_both_count_and_both_are_seen() {
    let inner = routing::get(hello).layer(per_ip("2/min").expose_decision());
    let app = Router::new().route("/", inner).layer(per_ip("5/h").expose_decision());
    let (status, headers) = send(&app, get("/")).await;
    assert_eq!(status, 200);
    // Both policies are called `default`; the outer one's name is set apart.
    let both = r#""default";q=2;w=60, "default/2";q=5;w=3600"#;
    assert_eq!(field(&headers, "ratelimit-policy"), both);
    let ratelimit = field(&headers, "ratelimit");
    assert!(ratelimit.starts_with(r#""default";r=1;t="#), "{ratelimit}");
    assert!(ratelimit.contains(r#", "default/2";r=4;t="#), "{ratelimit}");
    assert_eq!(field(&headers, "x-ratelimit-limit"), "2", "the tightest of all");
    assert_eq!(field(&headers, "x-ratelimit-remaining"), "1");

    assert_eq!(statuses(&app, "/", 1).await, [200]);
    let response = app.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), 429, "the inner one refuses");
    assert_eq!(field(response.headers(), "x-ratelimit-remaining"), "0");
    assert!(response.headers().contains_key("retry-after"));
    let decision = response.extensions().get::<Decision>().unwrap();
    assert!(!decision.is_allowed(), "the refusal is what is logged");
}

#[tokio::test]
async fn an_outer_layer_shows_when_it_is_the_tighter_one() {
    let inner = routing::get(hello).layer(per_ip("50/min"));
    let app = Router::new().route("/", inner).layer(per_ip("5/h"));
    let (_, headers) = send(&app, get("/")).await;
    assert_eq!(field(&headers, "x-ratelimit-limit"), "5");
    assert_eq!(field(&headers, "x-ratelimit-remaining"), "4");
    assert_eq!(headers.get_all("x-ratelimit-reset").iter().count(), 1);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn axums_connect_info_is_the_peer() {
    let app = Router::new().route("/", routing::get(hello)).layer(per_ip("1/min"));
    for (address, status) in [("10.0.0.1:1", 200), ("10.0.0.2:1", 200), ("10.0.0.1:2", 429)] {
        let mut request = Request::new(Body::empty());
        let address: SocketAddr = address.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(address));
        assert_eq!(send(&app, request).await.0, status, "{address}");
    }
    let address: SocketAddr = "10.0.0.9:1".parse().unwrap();
    let app = app.layer(MockConnectInfo(address));
    let request = || Request::new(Body::empty());
    assert_eq!(send(&app, request()).await.0, 200);
    assert_eq!(send(&app, request()).await.0, 429);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_real_server_gives_the_peer() {
    let app =
        Router::new().route("/", routing::get(hello)).layer(per_ip("1/min").expose_decision());
    let app = app.layer(middleware::from_fn(async |request: Request, next: Next| {
        let ConnectInfo(peer) = request.extensions().get::<ConnectInfo<SocketAddr>>().unwrap();
        let peer = peer.ip();
        let response = next.run(request).await;
        let decision = response.extensions().get::<Decision>().unwrap();
        assert_eq!(decision.policies()[0].identity.value(), peer.to_string());
        response
    }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let make = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, make).await });
    for status in ["200 OK", "429 Too Many Requests"] {
        let answer = http_get(address).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert!(answer.contains("\r\ndate: "), "a reset in Unix seconds needs a date: {answer}");
    }
}

async fn http_get(address: SocketAddr) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn auth_middleware_sets_user_and_plan() {
    async fn authenticate(mut request: Request, next: Next) -> Response {
        let token = request.headers().get("authorization").map(|v| v.to_str().unwrap().to_owned());
        if let Some(user) = token {
            let plan = if user == "ada" { "pro" } else { "no such plan" };
            request.extensions_mut().insert(UserPlan(plan.to_owned()));
            request.extensions_mut().insert(User(user));
        }
        next.run(request).await
    }
    let clock = ManualClock::default();
    let policy = Policy::new("api").identity([Source::User, Source::ip()]).plans("free");
    let policies = policies([policy])
        .plan(Plan::new("free", [Quota::per_minute(1)]))
        .plan(Plan::new("pro", [Quota::per_minute(3)]));
    let app = Router::new()
        .route("/", routing::get(hello))
        .layer(RateLimitLayer::new(gate(&clock, policies)))
        .layer(middleware::from_fn(authenticate));
    let as_user = |user: &str| {
        let mut request = get("/");
        request.headers_mut().insert("authorization", user.parse().unwrap());
        request
    };
    for (user, expected) in [("ada", vec![200, 200, 200, 429]), ("bob", vec![200, 429])] {
        for status in expected {
            assert_eq!(send(&app, as_user(user)).await.0, status, "{user}");
        }
    }
    assert_eq!(statuses(&app, "/", 2).await, [200, 429], "without a user, by address");
}

#[tokio::test]
async fn a_store_that_has_to_be_waited_for_decides_alike() {
    let clock = ManualClock::default();
    let store = Slow(MemoryStore::builder().clock(clock.clone()).build());
    let policy = Policy::new("api").quota(Quota::per_minute(2));
    let gate = Gate::new(policies([policy]).build().unwrap(), store);
    let echo = routing::post(async |body: String| body);
    let app = Router::new().route("/", echo).layer(RateLimitLayer::new(gate).expose_decision());
    for status in [200, 200, 429] {
        let mut request = get("/").map(|_| Body::from("as it was"));
        *request.method_mut() = http::Method::POST;
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.extensions().get::<Decision>().is_some());
        assert_eq!(field(response.headers(), "x-ratelimit-limit"), "2");
        let is_inner = text(response).await == "as it was";
        assert_eq!(is_inner, status == 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_requests_at_once_admit_exactly_the_quota() {
    let app = Router::new().route("/", routing::get(hello)).layer(per_ip("100/h"));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let app = app.clone();
        tasks.spawn(async move {
            let mut allowed = 0;
            for _ in 0..50 {
                allowed += usize::from(send(&app, get("/")).await.0 == 200);
            }
            allowed
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), 100);
}

#[tokio::test]
async fn requests_without_a_peer_share_one_quota() {
    let app = Router::new().route("/", routing::get(hello)).layer(per_ip("1/min"));
    let anonymous = || Request::new(Body::empty());
    assert_eq!(send(&app, anonymous()).await.0, 200);
    let mut forged = anonymous();
    forged.headers_mut().insert("x-forwarded-for", "198.51.100.1".parse().unwrap());
    assert_eq!(send(&app, forged).await.0, 429, "and a header does not get anybody out of it");
    assert_eq!(statuses(&app, "/", 1).await, [200], "who is known has a quota of their own");
}

#[tokio::test]
async fn ipv6_clients_are_counted_by_their_64() {
    let app = Router::new().route("/", routing::get(hello)).layer(per_ip("1/min"));
    for (peer, status) in [
        ("2001:db8:1:2::1", 200),
        ("2001:db8:1:2:ffff::9", 429),
        ("2001:db8:1:3::1", 200),
        ("::ffff:203.0.113.9", 200),
        ("203.0.113.9", 429),
    ] {
        assert_eq!(send(&app, get_from(peer, "/")).await.0, status, "{peer}");
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_refusal_is_whatever_axum_makes_a_response_of() {
    use slidegate_tower::Refusal;

    async fn refused_with(refusal: Refusal) -> (StatusCode, HeaderMap, String) {
        let app = Router::new().route("/", routing::get(hello));
        let app = app.layer(per_ip("1/min").refusal(refusal));
        assert_eq!(statuses(&app, "/", 1).await, [200]);
        let response = app.oneshot(get("/")).await.unwrap();
        (response.status(), response.headers().clone(), text(response).await)
    }
    let tuple = Refusal::with_axum(|refused| {
        (refused.status(), [("content-type", "application/json")], String::from("{}"))
    });
    let (status, headers, body) = refused_with(tuple).await;
    assert_eq!((status.as_u16(), body.as_str()), (429, "{}"));
    assert_eq!(field(&headers, "content-type"), "application/json");
    assert!(headers.contains_key("retry-after"), "{headers:?}");

    let own = Refusal::with_axum(|_| Response::new(Body::from("a response of its own")));
    assert_eq!(refused_with(own).await.2, "a response of its own");

    // A stream that never ends is not waited for.
    let stream = Refusal::with_axum(|refused| {
        (refused.status(), [("content-length", "9")], Body::new(Endless))
    });
    let (status, _, body) = refused_with(stream).await;
    assert_eq!((status.as_u16(), body.as_str()), (429, ""));
}

#[cfg(feature = "axum")]
struct Endless;

#[cfg(feature = "axum")]
impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}
