//! What header fields say about one connection only.

use std::collections::HashSet;

use http::header;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The comma-separated words of a value.
pub(crate) fn words(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim)
}

/// The length that a value tells, in one way only.
pub(crate) fn length(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The comma-separated words of a header.
pub(crate) fn tokens<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h str> + use<'h> {
    headers.get_all(name).into_iter().flat_map(words)
}

/// Whether a field is for one connection only, whether `Connection` names it or not.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
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

/// The most names that `Connection` or `Trailer` can have: as many as a head can have fields. They
/// are looked up for every field of a head.
pub(crate) const MOST_NAMES: usize = 100;

/// Whether a list header has more names than there can be a use for.
pub(crate) fn has_too_many_names(headers: &HeaderMap, name: &HeaderName) -> bool {
    tokens(headers, name).nth(MOST_NAMES).is_some()
}

/// The fields that `Connection` names.
pub(crate) fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    tokens(headers, &header::CONNECTION)
        .filter_map(|token| token.parse().ok())
        // These are never for one connection, whatever somebody says.
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH].contains(name))
}

/// The trailers that a head announces, but for those that would be more than trailers: that say how
/// to read the message.
pub(crate) fn announced_trailers(headers: &HeaderMap) -> HashSet<HeaderName> {
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
        fields.contains(name) || is_hop_by_hop(name)
    };
    let named: HashSet<HeaderName> = named_by_connection(headers).collect();
    let announced = tokens(headers, &header::TRAILER).filter_map(|token| token.parse().ok());
    announced.filter(|name| !is_more(name) && !named.contains(name)).collect()
}
