//! Headers of forwarded messages: removes hop-by-hop headers, and adds forwarding headers with the
//! origin of the request.

use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header, request};

use super::RequestOrigin;
use super::upstream::Upstream;
use crate::HostRule;

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
    origin: RequestOrigin,
    host_rule: HostRule,
    /// The host that the client requested.
    host: Option<HeaderValue>,
    /// The protocol that the client wants to upgrade to.
    upgrade: Option<HeaderValue>,
}

impl ProxyHeaders {
    pub(crate) fn new(
        origin: RequestOrigin,
        host_rule: HostRule,
        upgrades: &[HeaderValue],
        head: &request::Parts,
    ) -> Self {
        let (host, upgrade) = (requested_host(head), requested_upgrade(head, upgrades));
        Self { origin, host_rule, host, upgrade }
    }

    pub(crate) fn wants_upgrade(&self) -> bool {
        self.upgrade.is_some()
    }

    /// Turns a client's headers into those sent to upstream, except `Host`.
    pub(crate) fn apply(&self, head: &mut request::Parts) {
        let headers = &mut head.headers;
        let takes_trailers =
            tokens(headers, &header::TE).any(|t| t.eq_ignore_ascii_case("trailers"));
        remove_hop_by_hop(headers);
        // hyper sends `100 Continue` to the client.
        headers.remove(header::EXPECT);
        if takes_trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        if let Some(protocol) = &self.upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocol.clone());
        }
        // HTTP/2 may send a cookie in several fields, which HTTP/1.1 may not.
        if head.version == Version::HTTP_2 {
            join(headers, &header::COOKIE, None, "; ");
        }
        if !self.origin.is_trusted {
            remove_where(headers, is_claim);
        }
        self.add_origin(headers);
    }

    fn add_origin(&self, headers: &mut HeaderMap) {
        let RequestOrigin { peer, client, .. } = self.origin;
        // Servers that prefer `Forwarded` would ignore the `X-Forwarded-*` headers of a proxy in front.
        let is_forwarded = headers.contains_key(header::FORWARDED)
            || ![X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REAL_IP]
                .iter()
                .any(|name| headers.contains_key(name));
        let proto = if self.origin.is_secure { "https" } else { "http" };
        let address = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(proto));
        if let Some(host) = &self.host {
            headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
        }
        if let Some(client) = client {
            headers.entry(X_REAL_IP).or_insert_with(|| value(client.to_string()));
        }
        if is_forwarded {
            let is_bare = peer.is_none_or(|peer| peer.is_ipv4());
            let node = if is_bare { address.clone() } else { format!("\"[{address}]\"") };
            join(headers, &header::FORWARDED, Some(self.forwarded(&node, proto)), ", ");
        }
        join(headers, &X_FORWARDED_FOR, Some(address), ", ");
    }

    /// An element of `Forwarded`, of RFC 7239.
    fn forwarded(&self, node: &str, proto: &str) -> String {
        match self.host.as_ref().and_then(quotable) {
            Some(host) => ["for=", node, ";host=\"", host, "\";proto=", proto].concat(),
            None => ["for=", node, ";proto=", proto].concat(),
        }
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
    if let Some(keep_alive) = headers.get("keep-alive") {
        let mut words = words(keep_alive);
        let seconds = words.find_map(|word| word.strip_prefix("timeout=")?.parse().ok());
        let kept_for = seconds.map(Duration::from_secs);
        framing.kept_for = kept_for.map(|time| time.saturating_sub(KEEP_ALIVE_SLACK));
    }
    if let Some(coding) = headers.get(header::TRANSFER_ENCODING) {
        let is_one = headers.get_all(header::TRANSFER_ENCODING).iter().nth(1).is_none();
        if !is_one || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err("transfer coding of the response is not chunked");
        }
        // Chunked wins, but an upstream that sends both may have meant the length.
        if headers.remove(header::CONTENT_LENGTH).is_some() {
            framing.kept_for = Some(Duration::ZERO);
        }
    }
    if headers.get_all(header::CONTENT_LENGTH).iter().nth(1).is_some()
        && let Some(length) = headers.get(header::CONTENT_LENGTH).cloned()
    {
        // The values are equal: hyper rejects differing ones.
        headers.insert(header::CONTENT_LENGTH, length);
    }
    remove_hop_by_hop(headers);
    Ok(framing)
}

/// Removes hop-by-hop headers.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
            .filter_map(|token| token.parse().ok())
            // `Connection` must not remove these.
            .filter(|name| ![header::HOST, header::CONTENT_LENGTH].contains(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    remove_where(headers, is_hop_by_hop);
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
    let claims =
        ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "forwarded"];
    claims.iter().any(|claim| hyphened_is(name, claim))
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
