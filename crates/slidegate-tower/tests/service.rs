//! The service by itself: any body, readiness, and what an application can tell it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use crate::support::{CLIENT, Down, Slow, field, gate, policies};
use bytes::{Buf, Bytes};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use slidegate::{
    Decision, Gate, ManualClock, MemoryStore, OnStoreError, Policies, Policy, Quota, Source, Store,
    Verdict,
};
use slidegate_tower::{
    AddressSource, ClientAddress, Cost, Exempt, Headers, Identities, Identity, LimiterOutcome,
    Peer, RateLimitLayer, Refusal, RequestHead, RequestLimiter, Responder, ResponseBody, User,
    UserPlan,
};
use tower::{Layer, Service, ServiceExt, service_fn};

fn limits(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(gate(&ManualClock::default(), policies([policy])))
}

fn api(units: u32) -> Policy {
    Policy::new("api").quota(Quota::per_minute(units))
}

fn request() -> Request<()> {
    Request::builder().extension(Peer(CLIENT.parse().unwrap())).body(()).unwrap()
}

/// Sends the request and tells the status and the decision.
async fn send<S: Store>(
    layer: &RateLimitLayer<S>,
    request: Request<()>,
) -> (StatusCode, Option<Decision>) {
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let layer = layer.clone().expose_decision();
    let response = layer.layer(inner).oneshot(request).await.unwrap();
    (response.status(), response.extensions().get().cloned())
}

async fn identity(layer: &RateLimitLayer, request: Request<()>) -> String {
    let (_, decision) = send(layer, request).await;
    decision.unwrap().policies()[0].identity.to_string()
}

/// A body that is neither `Send` nor of `Bytes`.
struct Pieces(VecDeque<&'static str>, std::marker::PhantomData<std::rc::Rc<()>>);

/// Data of a type of its own.
#[derive(Debug)]
struct Piece(Bytes);

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

impl Body for Pieces {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        let piece = self.0.pop_front().map(|piece| Bytes::from_static(piece.as_bytes()));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(Piece(piece)))))
    }
}

#[tokio::test]
async fn a_service_takes_any_request_body_and_any_response_body() {
    let inner = service_fn(async |request: Request<Vec<u32>>| {
        assert_eq!(request.body(), &[1, 2, 3]);
        let pieces = VecDeque::from(["one ", "two"]);
        Ok::<_, Infallible>(Response::new(Pieces(pieces, std::marker::PhantomData)))
    });
    let mut service = limits(api(1)).layer(inner);
    for (status, expected) in [(200, "one two"), (429, "quota-exceeded")] {
        let response = service.ready().await.unwrap().call(request().map(|()| vec![1, 2, 3])).await;
        let response: Response<ResponseBody<Pieces>> = response.unwrap();
        assert_eq!(response.status(), status);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.into()).unwrap();
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn a_refusals_body_knows_its_length() {
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
    });
    let mut service = limits(api(1)).layer(inner);
    let response = service.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(2));
    let response = service.ready().await.unwrap().call(request()).await.unwrap();
    let length = response.body().size_hint().exact().unwrap();
    assert!(!response.body().is_end_stream());
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len() as u64, length);
}

#[tokio::test]
async fn a_grpc_call_is_refused_with_headers_only() {
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"message"))))
    });
    let mut service = limits(api(1)).layer(inner);
    let call = || {
        let mut request = request();
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        request
    };
    let response = service.ready().await.unwrap().call(call()).await.unwrap();
    assert!(!response.headers().contains_key("grpc-status"), "left to the inner service");
    let response = service.ready().await.unwrap().call(call()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(field(response.headers(), "grpc-status"), "8");
    assert!(response.body().is_end_stream(), "the headers are the trailers");
}

/// A service that may only be called when it was ready, as some are.
struct Strict {
    ready: bool,
    called: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, called: self.called.clone() }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        self.called.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(Empty::new())))
    }
}

