//! What is for one connection only, in the heads of requests and responses.

use http::header;
use http::{HeaderMap, HeaderName, HeaderValue, Version, request};

use super::passage::is_a_claim;

/// The protocol that a request wants to change to, if it is one to pass on. HTTP/2 is not: who
/// changes to it behind the gateway's back is counted no more.
pub(crate) fn wanted_upgrade(head: &request::Parts) -> Option<HeaderValue> {
    let asked = head.version == Version::HTTP_11
        && tokens(&head.headers, &header::CONNECTION).any(|t| t.eq_ignore_ascii_case("upgrade"));
    let wanted = asked.then(|| head.headers.get(header::UPGRADE)).flatten()?;
    let is_http2 = wanted.as_bytes().windows(2).any(|two| two.eq_ignore_ascii_case(b"h2"));
    (!is_http2).then(|| wanted.clone())
}

/// The trailers that a head announces, but for those that would be more than trailers: that say how
/// to read the message, or where it came from.
pub(crate) fn announced_trailers(headers: &HeaderMap) -> Vec<HeaderName> {
    let is_more = |name: &HeaderName| {
        let fields = [
            header::CONTENT_LENGTH,
            header::CONTENT_TYPE,
            header::CONTENT_ENCODING,
            header::CONTENT_RANGE,
            header::HOST,
            header::AUTHORIZATION,
            header::EXPECT,
            header::TRAILER,
            header::COOKIE,
            header::SET_COOKIE,
            header::CACHE_CONTROL,
            header::MAX_FORWARDS,
        ];
        fields.contains(name) || is_hop_by_hop(name) || is_a_claim(name.as_str())
    };
    let named: Vec<HeaderName> = named_by_connection(headers).collect();
    let announced = tokens(headers, &header::TRAILER).filter_map(|token| token.parse().ok());
    announced.filter(|name| !is_more(name) && !named.contains(name)).collect()
}

/// Whether a field is for one connection only, whether `Connection` names it or not.
pub(super) fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
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

/// The fields that `Connection` names.
pub(super) fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    tokens(headers, &header::CONNECTION)
        .filter_map(|token| token.parse().ok())
        // These are never for one connection, whatever somebody says.
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH].contains(name))
}

/// The comma-separated words of a header.
pub(super) fn tokens<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h str> + use<'h> {
    let lines = headers.get_all(name).into_iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}
