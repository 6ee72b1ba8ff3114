//! Paths that are written in a roundabout way: what they mean, and that nobody gets around a policy.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::borrow::Cow;
use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Empty;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use slidegate::{Gate, ManualClock, MemoryStore, PoliciesBuilder, Policy, Quota, Roster, Store};
use slidegate_tower::{PathReading, Peer, RateLimitLayer};
use support::{CLIENT, Slow, gate, policies};
use tower::{Layer, ServiceExt, service_fn};

/// Each is `/login` to some service.
const DODGES: [&str; 22] = [
    "/login/",
    "//login",
    "///login//",
    "/./login",
    "/login/.",
    "/../login",
    "/../../login",
    "/api/../login",
    "/api/v1/../../login",
    "/api//../login",
    "/api/..//login",
    "/login/x/..",
    "/%6cogin",
    "/%6Cogin",
    "/%6c%6f%67%69%6e",
    "/%2e/login",
    "/%2E%2e/login",
    "/api/%2e%2e/login",
    "/api/.%2e/login",
    "/login/%2e",
    "/login?next=/",
    "/%6cogin/?",
];

const LOOKALIKES: [(&str, &str); 16] = [
    ("/", "/"),
    ("//", "/"),
    ("/..", "/"),
    ("/%2e%2e/%2e", "/"),
    ("/login/..", "/"),
    ("/login/...", "/login/..."),
    ("/.login", "/.login"),
    ("/log%20in", "/log%20in"),
    ("/a%2fb%5c", "/a%2Fb%5C"),
    ("/a\\..\\b", "/a\\..\\b"),
    ("/%c3%a9", "/%C3%A9"),
    ("/é/%zz/%4", "/é/%25zz/%254"),
    // Decoded once, not twice.
    ("/%256cogin", "/%256cogin"),
    ("/%%36cogin", "/%256cogin"),
    ("*", "*"),
    ("", ""),
];

#[test]
fn dodges_read_as_what_they_mean() {
    for dodge in DODGES {
        assert_eq!(PathReading::default().read(dodge), "/login", "{dodge}");
    }
    for (sent, read) in LOOKALIKES {
        assert_eq!(PathReading::default().read(sent), read, "{sent}");
    }
}

#[test]
fn slashes_are_decoded_only_where_the_service_does_so() {
    let paths = PathReading::default().decoding_slashes();
    for dodge in ["/%2flogin", "/api%2F..%5clogin", "/api\\..\\login", "/api/..%2flogin%5C"] {
        assert_eq!(paths.read(dodge), "/login", "{dodge}");
        assert_ne!(PathReading::default().read(dodge), "/login", "{dodge}");
    }
}

#[test]
fn case_is_ignored_only_where_the_service_does_so() {
    let paths = PathReading::default().ignoring_case();
    for (sent, read) in [("/LOGIN", "/login"), ("/%4cogiN", "/login"), ("/A%c3%89", "/a%C3%89")] {
        assert_eq!(paths.read(sent), read);
    }
}

#[test]
fn as_sent_changes_nothing_but_the_query() {
    assert_eq!(PathReading::as_sent().read("//%6cogin/?x"), "//%6cogin/");
}

#[test]
fn a_path_in_its_normal_form_is_not_copied() {
    for path in ["/", "/login", "/.well-known/x", "/a%20b/%C3%A9", "/..x/x..", "*", ""] {
        assert!(matches!(PathReading::default().read(path), Cow::Borrowed(_)), "{path}");
    }
}

/// Worked out in another way: by a list of segments, each a list of bytes, most of them encoded.
fn model(path: &[u8], ignore_case: bool, decode_slashes: bool) -> Vec<u8> {
    let path = path.split(|b| *b == b'?').next().unwrap();
    if path.first() != Some(&b'/') {
        return path.to_vec();
    }
    // Each byte, and whether it was encoded.
    let mut bytes: Vec<(u8, bool)> = Vec::new();
    let mut at = 0;
    while at < path.len() {
        let digits = path.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits {
            Some(digits) if path[at] == b'%' => {
                bytes.push((u8::from_str_radix(digits, 16).unwrap(), true));
                at += 3;
            }
            _ => {
                bytes.push((path[at], path[at] == b'%'));
                at += 1;
            }
        }
    }
    for (byte, encoded) in &mut bytes {
        if decode_slashes && (*byte == b'/' || *byte == b'\\') {
            (*byte, *encoded) = (b'/', false);
        }
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            *encoded = false;
        }
        if ignore_case && !*encoded {
            *byte = byte.to_ascii_lowercase();
        }
    }
    let mut segments: Vec<&[(u8, bool)]> = Vec::new();
    for segment in bytes.split(|unit| *unit == (b'/', false)) {
        if segment == [(b'.', false); 2] {
            segments.pop();
        } else if !segment.is_empty() && segment != [(b'.', false)] {
            segments.push(segment);
        }
    }
    if segments.is_empty() {
        return b"/".to_vec();
    }
    let write = |(byte, encoded): &(u8, bool)| {
        if *encoded { format!("%{byte:02X}").into_bytes() } else { vec![*byte] }
    };
    let written = segments.iter().map(|segment| segment.iter().flat_map(write).collect());
    written.flat_map(|segment: Vec<u8>| [b"/".to_vec(), segment].concat()).collect()
}