async fn calls_of_three(layer: RateLimitLayer<impl Store>) -> usize {
    let called = Arc::new(AtomicUsize::new(0));
    let mut service = layer.layer(Strict { ready: false, called: called.clone() });
    for status in [200, 200, 429] {
        let response = service.ready().await.unwrap().call(request()).await.unwrap();
        assert_eq!(response.status(), status);
    }
    called.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_service_that_was_ready_is_the_one_called_and_only_for_what_may_pass() {
    assert_eq!(calls_of_three(limits(api(2))).await, 2);
    let store = Slow(MemoryStore::new());
    let slow = Gate::new(policies([api(2)]).build().unwrap(), store);
    assert_eq!(calls_of_three(RateLimitLayer::new(slow)).await, 2);
}

#[tokio::test]
async fn an_inner_services_error_comes_through() {
    let inner = service_fn(async |_: Request<()>| Err::<Response<Empty<Bytes>>, _>("broken"));
    let error = limits(api(2)).layer(inner).oneshot(request()).await.unwrap_err();
    assert_eq!(error, "broken");
}

#[tokio::test]
async fn a_user_is_counted_wherever_the_request_comes_from() {
    let layer = limits(api(9).identity([Source::User, Source::ip()]));
    let mut from_user = request();
    from_user.extensions_mut().insert(User("42".to_owned()));
    assert_eq!(identity(&layer, from_user).await, "user:42");
    assert_eq!(identity(&layer, request()).await, "ip:203.0.113.7");
}

#[tokio::test]
async fn a_plan_that_the_application_names_gives_the_quotas() {
    let plans = policies([Policy::new("api").plans("free")])
        .plan(slidegate::Plan::new("free", [Quota::per_minute(1)]))
        .plan(slidegate::Plan::new("pro", [Quota::per_minute(10)]));
    let layer = RateLimitLayer::new(gate(&ManualClock::default(), plans));
    for (plan, remaining) in [("pro", 9), ("pro", 8), ("unknown", 0)] {
        let mut request = request();
        request.extensions_mut().insert(UserPlan(plan.to_owned()));
        let (_, decision) = send(&layer, request).await;
        let (_, standing) = decision.as_ref().unwrap().tightest().unwrap();
        assert_eq!(standing.remaining(), remaining, "{plan}");
    }
}

#[tokio::test]
async fn a_request_may_cost_more_than_one() {
    let layer = limits(api(10));
    let costing = |cost: u32| {
        let mut request = request();
        request.extensions_mut().insert(Cost::Units(cost.try_into().unwrap()));
        request
    };
    for (cost, status) in [(7, 200), (4, 429), (3, 200), (11, 429)] {
        assert_eq!(send(&layer, costing(cost)).await.0, status, "{cost}");
    }
}

#[tokio::test]
async fn an_exempt_request_is_not_counted() {
    let layer = limits(api(1));
    for _ in 0..3 {
        let mut request = request();
        request.extensions_mut().insert(Exempt);
        let (status, decision) = send(&layer, request).await;
        assert_eq!((status.as_u16(), decision.is_none()), (200, true));
    }
    assert_eq!(send(&layer, request()).await.0, 200, "nothing was spent");
    assert_eq!(send(&layer, request()).await.0, 429);
}

#[tokio::test]
async fn a_named_header_is_believed_only_from_a_trusted_peer() {
    let tenant = Source::Header("x-tenant".parse().unwrap());
    let trusted = ["10.0.0.0/8".parse().unwrap()];
    let layer = limits(api(9).identity([tenant, Source::ip()]))
        .client_address(ClientAddress::new(AddressSource::XForwardedFor, trusted));
    for (peer, expected) in [("10.0.0.1", "x-tenant:acme"), ("203.0.113.9", "ip:203.0.113.9")] {
        let mut request = request();
        request.extensions_mut().insert(Peer(peer.parse().unwrap()));
        request.headers_mut().insert("x-tenant", "acme".parse().unwrap());
        assert_eq!(identity(&layer, request).await, expected, "{peer}");
    }
}

#[tokio::test]
async fn a_trusted_peers_user_header_counts_and_the_extension_comes_first() {
    let policies = Policies::builder()
        .user_header("x-user-id".parse().unwrap())
        .policy(api(9).identity([Source::User, Source::ip()]));
    let trusted = ["10.0.0.0/8".parse().unwrap()];
    let layer = RateLimitLayer::new(Gate::new(policies.build().unwrap(), MemoryStore::new()))
        .client_address(ClientAddress::new(AddressSource::XForwardedFor, trusted));
    for (peer, user, expected) in [
        ("10.0.0.1", None, "user:42"),
        ("10.0.0.1", Some("7"), "user:7"),
        ("203.0.113.9", None, "ip:203.0.113.9"),
        ("203.0.113.9", Some("7"), "user:7"),
    ] {
        let mut request = request();
        request.extensions_mut().insert(Peer(peer.parse().unwrap()));
        request.headers_mut().insert("x-user-id", "42".parse().unwrap());
        if let Some(user) = user {
            request.extensions_mut().insert(User(user.to_owned()));
        }
        assert_eq!(identity(&layer, request).await, expected, "{peer} {user:?}");
    }
}

#[tokio::test]
async fn a_client_behind_a_trusted_proxy_is_counted() {
    let trusted = ["10.0.0.0/8".parse().unwrap()];
    let proxied = ClientAddress::new(AddressSource::XForwardedFor, trusted);
    let layer = limits(api(9)).client_address(proxied);
    for (peer, expected) in [("10.0.0.1", "ip:198.51.100.1"), ("203.0.113.9", "ip:203.0.113.9")] {
        let mut request = request();
        request.extensions_mut().insert(Peer(peer.parse().unwrap()));
        request.headers_mut().insert("x-forwarded-for", "6.6.6.6, 198.51.100.1".parse().unwrap());
        assert_eq!(identity(&layer, request).await, expected, "{peer}");
    }
}

#[tokio::test]
async fn method_and_path_choose_the_policy_without_the_query() {
    let layer = limits(api(1).method(Method::POST).path("/shorten"));
    let to = |method: Method, uri: &str| {
        let mut request = request();
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        request
    };
    for (method, uri, status) in [
        (Method::POST, "/shorten?x=1", 200),
        (Method::POST, "https://s.example/shorten", 429),
        (Method::GET, "/shorten", 200),
        (Method::GET, "/abc", 200),
    ] {
        assert_eq!(send(&layer, to(method, uri)).await.0, status, "{uri}");
    }
}

#[tokio::test]
async fn a_refusal_has_the_decision_in_its_extensions_too() {
    let layer = limits(api(1));
    let (_, first) = send(&layer, request()).await;
    assert_eq!(first.unwrap().verdict(), Verdict::Allow);
    let (_, second) = send(&layer, request()).await;
    assert!(second.unwrap().retry_after().is_some());
}

/// Sends a request as a server does that calls the limiter itself and knows the client.
async fn serve<S: Store>(limiter: &RequestLimiter<S>, request: Request<()>) -> Response<Bytes> {
    let peer = CLIENT.parse().ok();
    let client = ClientAddress::default().resolve_client(peer, request.headers());
    let (mut response, decision) =
        match limiter.decide(RequestHead::from(&request).client(client)).await {
            LimiterOutcome::Refuse(response, decision) => (response, decision),
            LimiterOutcome::Pass(decision) => {
                let mut response = Response::new(Bytes::new());
                limiter.annotate(decision.as_ref(), &mut response);
                (response, decision)
            }
        };
    assert!(response.extensions().get::<Decision>().is_none(), "it is beside the response");
    if let Some(decision) = decision {
        response.extensions_mut().insert(decision);
    }
    response
}

fn limiter<S: Store>(policy: Policy, store: S) -> RequestLimiter<S> {
    RequestLimiter::new(Gate::new(policies([policy]).build().unwrap(), store))
}

#[tokio::test]
async fn a_server_gets_the_decision_and_sends_what_the_layer_sends() {
    let clock = ManualClock::default();
    let headers = Headers::default().clock(clock.clone());
    let limiter = RequestLimiter::new(gate(&clock, policies([api(1)])))
        .responder(Responder::new().headers(headers));
    let allowed = serve(&limiter, Request::new(())).await;
    assert_eq!(field(allowed.headers(), "ratelimit-policy"), "\"api\";q=1;w=60");
    assert_eq!(field(allowed.headers(), "ratelimit"), "\"api\";r=0;t=60");
    assert_eq!(field(allowed.headers(), "x-ratelimit-limit"), "1");
    assert_eq!(field(allowed.headers(), "x-ratelimit-remaining"), "0");
    assert!(allowed.headers().contains_key("x-ratelimit-reset"));
    let decision = allowed.extensions().get::<Decision>().unwrap();
    assert_eq!(decision.policies()[0].identity.to_string(), format!("ip:{CLIENT}"));
    assert!(decision.is_allowed());

    let refused = serve(&limiter, Request::new(())).await;
    assert_eq!(refused.status(), 429);
    assert!(!refused.extensions().get::<Decision>().unwrap().is_allowed());
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let layered = RateLimitLayer::from(limiter).layer(inner).oneshot(request()).await.unwrap();
    assert!(layered.extensions().get::<Decision>().is_none(), "unless the layer exposes it");
    assert_eq!(layered.status(), refused.status());
    assert_eq!(layered.headers(), refused.headers());
    let body = layered.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, refused.into_body());
}

