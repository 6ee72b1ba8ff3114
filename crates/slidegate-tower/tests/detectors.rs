//! Misconfiguration is noticed, and told once with its remedy.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::support::now;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use slidegate::{Policies, Policy, Source};
use slidegate_tower::{AddressSource, ClientAddress, Peer, RateLimitLayer};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps what is warned of.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                write!(self.0, "{field}={value:?} ").unwrap();
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn layer() -> RateLimitLayer {
    RateLimitLayer::per_ip("1000/min".parse().unwrap())
}

fn request(peer: Option<&str>, headers: &[(&'static str, &str)]) -> Request<()> {
    let mut request = Request::new(());
    if let Some(peer) = peer {
        request.extensions_mut().insert(Peer(peer.parse::<IpAddr>().unwrap()));
    }
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

/// What is warned of while the layers see the requests, one after the other.
fn warnings(
    layer: impl Layer<Inner, Service: Service<Request<()>, Error = Infallible> + Clone>,
    requests: impl IntoIterator<Item = Request<()>>,
) -> Vec<String> {
    // One at a time, and asked anew: what others want to hear is remembered for all of them.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        tracing::callsite::rebuild_interest_cache();
        let service = layer.layer(inner());
        for request in requests {
            assert!(now(service.clone().oneshot(request)).is_ok());
        }
    });
    let warnings = warnings.0.lock().unwrap();
    warnings.clone()
}

type Answer = Result<Response<Empty<Bytes>>, Infallible>;
type Inner = tower::util::BoxCloneService<Request<()>, Response<Empty<Bytes>>, Infallible>;

fn inner() -> Inner {
    let answer = async |_| -> Answer { Ok(Response::new(Empty::new())) };
    tower::util::BoxCloneService::new(service_fn(answer))
}

fn check(warnings: &[String], expected: &[&[&str]]) {
    assert_eq!(warnings.len(), expected.len(), "{warnings:#?}");
    for (warning, words) in warnings.iter().zip(expected) {
        for word in *words {
            assert!(warning.contains(word), "{word} in {warning}");
        }
    }
}

const PUBLIC: &str = "203.0.113.7";
const PROXY: &str = "10.0.0.1";

/// What is warned of when the policy is built.
fn building(policy: Policy) -> Vec<String> {
    let layer = tower::layer::layer_fn(move |inner: Inner| {
        Policies::builder().policy(policy.clone()).build().unwrap();
        inner
    });
    warnings(layer, [])
}

#[test]
fn a_policy_in_which_anonymous_requests_share_an_account_is_warned_of() {
    let users = Policy::new("users").identity(Source::User).quota("5/min");
    check(&building(users.clone()), &[&["policy=\"users\"", "share one account", "source ip"]]);
    check(&building(users.clone().skip_anonymous()), &[]);
    check(&building(users.identity([Source::User, Source::ip()])), &[]);
}

#[test]
fn a_sound_setup_is_not_warned_of() {
    let sound = (0..3).map(|_| request(Some(PUBLIC), &[]));
    check(&warnings(layer(), sound), &[]);
    let trusted = ClientAddress::new(AddressSource::XForwardedFor, [PROXY.parse().unwrap()]);
    let clients = ["198.51.100.1", "198.51.100.2", "198.51.100.3"];
    let proxied = clients.map(|client| request(Some(PROXY), &[("x-forwarded-for", client)]));
    check(&warnings(layer().client_address(trusted), proxied), &[]);
}

#[test]
fn a_peer_that_is_not_known_is_warned_of() {
    let requests = (0..3).map(|_| request(None, &[]));
    let remedy: &[&str] = &["into_make_service_with_connect_info", "slidegate_tower::Peer"];
    check(&warnings(layer(), requests), &[remedy]);
}

#[test]
fn a_forwarding_header_from_an_untrusted_peer_is_warned_of() {
    for header in ["x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip"] {
        let plain = request(Some(PUBLIC), &[]);
        let forwarded = || request(Some(PUBLIC), &[(header, "198.51.100.1")]);
        let requests = [plain, forwarded(), forwarded()];
        let remedy: &[&str] = &[header, PUBLIC, "not trusted", "RateLimitLayer::client_address"];
        check(&warnings(layer(), requests), &[remedy]);
    }
}

#[test]
fn trusting_another_network_does_not_hide_it() {
    let trusted = ClientAddress::new(AddressSource::XForwardedFor, ["192.0.2.1".parse().unwrap()]);
    let requests = [request(Some(PUBLIC), &[("x-forwarded-for", "198.51.100.1")])];
    check(&warnings(layer().client_address(trusted), requests), &[&["not trusted"]]);
}

#[test]
fn a_proxy_that_was_not_configured_is_warned_of() {
    for proxy in [PROXY, "127.0.0.1", "::1", "fd00::1", "::ffff:192.168.0.1"] {
        let clients = ["198.51.100.1", "198.51.100.1", "198.51.100.2", "198.51.100.3"];
        let requests = clients.map(|client| request(Some(proxy), &[("x-forwarded-for", client)]));
        let shared: &[&str] = &["share one quota", "RateLimitLayer::client_address"];
        check(&warnings(layer(), requests), &[&["not trusted"], shared]);
    }
}

#[test]
fn several_peers_or_one_client_are_not_a_forgotten_proxy() {
    let from = |peer, client| request(Some(peer), &[("x-forwarded-for", client)]);
    let one_client = [from(PROXY, "198.51.100.1"), from(PROXY, "198.51.100.1")];
    let several_peers = [
        from("10.0.0.2", "198.51.100.2"),
        from(PROXY, "198.51.100.1"),
        from(PROXY, "198.51.100.3"),
    ];
    let outside = [from(PUBLIC, "198.51.100.1"), from(PUBLIC, "198.51.100.2")];
    for requests in [one_client.to_vec(), several_peers.to_vec(), outside.to_vec()] {
        check(&warnings(layer(), requests), &[&["not trusted"]]);
    }
}

#[test]
fn a_request_that_the_same_gate_counts_twice_is_warned_of() {
    let gate = layer();
    let twice = ServiceBuilder::new().layer(gate.clone()).layer(gate);
    let requests = (0..3).map(|_| request(Some(PUBLIC), &[]));
    check(&warnings(twice, requests), &[&["counted twice", "keep one of them"]]);
}

#[test]
fn counting_twice_is_noticed_however_late_it_begins() {
    let gate = layer();
    for before in [100, 101] {
        let once = (0..before).map(|_| request(Some(PUBLIC), &[]));
        check(&warnings(gate.clone(), once), &[]);
        let twice = ServiceBuilder::new().layer(gate.clone()).layer(layer()).layer(gate.clone());
        let requests = (0..200).map(|_| request(Some(PUBLIC), &[]));
        let expected: &[&[&str]] = if before == 100 { &[&["counted twice"]] } else { &[] };
        check(&warnings(twice, requests), expected);
    }
}

#[test]
fn two_gates_are_not_counting_twice() {
    let two = ServiceBuilder::new().layer(layer()).layer(layer()).layer(layer());
    let requests = (0..3).map(|_| request(Some(PUBLIC), &[]));
    check(&warnings(two, requests), &[]);
}
