//! Headers of forwarded messages: removes hop-by-hop headers, and adds forwarding headers with the
//! origin of the request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header, request};
use smallvec::SmallVec;

use super::RequestOrigin;
use super::upstream::Upstream;
use crate::{ForwardingHeader, HostRule, ProxyConfig};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Subtracted from the keep-alive timeout that upstream announces: a request sent just before it
/// would arrive too late.
const KEEP_ALIVE_SLACK: Duration = Duration::from_secs(1);

/// Maximum names in `Connection` or `Trailer`, equal to the maximum number of header fields. Each
/// name costs a lookup.
const MAX_LISTED_NAMES: usize = 100;

/// The headers that the proxy adds to a request.
#[derive(Debug)]
pub(crate) struct ProxyHeaders {
    host_rule: HostRule,
    /// The host that the client requested.
    host: Option<HeaderValue>,
    /// The protocol that the client wants to upgrade to.
    upgrade: Option<HeaderValue>,
}

/// The header fields of a request that the proxy acts on.
#[derive(Debug, Default)]
pub struct RequestFields {
    pub(super) has_connection: bool,
    has_te: bool,
    /// Whether a forwarding header has underscores in place of hyphens.
    has_underscored_claim: bool,
    /// Forwarding headers of a proxy in front, or of a client that claims an origin.
    forwarding: ForwardingFields,
    /// Fields that upstream does not get.
    removed: Vec<HeaderName>,
}

/// Which forwarding headers a request has.
#[derive(Debug, Clone, Copy, Default)]
struct ForwardingFields([bool; ForwardingHeader::ALL.len()]);

impl RequestFields {
    pub(super) fn note(&mut self, name: &HeaderName) {
        let text = name.as_str();
        // hyper sends `100 Continue` to the client.
        if is_hop_by_hop(text) || *name == header::EXPECT {
            self.has_connection |= *name == header::CONNECTION;
            self.has_te |= *name == header::TE;
            self.removed.push(name.clone());
        } else if let Some(forwarding) = forwarding_header(text) {
            self.forwarding.0[forwarding as usize] = true;
        }
    }

    /// Notes a field with an underscore in its name.
    pub(super) fn note_underscored(&mut self, name: &str) {
        self.has_underscored_claim |= is_claim(name);
    }

    /// Removes what a client that is not trusted says about its origin.
    fn remove_claims(&mut self, headers: &mut HeaderMap) {
        for (name, claim) in ForwardingHeader::ALL {
            if self.forwarding.has(claim) {
                headers.remove(name);
            }
        }
        self.forwarding = ForwardingFields::default();
        if self.has_underscored_claim {
            let names = headers.keys().filter(|name| is_claim(name.as_str()));
            for name in names.cloned().collect::<Vec<_>>() {
                headers.remove(name);
            }
        }
    }
}

impl ForwardingFields {
    fn has(self, header: ForwardingHeader) -> bool {
        self.0[header as usize]
    }

    fn is_empty(self) -> bool {
        self.0 == [false; ForwardingHeader::ALL.len()]
    }
}

impl ProxyHeaders {
    /// Turns a client's headers into those sent to upstream, except `Host`.
    pub(crate) fn new(
        origin: RequestOrigin<'_>,
        config: &ProxyConfig,
        mut fields: RequestFields,
        head: &mut request::Parts,
    ) -> Self {
        let host = requested_host(head);
        let upgrade =
            fields.has_connection.then(|| requested_upgrade(head, &config.upgrades)).flatten();
        let headers = &mut head.headers;
        let takes_trailers = fields.has_te
            && tokens(headers, &header::TE).any(|t| t.eq_ignore_ascii_case("trailers"));
        if fields.has_connection {
            remove_named_by_connection(headers);
        }
        for name in &fields.removed {
            headers.remove(name);
        }
        if !origin.is_trusted {
            fields.remove_claims(headers);
        }
        if takes_trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        if let Some(protocol) = &upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocol.clone());
        }
        // HTTP/2 may send a cookie in several fields, which HTTP/1.1 may not.
        if head.version == Version::HTTP_2 {
            join(headers, &header::COOKIE, None, "; ");
        }
        add_origin(headers, origin, host.as_ref(), &config.forwarding, fields.forwarding);
        Self { host_rule: config.host, host, upgrade }
    }

    pub(crate) fn wants_upgrade(&self) -> bool {
        self.upgrade.is_some()
    }

    /// Addresses a request to a server, in the version that it speaks.
    pub(crate) fn address(&self, head: &mut request::Parts, server: &Upstream) {
        let requested = self.host.as_ref().filter(|_| self.host_rule == HostRule::Keep);
        let own = || HeaderValue::try_from(server.authority.as_str());
        let path = head.uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if !server.http2 {
            head.version = Version::HTTP_11;
            head.uri = Uri::from(path);
            if let Some(host) = requested.cloned().or_else(|| own().ok()) {
                head.headers.insert(header::HOST, host);
            }
            return;
        }
        let requested = requested.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let mut target = http::uri::Parts::default();
        target.scheme = Some(server.scheme.clone());
        target.authority = Some(requested.unwrap_or_else(|| server.authority.clone()));
        target.path_and_query = Some(path);
        head.version = Version::HTTP_2;
        head.uri = Uri::from_parts(target).expect("a scheme, an authority and a path");
        for name in [header::HOST, header::CONNECTION, header::UPGRADE, header::TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
    }
}

