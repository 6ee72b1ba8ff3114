//! Paths that are written in a roundabout way: what they mean, and that nobody gets around a policy.

use std::borrow::Cow;
use std::convert::Infallible;

use crate::support::{CLIENT, Slow, gate, policies};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Empty;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use slidegate::policy::PoliciesBuilder;
use slidegate::{AccessList, Facts, Gate, ManualClock, MemoryStore, Policy, Quota, Store};
use slidegate_tower::{PathReading, Peer, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

/// Each is `/login` to some service.
const DODGES: [&str; 36] = [
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
    "/login;x=1",
    "/login;",
    "/login;a=b;c",
    "/;x=1/login",
    "/x/..;/login",
    "/x/..;a=b/login",
    "/x/%2e%2e;/login",
    "/login%3bx=1",
    "/login%20",
    "/login%20%20/",
    "/login%20;x=1",
    "/x/..%20/login",
    "/x/..%20;y/login",
    "/.;/login",
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
fn parameters_are_kept_where_the_service_does_so() {
    let paths = PathReading::default().keeping_parameters();
    for (sent, read) in [
        ("/login;x=1", "/login;x=1"),
        ("//login;x=1/", "/login;x=1"),
        ("/x/..;/login", "/x/..;/login"),
        ("/login%3bx", "/login%3Bx"),
        ("/login%20", "/login"),
    ] {
        assert_eq!(paths.read(sent), read, "{sent}");
    }
}

#[test]
fn services_that_do_some_of_it_are_thought_of() {
    let paths = PathReading::default();
    let sorted = |sent: &str| {
        let mut readings = paths.readings(sent);
        readings.sort_unstable();
        readings
    };
    assert_eq!(sorted("/login"), [""; 0]);
    assert_eq!(sorted("//a/../b"), ["/a/../b", "/b"]);
    assert_eq!(sorted("/a;x/b"), ["/a/b"]);
    assert_eq!(sorted("/a;x/../b"), ["/a/../b", "/b"]);
    assert_eq!(sorted("/x/..;/a"), ["/a", "/x/../a"]);
    assert_eq!(sorted("//a%20/b"), ["/a%20/b", "/a/b"]);
    // Dots may be resolved before parameters are cut, or after, or both times.
    assert_eq!(
        sorted("/api/..;x/../login;y"),
        ["/api/../../login", "/api/login", "/api/login;y", "/login"]
    );
    assert_eq!(
        sorted("/api/..%20/../login%20"),
        ["/api/../../login", "/api/login", "/api/login%20", "/login"]
    );
    assert_eq!(sorted("*"), [""; 0]);
    assert_eq!(PathReading::as_sent().readings("//a;b"), [""; 0]);
}

#[test]
fn the_most_roundabout_path_has_few_readings() {
    let path = "/e%20;z%20/..;x%20/..%20/c%20/..%20;/c%20/%20/e%20;z%20/d%20;z/..%20;/..;x/d%20;z\
                /%20/..";
    for times in [1, 2, 100] {
        assert!(PathReading::default().readings(&path.repeat(times)).len() <= 42);
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

/// What a service may do to a path.
#[derive(Debug, Clone, Copy)]
struct Steps {
    ignore_case: bool,
    decode_slashes: bool,
    cut: bool,
    trim: bool,
    resolve: bool,
}

/// Worked out in another way: by a list of segments, each a list of bytes, most of them encoded.
fn model(path: &[u8], steps: Steps) -> Vec<u8> {
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
        if steps.decode_slashes && (*byte == b'/' || *byte == b'\\') {
            (*byte, *encoded) = (b'/', false);
        }
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            *encoded = false;
        }
        if steps.ignore_case && !*encoded {
            *byte = byte.to_ascii_lowercase();
        }
    }
    let mut segments: Vec<&[(u8, bool)]> = Vec::new();
    for mut segment in bytes.split(|unit| *unit == (b'/', false)) {
        if steps.cut {
            segment = segment.split(|(byte, _)| *byte == b';').next().unwrap();
        }
        while steps.trim && segment.last().is_some_and(|(byte, _)| *byte == b' ') {
            segment = &segment[..segment.len() - 1];
        }
        if steps.resolve && segment == [(b'.', false); 2] {
            segments.pop();
        } else if !(segment.is_empty() || steps.resolve && segment == [(b'.', false)]) {
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
        Just(";".to_owned()),
        Just("%20".to_owned()),
        Just("..".to_owned()),
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
        cut in any::<bool>(),
    ) {
        let paths = reading(ignore_case, decode_slashes, cut);
        let read = paths.read(&path);
        let steps = Steps { ignore_case, decode_slashes, cut, trim: true, resolve: true };
        let expected = model(path.as_bytes(), steps);
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

    /// A policy is for a request if it is for its path in any reading: every combination of what
    /// services may do, one behind another, is among the readings, and nothing else is.
    #[test]
    fn every_reading_is_thought_of(
        path in some_path(),
        ignore_case in any::<bool>(),
        decode_slashes in any::<bool>(),
        may_cut in any::<bool>(),
    ) {
        let readings = reading(ignore_case, decode_slashes, may_cut).readings(&path);
        let sent = path.split('?').next().unwrap();
        let once = |path: &[u8]| {
            (0..8).map(|bits| {
                let [cut, trim, resolve] = [1, 2, 4].map(|bit| bits & bit != 0);
                let cut = cut && may_cut;
                model(path, Steps { ignore_case, decode_slashes, cut, trim, resolve })
            }).collect::<Vec<_>>()
        };
        // One service after another, until none finds anything new.
        let mut expected = if sent.starts_with('/') { once(sent.as_bytes()) } else { Vec::new() };
        loop {
            let known = expected.len();
            expected.extend(expected.clone().iter().flat_map(|read| once(read)));
            expected.sort_unstable();
            expected.dedup();
            if expected.len() == known {
                break;
            }
        }
        prop_assert!(readings.len() <= 42);
        expected.retain(|read| read != sent.as_bytes());
        let mut found: Vec<Vec<u8>> = readings.into_iter().map(String::into_bytes).collect();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    /// A path is exempt only if no service, whatever it does to it, ends up elsewhere.
    #[test]
    fn no_exempt_path_leads_elsewhere(path in leaving_path()) {
        let method = Method::GET;
        let readings = PathReading::default().readings(&path);
        let facts = Facts::new(&method, &path).other_paths(&readings);
        let policies = policies([Policy::new("all").quota(Quota::per_minute(1))])
            .exempt(AccessList::new().path("/static/{*rest}").path("/files/{name}"))
            .build()
            .unwrap();
        let is_static = |path: &[u8]| path.starts_with(b"/static/") && path.len() > 8;
        let is_file = |path: &[u8]| {
            let name = path.strip_prefix(b"/files/");
            name.is_some_and(|name| !name.is_empty() && !name.contains(&b'/'))
        };
        if policies.explain(&facts).exempt.is_some() {
            for read in anybodys_readings(path.as_bytes()) {
                let read = if read.len() > 1 { read.strip_suffix(b"/").unwrap_or(&read) } else { &read };
                let shown = String::from_utf8_lossy(read);
                prop_assert!(is_static(read) || is_file(read), "{} is {}", path, shown);
            }
        }
    }
}

fn reading(ignore_case: bool, decode_slashes: bool, cut: bool) -> PathReading {
    let mut paths = PathReading::default();
    if ignore_case {
        paths = paths.ignoring_case();
    }
    if decode_slashes {
        paths = paths.decoding_slashes();
    }
    if cut { paths } else { paths.keeping_parameters() }
}

/// Paths that are exempt or nearly so.
fn leaving_path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b.c",
        "/",
        "/",
        ".",
        "..",
        "/..",
        "../",
        ";",
        ";x=1",
        "%3b",
        "%20",
        " ",
        "%2e",
        "%2E%2e",
        "%252e",
        "%25252e",
        "%2f",
        "%252f",
        "\\",
        "%5c",
        "%255C",
        "%00",
        "%61",
        "%25",
        "%",
        "login",
        "%c0%ae",
        "%C0%AF",
        "%25c0%25af",
        "%c3%a9",
    ]);
    let start = prop::sample::select(vec!["/static/", "/files/", "/static", "/"]);
    (start, prop::collection::vec(piece, 0..7))
        .prop_map(|(start, pieces)| format!("{start}{}", pieces.concat()))
}

/// Whatever a service may take a path for: decoded any number of times, with parameters cut before
/// or after, overlong UTF-8 read as ASCII, backslashes taken for slashes, spaces trimmed, slashes merged, dots resolved.
fn anybodys_readings(path: &[u8]) -> Vec<Vec<u8>> {
    let mut readings = vec![path.to_vec()];
    let mut add = |of: fn(&[u8]) -> Vec<u8>| {
        let more: Vec<Vec<u8>> = readings.iter().map(|read| of(read)).collect();
        readings.extend(more);
        readings.sort_unstable();
        readings.dedup();
    };
    for _ in 0..3 {
        add(cut_parameters);
        add(percent_decoded);
    }
    add(overlong_decoded);
    add(|path| path.iter().map(|b| if *b == b'\\' { b'/' } else { *b }).collect());
    add(cut_parameters);
    add(|path| each_segment(path, <[u8]>::trim_ascii));
    add(|path| {
        let mut merged = path.to_vec();
        merged.dedup_by(|a, b| (*a, *b) == (b'/', b'/'));
        merged
    });
    add(dots_resolved);
    add(|path| path.split(|b| *b == 0).next().unwrap().to_vec());
    readings
}

fn each_segment(path: &[u8], edit: impl Fn(&[u8]) -> &[u8]) -> Vec<u8> {
    path.split(|b| *b == b'/').map(edit).collect::<Vec<_>>().join(&b'/')
}

fn cut_parameters(path: &[u8]) -> Vec<u8> {
    each_segment(path, |segment| segment.split(|b| *b == b';').next().unwrap())
}

fn percent_decoded(path: &[u8]) -> Vec<u8> {
    let (mut decoded, mut at) = (Vec::new(), 0);
    while at < path.len() {
        let digits = path.get(at + 1..at + 3).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        match digits {
            Some(digits) if path[at] == b'%' => {
                let digits = std::str::from_utf8(digits).unwrap();
                decoded.push(u8::from_str_radix(digits, 16).unwrap());
                at += 3;
            }
            _ => {
                decoded.push(path[at]);
                at += 1;
            }
        }
    }
    decoded
}

/// Some old decoders take any two bytes that begin with C0 or C1 for an ASCII character.
fn overlong_decoded(path: &[u8]) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), path);
    while let Some((byte, after)) = rest.split_first() {
        (rest, _) = match (byte, after) {
            (0xC0 | 0xC1, [low, after @ ..]) => {
                (after, decoded.push((byte & 1) << 6 | (low & 0x3F)))
            }
            _ => (after, decoded.push(*byte)),
        };
    }
    decoded
}