#[tokio::test]
async fn a_server_gets_the_fields_of_upstream_joined_with_ours() {
    for (headers, fields) in [
        (Headers::default(), &["\"inner\";r=5;t=1", "\"api\";r=1;t=60"][..]),
        (Headers::none(), &["\"inner\";r=5;t=1"]),
    ] {
        let limiter = limiter(api(2), MemoryStore::new());
        let limiter = limiter.responder(Responder::new().headers(headers));
        let LimiterOutcome::Pass(decision) = limiter.decide((&request()).into()).await else {
            panic!("two a minute")
        };
        let response = Response::builder().header("ratelimit", "\"inner\";r=5;t=1");
        let mut response = response.body(()).unwrap();
        limiter.annotate(decision.as_ref(), &mut response);
        assert!(response.headers().get_all("ratelimit").iter().eq(fields));
    }
}

#[tokio::test]
async fn an_inner_layers_refusing_decision_is_kept() {
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let (outer, within) =
        (limits(api(10)), limits(Policy::new("inner").quota(Quota::per_minute(1))));
    let (outer, within) = (outer.expose_decision(), within.expose_decision());
    for (is_allowed, policy) in [(true, "api"), (false, "inner")] {
        let service = outer.layer(within.layer(inner));
        let response = service.oneshot(request()).await.unwrap();
        let decision = response.extensions().get::<Decision>().unwrap();
        assert_eq!(decision.is_allowed(), is_allowed);
        assert_eq!(&*decision.policies()[0].policy, policy);
    }
}

