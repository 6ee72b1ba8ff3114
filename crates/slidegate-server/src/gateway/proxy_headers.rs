//! A request's head on its way to upstream: what was for the client's connection only is left out,
//! and where the request came from is added.

use std::collections::HashSet;
use std::io::Write;
use std::net::IpAddr;

use bytes::Bytes;
use http::header;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version};
use slidegate_tower::ResolvedClient;

use crate::config::HostRule;
use crate::http1::{
    X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REAL_IP, is_hop_by_hop,
    named_by_connection, tokens,
};

/// What upstream is to know of a request that the request does not say, or not to be believed.
#[derive(Debug)]
pub(crate) struct ProxyHeaders {
    pub(crate) client: ResolvedClient,
    /// Whether it came over TLS.
    pub(crate) is_secure: bool,
    /// Whose name upstream is called by.
    pub(crate) host: HostRule,
    /// The protocol that the client wants to change to.
    pub(crate) upgrade: Option<HeaderValue>,
}

/// Where fields are written, one after the other.
pub(crate) trait HeaderSink {
    fn put(&mut self, name: &HeaderName, write: impl FnOnce(&mut Vec<u8>));
}

/// As HTTP/1.1 has them.
impl HeaderSink for Vec<u8> {
    fn put(&mut self, name: &HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        self.extend_from_slice(name.as_str().as_bytes());
        self.extend_from_slice(b": ");
        write(self);
        self.extend_from_slice(b"\r\n");
    }
}

impl HeaderSink for HeaderMap {
    fn put(&mut self, name: &HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::new();
        write(&mut value);
        // What is made of good values is one.
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
            self.append(name, value);
        }
    }
}

/// Whether a field names the client, at least for servers that read an
/// underscore as a hyphen.
pub(super) fn is_a_claim(name: &str) -> bool {
    let claims =
        ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "forwarded"];
    claims.iter().any(|claim| hyphened_is(name, claim))
}

/// Whether a name is this one to servers that read an underscore as a hyphen.
pub(super) fn hyphened_is(name: &str, hyphened: &str) -> bool {
    let read = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.len() == hyphened.len() && hyphened.bytes().eq(name.bytes().map(read))
}

/// Which fields the client has sent, of those that are sent on in one way or another.
#[derive(Debug, Default)]
struct ForwardingFields<'r> {
    proto: bool,
    host: bool,
    real_ip: bool,
    forwarded_for: FieldValues<'r>,
    forwarded: FieldValues<'r>,
    cookies: usize,
    te: bool,
}

/// The lines of a field, of which there is seldom more than one.
#[derive(Debug, Default)]
struct FieldValues<'r> {
    first: Option<&'r HeaderValue>,
    are_several: bool,
}

impl<'r> FieldValues<'r> {
    fn see(&mut self, line: &'r HeaderValue) {
        self.are_several = self.first.is_some();
        self.first = self.first.or(Some(line));
    }
}

impl ProxyHeaders {
    /// Writes all fields that upstream is to have, but for its own name and the body's length.
    pub(crate) fn write<B>(&self, request: &Request<B>, fields: &mut impl HeaderSink) {
        let headers = request.headers();
        let seen = self.write_own(request, fields);
        if seen.cookies > 0 {
            fields.put(&header::COOKIE, |value| join(value, headers, &header::COOKIE, b"; "));
        }
        if seen.te && tokens(headers, &header::TE).any(|t| t.eq_ignore_ascii_case("trailers")) {
            fields.put(&header::TE, |value| value.extend_from_slice(b"trailers"));
        }
        if let Some(protocol) = &self.upgrade {
            fields.put(&header::CONNECTION, |value| value.extend_from_slice(b"upgrade"));
            fields.put(&header::UPGRADE, |value| value.extend_from_slice(protocol.as_bytes()));
        }
        self.write_origin(request, &seen, fields);
    }

    /// Writes what the client sent and upstream is to have as it is.
    fn write_own<'r, B>(
        &self,
        request: &'r Request<B>,
        fields: &mut impl HeaderSink,
    ) -> ForwardingFields<'r> {
        let headers = request.headers();
        let doomed = connection_fields(headers);
        let mut seen = ForwardingFields::default();
        for (name, value) in headers {
            let text = name.as_str();
            match text {
                // Its sender also names it in `Connection`.
                "te" => seen.te = true,
                _ if doomed.contains(name) => continue,
                // The gateway itself asks for the body, and frames it.
                "host" | "expect" | "content-length" => continue,
                "x-forwarded-for" => seen.forwarded_for.see(value),
                "forwarded" => seen.forwarded.see(value),
                // HTTP/2 may send a cookie in several fields, which HTTP/1.1 may not.
                "cookie" if request.version() == Version::HTTP_2 => seen.cookies += 1,
                _ if is_hop_by_hop(name) => continue,
                // Fields of untrusted peers are replaced.
                _ if !self.client.is_trusted && is_a_claim(text) => continue,
                _ => {
                    match text {
                        "x-forwarded-proto" => seen.proto = true,
                        "x-forwarded-host" => seen.host = true,
                        "x-real-ip" => seen.real_ip = true,
                        _ => {}
                    }
                    fields.put(name, |written| written.extend_from_slice(value.as_bytes()));
                }
            }
        }
        seen
    }

    /// Writes the forwarding headers for upstream.
    fn write_origin<B>(
        &self,
        request: &Request<B>,
        seen: &ForwardingFields<'_>,
        fields: &mut impl HeaderSink,
    ) {
        let headers = request.headers();
        let ResolvedClient { peer, client, is_trusted } = self.client;
        let (proto, host) = (if self.is_secure { "https" } else { "http" }, asked_host(request));
        if !seen.proto {
            fields.put(&X_FORWARDED_PROTO, |value| value.extend_from_slice(proto.as_bytes()));
        }
        if let (Some(host), false) = (host, seen.host) {
            fields.put(&X_FORWARDED_HOST, |value| value.extend_from_slice(host));
        }
        fields.put(&X_FORWARDED_FOR, |value| {
            if is_trusted {
                continue_list(value, &seen.forwarded_for, headers, &X_FORWARDED_FOR);
            }
            write_address(value, peer);
        });
        fields.put(&header::FORWARDED, |value| {
            if is_trusted {
                continue_list(value, &seen.forwarded, headers, &header::FORWARDED);
            }
            write_hop(value, peer, host, proto);
        });
        if let (Some(client), false) = (client, seen.real_ip) {
            fields.put(&X_REAL_IP, |value| write_address(value, Some(client)));
        }
    }

    /// The name that upstream is called by.
    pub(crate) fn host<'r, B>(&self, request: &'r Request<B>, upstream: &'r Authority) -> &'r [u8] {
        let asked = asked_host(request).filter(|_| self.host == HostRule::Keep);
        asked.unwrap_or_else(|| upstream.as_str().as_bytes())
    }
}