fn dots_resolved(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|b| *b == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments.iter().flat_map(|segment| [b"/", *segment].concat()).collect()
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

/// A proxy resolves the dots, and the service behind it cuts and trims what is left.
#[tokio::test]
async fn no_chain_of_services_leads_around_a_policy() {
    let policy = Policy::new("login").path("/api/login").quota(Quota::per_minute(1));
    for path in [
        "/api/..;x/../login;y",
        "/api/..%3bx/../login%3by",
        "/api/..%20/../login%20",
        "/api/x/..;/../..%20/login;",
        // Back to where it was for a service that trims spaces, but not for one that cuts only.
        "/api/..;a/../..%20/..;/login;y",
    ] {
        let layer = limits(policies([policy.clone()]));
        for status in [200, 429] {
            assert_eq!(send(&layer, Method::GET, path).await.0, status, "{path}");
        }
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
    let exempt = AccessList::new().path("/healthz");
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
async fn an_exemption_covers_no_path_that_leaves_it() {
    let exempt = AccessList::new().path("/static/{*rest}");
    let api = || policies([Policy::new("api").quota(Quota::per_minute(1))]);
    for path in [
        "/static/../login",
        "/static/%2e%2e/login",
        "/static/..;/login",
        "/static/..;x=1/login",
        "/static/..%2flogin",
        "/static/x%5c..%5c..%5clogin",
        "/static/%252e%252e/login",
        "/static/..%252flogin",
        "/static/..%20/login",
        "/static/..%c0%af..%c0%aflogin",
        "/static/%c0%ae%c0%ae/login",
        "/static/%25c0%25ae%C0%AE/login",
        // Out by a backslash, and back in by what is encoded twice.
        "/static/x%5c..%5c..%5clogin/%252e%252e/static/x",
    ] {
        let layer = limits(api().exempt(exempt.clone()));
        for status in [200, 429] {
            assert_eq!(send(&layer, Method::GET, path).await.0, status, "{path}");
        }
        for inside in
            ["/static/app.js", "/static/a/my%20file.pdf", "/static/a;v=1", "/static/%c3%a9"]
        {
            assert_eq!(send(&layer, Method::GET, inside).await.0, 200, "{inside}");
        }
    }
}

#[tokio::test]
async fn control_characters_are_refused() {
    let layer = limits(login());
    for path in ["/login%00", "/%00/login", "/login%0a", "/login%0D%0A", "/a%1fb", "/a%7F", "/a%09"]
    {
        assert_eq!(send(&layer, Method::GET, path).await.0, 400, "{path}");
    }
    for path in ["/a%20b", "/a%2500", "/a%80", "/a%7", "/a?b=%00"] {
        assert_eq!(send(&layer, Method::GET, path).await.0, 200, "{path}");
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
