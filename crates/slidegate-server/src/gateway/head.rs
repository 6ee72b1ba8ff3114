//! The head of a request on its way to upstream, and of a response on its way back: what was for
//! this connection only is taken out, and where the request came from is put in.

use std::fmt::Write;
use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use http::header::{self, Entry};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, request};

use crate::listener::Accepted;

/// What upstream is to know of where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passage {
    pub(crate) accepted: Accepted,
    /// Whether the peer may speak for clients.
    pub(crate) trusted: bool,
    /// The client's address, as it was resolved.
    pub(crate) client: Option<IpAddr>,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What is said of where a request came from.
const CLAIMS: [HeaderName; 5] =
    [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_REAL_IP, header::FORWARDED];

/// The protocol that a request wants to change to, if it is one to pass on. HTTP/2 is not: who
/// changes to it behind the gateway's back is counted no more.
pub(crate) fn wanted_upgrade(head: &request::Parts) -> Option<HeaderValue> {
    let asked = head.version == Version::HTTP_11
        && tokens(&head.headers, &header::CONNECTION).any(|t| t.eq_ignore_ascii_case("upgrade"));
    let wanted = asked.then(|| head.headers.get(header::UPGRADE)).flatten()?;
    let is_http2 = wanted.as_bytes().windows(2).any(|two| two.eq_ignore_ascii_case(b"h2"));
    (!is_http2).then(|| wanted.clone())
}

/// Makes a client's head one for upstream, but for the name of the server that is to have it.
pub(crate) fn pass_on(head: &mut request::Parts, passage: &Passage) {
    let host = asked_host(head);
    strip_hop_by_hop(&mut head.headers);
    // The gateway itself asks for the body.
    head.headers.remove(header::EXPECT);
    tell_origin(&mut head.headers, passage, host.as_ref());
    if head.version == Version::HTTP_2 {
        join_cookies(&mut head.headers);
    }
    match host {
        Some(host) => head.headers.insert(header::HOST, host),
        None => head.headers.remove(header::HOST),
    };
    if head.uri.authority().is_some() {
        let path = head.uri.path_and_query().cloned();
        head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    head.version = Version::HTTP_11;
}

/// Makes a request that was passed on one for HTTP/2, which has the host in the target.
pub(crate) fn for_http2<B>(request: &mut Request<B>, scheme: &Scheme, upstream: &Authority) {
    let host = request.headers_mut().remove(header::HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut target = http::uri::Parts::default();
    target.scheme = Some(scheme.clone());
    target.authority = Some(authority.unwrap_or_else(|| upstream.clone()));
    let path = request.uri().path_and_query().cloned();
    target.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    *request.uri_mut() = Uri::from_parts(target).expect("it has a scheme, an authority and a path");
    *request.version_mut() = Version::HTTP_2;
}

/// Puts back what a change of protocol needs on this hop.
pub(crate) fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// What is for one connection only, whether `Connection` names it or not.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::TE,
    header::UPGRADE,
    header::TRANSFER_ENCODING,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    HTTP2_SETTINGS,
];

/// Takes out what was for one connection only.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Most heads have none of them, and one look is less than nine searches.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        .filter_map(|token| token.parse().ok())
        // These are never for one connection, whatever somebody says.
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH].contains(name))
        .collect();
    let trailers = tokens(headers, &header::TE).any(|t| t.eq_ignore_ascii_case("trailers"));
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// The host that the client asked for.
fn asked_host(head: &request::Parts) -> Option<HeaderValue> {
    let of_target = head.uri.authority().map(|authority| text(authority.as_str()));
    of_target.or_else(|| head.headers.get(header::HOST).filter(|host| !host.is_empty()).cloned())
}

/// Tells upstream where the request came from. What a peer says that nobody trusts is replaced.
fn tell_origin(headers: &mut HeaderMap, passage: &Passage, host: Option<&HeaderValue>) {
    if !passage.trusted {
        forget_claims(headers);
    }
    let proto = if passage.accepted.secure { "https" } else { "http" };
    if let Entry::Vacant(entry) = headers.entry(X_FORWARDED_PROTO) {
        entry.insert(HeaderValue::from_static(proto));
    }
    if let Some(host) = host
        && let Entry::Vacant(entry) = headers.entry(X_FORWARDED_HOST)
    {
        entry.insert(host.clone());
    }
    append_to_list(headers, X_FORWARDED_FOR, |value| write_address(value, passage.accepted.peer));
    append_to_list(headers, header::FORWARDED, |value| {
        value.put_slice(b"for=");
        write_node(value, passage.accepted.peer);
        if let Some(host) = host.filter(|host| is_quotable(host)) {
            value.put_slice(b";host=\"");
            value.put_slice(host.as_bytes());
            value.put_slice(b"\"");
        }
        value.put_slice(b";proto=");
        value.put_slice(proto.as_bytes());
    });
    if let Some(client) = passage.client
        && let Entry::Vacant(entry) = headers.entry(X_REAL_IP)
    {
        let mut value = BytesMut::with_capacity(LONGEST_ADDRESS);
        write_address(&mut value, Some(client));
        entry.insert(shared(value));
    }
}

fn forget_claims(headers: &mut HeaderMap) {
    for name in CLAIMS {
        headers.remove(name);
    }
    let lookalikes: Vec<HeaderName> =
        headers.keys().filter(|name| looks_like_a_claim(name.as_str())).cloned().collect();
    for name in lookalikes {
        headers.remove(name);
    }
}

/// Whether a name is one of ours to those servers that read an underscore as a hyphen.
fn looks_like_a_claim(name: &str) -> bool {
    let hyphened = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.contains('_')
        && CLAIMS.iter().any(|claim| claim.as_str().bytes().eq(name.bytes().map(hyphened)))
}

const LONGEST_ADDRESS: usize = 45;

/// Adds an item to a list, with all its lines joined into one.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, write: impl FnOnce(&mut BytesMut)) {
    let mut list = BytesMut::with_capacity(2 * LONGEST_ADDRESS);
    for line in headers.get_all(&name) {
        if !line.is_empty() {
            list.put_slice(line.as_bytes());
            list.put_slice(b", ");
        }
    }
    write(&mut list);
    headers.insert(name, shared(list));
}

fn write_address(value: &mut BytesMut, address: Option<IpAddr>) {
    match address {
        Some(address) => write!(value, "{address}").expect("a buffer takes all"),
        None => value.put_slice(b"unknown"),
    }
}

/// An address as `Forwarded` wants it.
fn write_node(value: &mut BytesMut, address: Option<IpAddr>) {
    match address {
        Some(IpAddr::V6(address)) => write!(value, "\"[{address}]\"").expect("a buffer takes all"),
        address => write_address(value, address),
    }
}

fn is_quotable(host: &HeaderValue) -> bool {
    host.as_bytes().iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(byte))
}

/// HTTP/2 may send a cookie in several fields, which HTTP/1.1 may not.
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    if cookies.next().is_none() || cookies.next().is_none() {
        return;
    }
    let lines: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = BytesMut::from(&lines.join(&b"; "[..])[..]);
    headers.insert(header::COOKIE, shared(joined));
}

/// The comma-separated words of a header.
fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(name).into_iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}

/// What is made of good values is one.
fn shared(value: BytesMut) -> HeaderValue {
    HeaderValue::from_maybe_shared(value.freeze())
        .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

fn text(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static(""))
}
