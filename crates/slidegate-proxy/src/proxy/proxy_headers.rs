//! Headers of forwarded messages: removes hop-by-hop headers, and adds forwarding headers with the
//! origin of the request.

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

/// The fields of a request that the proxy acts on, found in one pass.
#[derive(Default)]
struct ActedOn {
    has_connection: bool,
    has_te: bool,
    /// Fields that upstream does not get.
    removed: SmallVec<[HeaderName; 4]>,
    /// Forwarding headers of a trusted proxy in front.
    forwarding: SmallVec<[ForwardingHeader; 5]>,
}

impl ActedOn {
    fn in_headers(headers: &HeaderMap, is_trusted: bool) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            let text = name.as_str();
            found.has_connection |= *name == header::CONNECTION;
            found.has_te |= *name == header::TE;
            let forwarding = forwarding_header(text);
            // hyper sends `100 Continue` to the client.
            if is_hop_by_hop(text)
                || *name == header::EXPECT
                || (!is_trusted && forwarding.is_some())
            {
                found.removed.push(name.clone());
            } else if let Some(forwarding) = forwarding.filter(|_| !text.contains('_')) {
                found.forwarding.push(forwarding);
            }
        }
        found
    }
}

impl ProxyHeaders {
    /// Turns a client's headers into those sent to upstream, except `Host`.
    pub(crate) fn new(
        origin: RequestOrigin,
        config: &ProxyConfig,
        head: &mut request::Parts,
    ) -> Self {
        let acted_on = ActedOn::in_headers(&head.headers, origin.is_trusted);
        let host = requested_host(head);
        let upgrade =
            acted_on.has_connection.then(|| requested_upgrade(head, &config.upgrades)).flatten();
        let headers = &mut head.headers;
        let takes_trailers = acted_on.has_te
            && tokens(headers, &header::TE).any(|t| t.eq_ignore_ascii_case("trailers"));
        if acted_on.has_connection {
            remove_named_by_connection(headers);
        }
        for name in &acted_on.removed {
            headers.remove(name);
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
        add_origin(headers, origin, host.as_ref(), &config.forwarding, &acted_on.forwarding);
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
    origin: RequestOrigin,
    host: Option<&HeaderValue>,
    configured: &[ForwardingHeader],
    present: &[ForwardingHeader],
) {
    let RequestOrigin { peer, client, .. } = origin;
    let proto = if origin.is_secure { "https" } else { "http" };
    let address = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    let is_missing = |header| configured.contains(&header) && !present.contains(&header);
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
    if present.contains(&ForwardingHeader::Forwarded)
        || (is_missing(ForwardingHeader::Forwarded) && present.is_empty())
    {
        let is_bare = peer.is_none_or(|peer| peer.is_ipv4());
        let node = if is_bare { &address } else { &format!("\"[{address}]\"") };
        let element = forwarded(node, host, proto);
        join(headers, &header::FORWARDED, Some(element), ", ");
    }
    if present.contains(&ForwardingHeader::XForwardedFor) {
        join(headers, &X_FORWARDED_FOR, Some(address), ", ");
    } else if is_missing(ForwardingHeader::XForwardedFor) {
        headers.insert(X_FORWARDED_FOR, value(address));
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

/// Removes all fields whose name matches. Usually there are none.
pub(super) fn remove_where(headers: &mut HeaderMap, is_removed: impl Fn(&str) -> bool) {
    if headers.keys().any(|name| is_removed(name.as_str())) {
        let names = headers.keys().filter(|name| is_removed(name.as_str()));
        for name in names.cloned().collect::<Vec<_>>() {
            headers.remove(name);
        }
    }
}

/// Whether a field claims the origin of a request, also to servers that read an underscore as a
/// hyphen.
pub(super) fn is_claim(name: &str) -> bool {
    forwarding_header(name).is_some()
}

fn forwarding_header(name: &str) -> Option<ForwardingHeader> {
    let mut all = ForwardingHeader::ALL.into_iter();
    all.find(|(hyphened, _)| hyphened_is(name, hyphened)).map(|(_, header)| header)
}

/// Whether a name equals `hyphened` to servers that read an underscore as a hyphen.
pub(super) fn hyphened_is(name: &str, hyphened: &str) -> bool {
    let read = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.len() == hyphened.len() && hyphened.bytes().eq(name.bytes().map(read))
}

/// Joins all fields of a name into one and appends an element.
fn join(headers: &mut HeaderMap, name: &HeaderName, element: Option<String>, separator: &str) {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let mut lines = lines.filter(|line| !line.is_empty()).peekable();
    let joined = match (lines.peek(), element) {
        (None, None) => return,
        (None, Some(element)) => value(element),
        (Some(_), element) => {
            let elements = lines.chain(element.as_ref().map(String::as_bytes));
            let joined = elements.collect::<Vec<_>>().join(separator.as_bytes());
            HeaderValue::from_maybe_shared(Bytes::from(joined)).expect("made of valid values")
        }
    };
    headers.insert(name, joined);
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