/// Writes the configured forwarding headers. Those in `present` are a trusted proxy's.
fn add_origin(
    headers: &mut HeaderMap,
    origin: RequestOrigin<'_>,
    host: Option<&HeaderValue>,
    configured: &[ForwardingHeader],
    present: ForwardingFields,
) {
    let RequestOrigin { accepted, client, .. } = origin;
    let proto = if accepted.secure { "https" } else { "http" };
    let address = accepted.peer_value();
    let is_missing = |header| configured.contains(&header) && !present.has(header);
    if is_missing(ForwardingHeader::XForwardedProto) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
    if is_missing(ForwardingHeader::XForwardedHost)
        && let Some(host) = host
    {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    if is_missing(ForwardingHeader::XRealIp)
        && let Some(client) = client
    {
        headers.insert(X_REAL_IP, value(client.to_string()));
    }
    // Servers that prefer `Forwarded` would ignore the `X-Forwarded-*` headers of a proxy in front.
    if present.has(ForwardingHeader::Forwarded)
        || (is_missing(ForwardingHeader::Forwarded) && present.is_empty())
    {
        let element = value(forwarded(&node(accepted.peer), host, proto));
        join(headers, &header::FORWARDED, Some(&element), ", ");
    }
    if present.has(ForwardingHeader::XForwardedFor) {
        join(headers, &X_FORWARDED_FOR, Some(address), ", ");
    } else if is_missing(ForwardingHeader::XForwardedFor) {
        headers.insert(X_FORWARDED_FOR, address.clone());
    }
}

/// A peer in an element of `Forwarded`.
fn node(peer: Option<IpAddr>) -> String {
    match peer {
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => format!("\"[{address}]\""),
        None => "unknown".to_owned(),
    }
}

/// An element of `Forwarded`, of RFC 7239.
fn forwarded(node: &str, host: Option<&HeaderValue>, proto: &str) -> String {
    match host.and_then(quotable) {
        Some(host) => ["for=", node, ";host=\"", host, "\";proto=", proto].concat(),
        None => ["for=", node, ";proto=", proto].concat(),
    }
}

/// The connection properties in upstream's response headers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseFraming {
    /// How long upstream keeps the idle connection open. Zero if the connection should not be
    /// reused.
    pub(crate) kept_for: Option<Duration>,
}

/// Turns upstream's headers into those sent to the client. The error describes an ambiguity.
pub(crate) fn clean_response(headers: &mut HeaderMap) -> Result<ResponseFraming, &'static str> {
    let mut framing = ResponseFraming::default();
    let mut removed: SmallVec<[HeaderName; 4]> = SmallVec::new();
    let (mut codings, mut lengths, mut has_connection) = (0, 0, false);
    for (name, value) in &*headers {
        if *name == header::CONTENT_LENGTH {
            lengths += 1;
            continue;
        }
        if !is_hop_by_hop(name.as_str()) {
            continue;
        }
        removed.push(name.clone());
        if *name == header::TRANSFER_ENCODING {
            codings += 1;
            if codings > 1 || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err("transfer coding of the response is not chunked");
            }
        } else if *name == header::CONNECTION {
            has_connection = true;
        } else if name.as_str() == "keep-alive" && framing.kept_for.is_none() {
            let seconds = words(value).find_map(|word| word.strip_prefix("timeout=")?.parse().ok());
            let kept_for = seconds.map(Duration::from_secs);
            framing.kept_for = kept_for.map(|time| time.saturating_sub(KEEP_ALIVE_SLACK));
        }
    }
    // Chunked wins, but an upstream that sends both may have meant the length.
    if codings > 0 && headers.remove(header::CONTENT_LENGTH).is_some() {
        framing.kept_for = Some(Duration::ZERO);
    } else if lengths > 1
        && let Some(length) = headers.get(header::CONTENT_LENGTH).cloned()
    {
        // The values are equal: hyper rejects differing ones.
        headers.insert(header::CONTENT_LENGTH, length);
    }
    if has_connection {
        remove_named_by_connection(headers);
    }
    for name in removed {
        headers.remove(name);
    }
    Ok(framing)
}