#[tokio::test]
async fn a_server_may_have_any_store_and_any_refusal() {
    let own = limiter(api(1), MemoryStore::new()).responder(Responder::new().refusal(
        Refusal::with(|refused| {
            let mut response = Response::new(Bytes::from_static(b"own"));
            *response.status_mut() = refused.status();
            response
        }),
    ));
    assert_eq!(serve(&own, Request::new(())).await.status(), 200);
    let refused = serve(&own, Request::new(())).await;
    assert!(refused.headers().contains_key("ratelimit"));
    assert_eq!(refused.into_body(), "own");

    let slow = limiter(api(1), Slow(MemoryStore::new()));
    for is_allowed in [true, false] {
        let response = serve(&slow, Request::new(())).await;
        assert_eq!(response.extensions().get::<Decision>().unwrap().is_allowed(), is_allowed);
        assert_eq!(response.status().is_success(), is_allowed);
        assert!(response.headers().contains_key("ratelimit"));
    }
    let down = limiter(api(1).on_store_error(OnStoreError::Deny), Down);
    let unavailable = serve(&down, Request::new(())).await;
    assert_eq!(unavailable.status(), 503);
    assert!(unavailable.extensions().get::<Decision>().is_none());
}

#[tokio::test]
async fn a_grpc_call_is_refused_in_plain_http_where_a_proxy_goes_by_the_status() {
    let limiter = limiter(api(1), MemoryStore::new());
    let call = || Request::builder().header("content-type", "application/grpc").body(()).unwrap();
    assert_eq!(serve(&limiter, call()).await.status(), 200);
    let refused = serve(&limiter, call()).await;
    assert_eq!(
        (refused.status().as_u16(), field(refused.headers(), "grpc-status")),
        (200, "8".into())
    );
    let peer = CLIENT.parse().ok();
    let call = call();
    let client = ClientAddress::default().resolve_client(peer, call.headers());
    let head = RequestHead::from(&call).client(client).described_by_proxy();
    let LimiterOutcome::Refuse(refused, _) = limiter.decide(head).await else {
        panic!("one a minute")
    };
    assert_eq!(refused.status(), 429);
}

