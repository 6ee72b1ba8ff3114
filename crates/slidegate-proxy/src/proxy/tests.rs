//! Any bytes as requests of a connection: upstream gets what was decided on, and nothing but the
//! proxy's own word on where it comes from.

use std::convert::Infallible;
use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header, request};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::RequestOrigin;
use super::proxy_headers::ProxyHeaders;
use super::upstream::Upstream;
use super::validate::inspect;
use crate::{Accepted, Bounds, ForwardingHeader, HeaderRules, HostRule, ProxyConfig, Timeouts};

const PEER: &str = "192.0.2.1";
const CLIENT: &str = "203.0.113.7";
const UPSTREAM: &str = "upstream.internal:3000";

/// Headers that no `Connection` of a client may remove.
const PROTECTED: [&str; 4] = ["x-tenant", "authorization", "x-api-key", "content-length"];

/// Fields of one connection, which the next one does not get.
const HOP_BY_HOP: [&str; 7] = [
    "transfer-encoding",
    "proxy-authenticate",
    "proxy-authorization",
    "keep-alive",
    "proxy-connection",
    "http2-settings",
    "expect",
];

#[test]
fn head() {
    slidegate_fuzz::check("head", |input| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(serve(input));
    });
}

async fn serve(input: &[u8]) {
    let (mut client, server) = tokio::io::duplex(input.len().max(64));
    client.write_all(input).await.unwrap();
    client.shutdown().await.unwrap();
    let answer = service_fn(async |request: Request<Incoming>| {
        check_request(&request.into_parts().0);
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(server), answer);
    let mut answers = Vec::new();
    // An error is a request that hyper refuses.
    let _ = tokio::join!(connection, client.read_to_end(&mut answers));
}

fn check_request(received: &request::Parts) {
    for underscores in [false, true] {
        let rules = HeaderRules { underscores, refuse_overrides: true };
        let mut request = Request::from_parts(received.clone(), ());
        let identity = [HeaderName::from_static("x-tenant")];
        let inspected = inspect(&mut request, rules, &identity);
        let (decided, ()) = request.into_parts();
        check_names(&decided.headers, rules);
        let Ok(fields) = inspected else { continue };
        // The fields are for one call only.
        let again = inspect(&mut Request::from_parts(decided.clone(), ()), rules, &identity);
        for (fields, is_trusted) in [(fields, false), (again.unwrap(), true)] {
            let accepted = Accepted::new(Some(PEER.parse().unwrap()));
            let client: IpAddr = CLIENT.parse().unwrap();
            let origin = RequestOrigin { accepted: &accepted, client: Some(client), is_trusted };
            let mut head = decided.clone();
            let headers = ProxyHeaders::new(origin, &config(rules), fields, &mut head);
            for http2 in [false, true] {
                let uri = format!("http://{UPSTREAM}").parse().unwrap();
                let mut sent = head.clone();
                headers.address(&mut sent, &Upstream::new(&uri, http2, 1, 1));
                check_target(&decided, &sent, http2);
                check_hop_by_hop(&sent.headers, http2);
                check_origin(&sent.headers, is_trusted);
            }
        }
    }
}

fn config(rules: HeaderRules) -> ProxyConfig {
    ProxyConfig {
        routes: Vec::new(),
        host: HostRule::Keep,
        headers: rules,
        forwarding: ForwardingHeader::ALL.map(|(_, header)| header).to_vec(),
        upgrades: vec![HeaderValue::from_static("websocket")],
        workers: 1,
        timeouts: Timeouts::default(),
        bounds: Bounds::default(),
    }
}

fn values<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h [u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
}

/// No name is left that some servers take for another one.
fn check_names(headers: &HeaderMap, rules: HeaderRules) {
    for name in headers.keys().map(HeaderName::as_str).filter(|name| name.contains('_')) {
        assert!(rules.underscores, "{name} is left");
        let read = name.replace('_', "-");
        assert!(!["content-length", "transfer-encoding"].contains(&&*read), "{name} is left");
    }
}

/// Upstream gets the method, the path and the host that policies have seen.
fn check_target(decided: &request::Parts, sent: &request::Parts, http2: bool) {
    assert_eq!(sent.method, decided.method);
    let path = |head: &request::Parts| head.uri.path_and_query().map(ToString::to_string);
    assert_eq!(path(sent), Some(path(decided).unwrap_or_else(|| "/".to_owned())));
    let requested = match decided.uri.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => decided.headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes),
    };
    let host = if requested.is_empty() { UPSTREAM.as_bytes() } else { requested };
    let authority = sent.uri.authority().map(|authority| authority.as_str().as_bytes());
    let hosts = values(&sent.headers, "host");
    if http2 {
        assert_eq!((authority, &hosts[..]), (Some(host), &[][..]));
    } else {
        assert_eq!((authority, &hosts[..]), (None, &[host][..]));
    }
    for name in PROTECTED {
        assert_eq!(values(&sent.headers, name), values(&decided.headers, name), "{name}");
    }
}

fn check_hop_by_hop(sent: &HeaderMap, http2: bool) {
    for name in HOP_BY_HOP {
        assert!(!sent.contains_key(name), "{name} is forwarded");
    }
    assert!(values(sent, "te").iter().all(|value| *value == b"trailers"));
    match (&values(sent, "connection")[..], &values(sent, "upgrade")[..]) {
        ([], []) => {}
        ([b"upgrade"], [b"websocket"]) if !http2 => {}
        other => panic!("forwarded: {other:?}"),
    }
}

fn check_origin(sent: &HeaderMap, is_trusted: bool) {
    if is_trusted {
        for (name, end) in [("x-forwarded-for", PEER), ("forwarded", "proto=http")] {
            // Either it is from the proxy in front and was completed, or it is the proxy's own.
            for value in values(sent, name) {
                assert!(value.ends_with(end.as_bytes()), "{name}: {}", value.escape_ascii());
            }
        }
        return;
    }
    assert_eq!(values(sent, "x-forwarded-for"), [PEER.as_bytes()]);
    assert_eq!(values(sent, "x-forwarded-proto"), [b"http"]);
    assert_eq!(values(sent, "x-real-ip"), [CLIENT.as_bytes()]);
    assert!(values(sent, "forwarded")[0].starts_with(format!("for={PEER};").as_bytes()));
    assert_eq!(values(sent, "forwarded").len(), 1);
    assert!(values(sent, "x-forwarded-host").len() <= 1);
    let is_claim = |name: &str| {
        let read = name.replace('_', "-");
        name.contains('_') && ForwardingHeader::ALL.iter().any(|(claim, _)| *claim == read)
    };
    let claim = sent.keys().find(|name| is_claim(name.as_str()));
    assert_eq!(claim, None, "a client's claim is forwarded");
}