/// Removes the fields that `Connection` names.
fn remove_named_by_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        // These are removed anyway, and nearly every server names `keep-alive`.
        .filter(|token| !is_hop_by_hop(token))
        .filter_map(|token| token.parse().ok())
        // `Connection` must not remove these.
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH].contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Whether a field is always hop-by-hop, even if `Connection` does not name it.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "te"
            | "upgrade"
            | "transfer-encoding"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "keep-alive"
            | "proxy-connection"
            | "http2-settings"
    )
}

/// Whether a field claims the origin of a request, also to servers that read an underscore as a
/// hyphen.
pub(super) fn is_claim(name: &str) -> bool {
    forwarding_header(&hyphened(name)).is_some()
}

fn forwarding_header(name: &str) -> Option<ForwardingHeader> {
    let mut all = ForwardingHeader::ALL.into_iter();
    all.find(|(known, _)| *known == name).map(|(_, header)| header)
}

/// A name as servers read it that take an underscore for a hyphen.
pub(super) fn hyphened(name: &str) -> Cow<'_, str> {
    if name.contains('_') { name.replace('_', "-").into() } else { name.into() }
}

/// Joins all fields of a name into one and appends an element.
fn join(
    headers: &mut HeaderMap,
    name: &HeaderName,
    element: Option<&HeaderValue>,
    separator: &str,
) {
    let lines = headers.get_all(name).iter().chain(element).map(HeaderValue::as_bytes);
    let lines: SmallVec<[&[u8]; 4]> = lines.filter(|line| !line.is_empty()).collect();
    let joined = lines.join(separator.as_bytes());
    drop(lines);
    if !joined.is_empty() {
        let joined = HeaderValue::from_maybe_shared(Bytes::from(joined));
        headers.insert(name, joined.expect("made of valid values"));
    }
}

/// A value of visible characters.
fn value(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("visible characters")
}

/// The comma-separated words of a value.
fn words(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim)
}

/// The comma-separated words of a header.
pub(super) fn tokens<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h str> + use<'h> {
    headers.get_all(name).into_iter().flat_map(words)
}

/// Whether a list header exceeds `MAX_LISTED_NAMES`.
pub(super) fn has_too_many_names(headers: &HeaderMap, name: &HeaderName) -> bool {
    tokens(headers, name).nth(MAX_LISTED_NAMES).is_some()
}

/// The host that the client requested.
fn requested_host(head: &request::Parts) -> Option<HeaderValue> {
    match head.uri.authority() {
        Some(authority) => HeaderValue::try_from(authority.as_str()).ok(),
        None => head.headers.get(header::HOST).filter(|host| !host.is_empty()).cloned(),
    }
}

/// The protocol that a request wants to upgrade to, if the proxy forwards it.
fn requested_upgrade(head: &request::Parts, upgrades: &[HeaderValue]) -> Option<HeaderValue> {
    let is_upgrade = head.version == Version::HTTP_11
        && tokens(&head.headers, &header::CONNECTION).any(|t| t.eq_ignore_ascii_case("upgrade"));
    let requested = is_upgrade.then(|| head.headers.get(header::UPGRADE)).flatten()?;
    let is_requested =
        |known: &&HeaderValue| known.as_bytes().eq_ignore_ascii_case(requested.as_bytes());
    upgrades.iter().find(is_requested).cloned()
}

fn quotable(host: &HeaderValue) -> Option<&str> {
    let host = host.to_str().ok()?;
    let is_plain = host.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
    is_plain.then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(
        fields: &[(&'static str, &'static str)],
    ) -> (Result<ResponseFraming, &'static str>, HeaderMap) {
        let fields = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers: HeaderMap = fields.collect();
        (clean_response(&mut headers), headers)
    }

    #[test]
    fn a_response_is_framed_in_one_way() {
        let (framing, headers) = cleaned(&[("content-length", "5"), ("content-length", "5")]);
        assert_eq!(framing, Ok(ResponseFraming::default()));
        assert_eq!(headers.get_all("content-length").iter().count(), 1);
        let (framing, headers) =
            cleaned(&[("content-length", "5"), ("transfer-encoding", "Chunked")]);
        assert_eq!(framing.unwrap().kept_for, Some(Duration::ZERO), "it is not used again");
        assert!(headers.is_empty());
        for codings in
            [&[("transfer-encoding", "gzip, chunked")][..], &[("transfer-encoding", "chunked"); 2]]
        {
            assert!(cleaned(codings).0.is_err(), "{codings:?}");
        }
    }

    #[test]
    fn upstream_says_how_long_it_keeps_connections() {
        let kept_for = |value| cleaned(&[("keep-alive", value)]).0.unwrap().kept_for;
        assert_eq!(kept_for("timeout=5, max=100"), Some(Duration::from_secs(4)));
        assert_eq!(kept_for("max=100, timeout=1"), Some(Duration::ZERO));
        assert_eq!(kept_for("timeout=soon"), None);
    }
}