#[tokio::test]
async fn a_store_that_is_down_is_a_503_only_where_the_policy_says_so() {
    for (action, statuses) in [
        (OnStoreError::Deny, [503, 503]),
        (OnStoreError::Allow, [200, 200]),
        (OnStoreError::Local, [200, 429]),
    ] {
        let policies = policies([api(1).on_store_error(action)]).build().unwrap();
        let layer = RateLimitLayer::new(Gate::new(policies, Down));
        for status in statuses {
            assert_eq!(send(&layer, request()).await.0, status, "{action}");
        }
    }
}

#[tokio::test]
async fn layers_of_one_gate_count_together_and_follow_its_policies() {
    let gate = Arc::new(gate(&ManualClock::default(), policies([api(1)])));
    let (one, two) = (RateLimitLayer::new(gate.clone()), RateLimitLayer::new(gate.clone()));
    assert_eq!(send(&one, request()).await.0, 200);
    assert_eq!(send(&two.clone(), request()).await.0, 429);
    gate.replace_policies(policies([api(2)]).build().unwrap());
    assert_eq!(send(&two, request()).await.0, 200);
    assert!(Arc::ptr_eq(one.gate(), &gate));
}

#[tokio::test]
async fn a_method_in_another_case_is_refused_before_the_inner_service() {
    let login = || policies([api(1).method(Method::POST)]);
    let at_once = RateLimitLayer::new(gate(&ManualClock::default(), login()));
    let waiting =
        RateLimitLayer::new(Gate::new(login().build().unwrap(), Slow(MemoryStore::new())));
    for method in ["post", "Post", "pOST"] {
        let mut request = request();
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        let again = request.clone();
        for (status, decision) in [send(&at_once, request).await, send(&waiting, again).await] {
            assert_eq!(status, 400, "{method}");
            assert!(decision.is_none(), "nothing was decided");
        }
    }
    assert_eq!(send(&at_once, request()).await.0, 200);
}

#[tokio::test]
async fn policies_for_tenants_teams_and_users_hold_together() {
    let by = |name: &str, source, units| {
        Policy::new(name).identity([source]).quota(Quota::per_minute(units))
    };
    let layer = RateLimitLayer::new(gate(
        &ManualClock::default(),
        policies([
            by("tenants", Source::named("tenant"), 3),
            by("teams", Source::named("team"), 2),
            by("users", Source::User, 1),
        ]),
    ));
    let of_user = |user: &str| {
        let mut request = request();
        request.extensions_mut().insert(User(user.to_owned()));
        request
    };
    let with = |user: &str, identities: &[(&str, &str)]| {
        let mut request = of_user(user);
        let list = identities.iter().map(|(kind, value)| Identity::new(kind, value));
        request.extensions_mut().insert(Identities(list.collect()));
        request
    };
    let (status, decision) = send(&layer, with("ann", &[("tenant", "acme"), ("team", "a")])).await;
    let decision = decision.unwrap();
    let identities: Vec<String> =
        decision.policies().iter().map(|policy| policy.identity.to_string()).collect();
    assert_eq!(
        (status.as_u16(), identities.join(" ")),
        (200, "tenant:acme team:a user:ann".into())
    );

    for (request, expected) in [
        (with("ann", &[("tenant", "acme"), ("team", "b")]), 429),
        (with("bob", &[("tenant", "acme"), ("team", "a")]), 200),
        (with("cid", &[("tenant", "acme"), ("team", "a")]), 429),
        (with("cid", &[("tenant", "acme"), ("team", "b")]), 200),
        (with("dan", &[("tenant", "acme"), ("team", "b")]), 429),
        (with("dan", &[("tenant", "other"), ("team", "b")]), 200),
    ] {
        assert_eq!(send(&layer, request).await.0, expected);
    }
    let mut alone = of_user("eve");
    alone.extensions_mut().insert(Identity::new("tenant", "acme"));
    assert_eq!(send(&layer, alone).await.0, 429, "one identity needs no list");
}