fn some_path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("/".to_owned()),
        Just(".".to_owned()),
        Just("%".to_owned()),
        Just("\\".to_owned()),
        "[a-cA-C2-6%./?é]",
        any::<u8>().prop_map(|byte| format!("%{byte:02x}")),
        any::<u8>().prop_map(|byte| format!("%{byte:02X}")),
        Just("%2e".to_owned()),
        Just("%2F".to_owned()),
    ];
    prop_oneof![
        4 => prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat())),
        1 => any::<Vec<u8>>().prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        1 => any::<String>().prop_map(|text| format!("/{text}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        cases: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_path_has_one_normal_form(
        path in some_path(),
        ignore_case in any::<bool>(),
        decode_slashes in any::<bool>(),
    ) {
        let mut paths = PathReading::default();
        if ignore_case {
            paths = paths.ignoring_case();
        }
        if decode_slashes {
            paths = paths.decoding_slashes();
        }
        let read = paths.read(&path);
        let expected = model(path.as_bytes(), ignore_case, decode_slashes);
        prop_assert_eq!(read.as_bytes(), expected.as_slice());
        let again = paths.read(&read);
        prop_assert!(matches!(again, Cow::Borrowed(_)), "{} then {}", read, again);
        prop_assert_eq!(&again, &read);
        prop_assert_eq!(matches!(read, Cow::Borrowed(_)), path.split('?').next() == Some(&read));

        if path.starts_with('/') {
            prop_assert!(read.starts_with('/') && !read.contains("//"), "{}", read);
            prop_assert!(read == "/" || !read.ends_with('/'), "{}", read);
            prop_assert!(read.split('/').all(|segment| segment != "." && segment != ".."));
            for unreserved in ('a'..='z').chain('A'..='Z').chain('0'..='9').chain("-._~".chars()) {
                let encoded = format!("%{:02X}", u32::from(unreserved));
                prop_assert!(!read.to_uppercase().contains(&encoded), "{} in {}", encoded, read);
            }
        }
    }
}

/// Whether the gate lets the request through, and which path the inner service saw.
async fn send<S: Store>(layer: &RateLimitLayer<S>, method: Method, uri: &str) -> (u16, String) {
    let inner = service_fn(async |request: Request<()>| {
        let mut response = Response::new(Empty::<Bytes>::new());
        response.extensions_mut().insert(request.uri().to_string());
        Ok::<_, Infallible>(response)
    });
    let peer = Peer(CLIENT.parse().unwrap());
    let request = Request::builder().method(method).uri(uri).extension(peer).body(()).unwrap();
    let response = layer.layer(inner).oneshot(request).await.unwrap();
    let seen = response.extensions().get::<String>().cloned().unwrap_or_default();
    (response.status().as_u16(), seen)
}

fn login() -> PoliciesBuilder {
    policies([Policy::new("login").path("/login").quota(Quota::per_minute(1))])
}

fn limits(policies: PoliciesBuilder) -> RateLimitLayer {
    RateLimitLayer::new(gate(&ManualClock::default(), policies))
}

#[tokio::test]
async fn no_dodge_gets_around_a_policy() {
    for dodge in DODGES {
        let layer = limits(login());
        let first = send(&layer, Method::GET, dodge).await;
        assert_eq!(first, (200, dodge.to_owned()), "the inner service gets it as it came");
        assert_eq!(send(&layer, Method::GET, "/login").await.0, 429, "{dodge} was counted");
        assert_eq!(send(&layer, Method::GET, dodge).await.0, 429, "{dodge}");
    }
}

#[tokio::test]
async fn nor_with_a_store_that_waits() {
    let gate = Gate::new(login().build().unwrap(), Slow(MemoryStore::new()));
    let layer = RateLimitLayer::new(gate);
    for status in [200, 429] {
        assert_eq!(send(&layer, Method::GET, "/%6cogin/").await.0, status);
    }
}

#[tokio::test]
async fn paths_can_be_matched_as_they_were_sent_only() {
    let layer = limits(login()).paths(PathReading::as_sent());
    for _ in 0..2 {
        assert_eq!(send(&layer, Method::GET, "/%6cogin").await.0, 200);
    }
}

#[tokio::test]
async fn case_is_ignored_on_request() {
    let layer = limits(login()).paths(PathReading::default().ignoring_case());
    for status in [200, 429] {
        assert_eq!(send(&layer, Method::GET, "/LOGIN").await.0, status);
    }
}

/// A service that goes by the path as it came runs the search; one that resolves it does not.
#[tokio::test]
async fn a_detour_does_not_lead_out_of_a_policy_either() {
    let search = Policy::new("search").path("/search/{*words}").quota(Quota::per_minute(1));
    let layer = limits(policies([search]));
    for status in [200, 429] {
        assert_eq!(send(&layer, Method::GET, "/search/costly/../../x").await.0, status);
    }
}

#[tokio::test]
async fn nor_onto_the_list_of_the_exempt() {
    let exempt = Roster::new().path("/healthz");
    let api = || policies([Policy::new("api").quota(Quota::per_minute(1))]);
    for path in ["/api/../healthz", "/%68ealthz", "/healthz/"] {
        let layer = limits(api().exempt(exempt.clone()));
        for status in [200, 429] {
            assert_eq!(send(&layer, Method::GET, path).await.0, status, "{path}");
        }
        assert_eq!(send(&layer, Method::GET, "/healthz").await.0, 200);
    }
    let layer = limits(api().blocked(exempt));
    for path in ["/api/../healthz", "/%68ealthz", "/healthz/", "/healthz"] {
        assert_eq!(send(&layer, Method::GET, path).await.0, 403, "{path}");
    }
}

#[tokio::test]
async fn requests_without_a_path_pass_and_are_counted() {
    let everything = Policy::new("everything").quota(Quota::per_minute(2));
    let layer = limits(policies([everything]));
    assert_eq!(send(&layer, Method::OPTIONS, "*").await, (200, "*".to_owned()));
    let tunnel = "example.com:443";
    assert_eq!(send(&layer, Method::CONNECT, tunnel).await, (200, tunnel.to_owned()));
    assert_eq!(send(&layer, Method::OPTIONS, "*").await.0, 429);
}