/// A request's head for HTTP/2, which has the host in the target.
pub(crate) fn for_http2<B>(
    request: &Request<B>,
    proxy_headers: &ProxyHeaders,
    scheme: &Scheme,
    upstream: &Authority,
) -> Request<()> {
    let mut fields = HeaderMap::new();
    proxy_headers.write(request, &mut fields);
    let authority = Authority::try_from(proxy_headers.host(request, upstream)).ok();
    let mut target = http::uri::Parts::default();
    target.scheme = Some(scheme.clone());
    target.authority = Some(authority.unwrap_or_else(|| upstream.clone()));
    let path = match request.uri().query() {
        Some(query) => format!("{}?{query}", request.uri().path()).parse(),
        None => request.uri().path().parse(),
    };
    target.path_and_query = Some(path.unwrap_or_else(|_| PathAndQuery::from_static("/")));
    let mut addressed = Request::new(());
    *addressed.method_mut() = request.method().clone();
    *addressed.uri_mut() = Uri::from_parts(target).expect("a scheme, an authority and a path");
    *addressed.version_mut() = Version::HTTP_2;
    *addressed.headers_mut() = fields;
    addressed
}

/// The fields named in the client's `Connection`.
fn connection_fields(headers: &HeaderMap) -> HashSet<HeaderName> {
    if !headers.keys().any(|name| name.as_str() == "connection") {
        return HashSet::new();
    }
    named_by_connection(headers).collect()
}

/// The host that the client asked for.
fn asked_host<B>(request: &Request<B>) -> Option<&[u8]> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => {
            let host = request.headers().get(header::HOST)?.as_bytes();
            (!host.is_empty()).then_some(host)
        }
    }
}

/// Writes the lines of a list, to be continued.
fn continue_list(
    value: &mut Vec<u8>,
    lines: &FieldValues<'_>,
    headers: &HeaderMap,
    name: &HeaderName,
) {
    let before = value.len();
    match lines.first {
        _ if lines.are_several => join(value, headers, name, b", "),
        Some(line) => value.extend_from_slice(line.as_bytes()),
        None => {}
    }
    if value.len() > before {
        value.extend_from_slice(b", ");
    }
}

fn join(value: &mut Vec<u8>, headers: &HeaderMap, name: &HeaderName, between: &[u8]) {
    let lines = headers.get_all(name).iter().filter(|line| !line.is_empty());
    for (place, line) in lines.enumerate() {
        value.extend_from_slice(if place == 0 { b"" } else { between });
        value.extend_from_slice(line.as_bytes());
    }
}

/// An element of `Forwarded`.
fn write_hop(value: &mut Vec<u8>, peer: Option<IpAddr>, host: Option<&[u8]>, proto: &str) {
    value.extend_from_slice(b"for=");
    match peer {
        Some(IpAddr::V6(address)) => write!(value, "\"[{address}]\"").expect("a buffer takes all"),
        peer => write_address(value, peer),
    }
    if let Some(host) = host.filter(|host| is_quotable(host)) {
        value.extend_from_slice(b";host=\"");
        value.extend_from_slice(host);
        value.extend_from_slice(b"\"");
    }
    value.extend_from_slice(b";proto=");
    value.extend_from_slice(proto.as_bytes());
}

fn write_address(value: &mut Vec<u8>, address: Option<IpAddr>) {
    match address {
        // By hand, because it is done three times for every request.
        Some(IpAddr::V4(address)) => {
            let mut text = [0; 16];
            let mut length = 0;
            for octet in address.octets() {
                for unit in [100, 10, 1] {
                    if octet >= unit || unit == 1 {
                        text[length] = b'0' + octet / unit % 10;
                        length += 1;
                    }
                }
                text[length] = b'.';
                length += 1;
            }
            value.extend_from_slice(&text[..length - 1]);
        }
        Some(IpAddr::V6(address)) => write!(value, "{address}").expect("a buffer takes all"),
        None => value.extend_from_slice(b"unknown"),
    }
}

fn is_quotable(host: &[u8]) -> bool {
    host.iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(byte))
}
