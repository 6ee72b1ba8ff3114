//! The parts of a request's head that the gateway acts on.

use std::collections::HashSet;

use http::header;
use http::{HeaderMap, HeaderName, HeaderValue, Version, request};

use super::proxy_headers::is_a_claim;
use crate::http1::{self, tokens};

/// The protocol that a request wants to upgrade to, if it can be forwarded. HTTP/2 is not: a client
/// that changes to it behind the gateway's back is counted no more.
pub(crate) fn wanted_upgrade(head: &request::Parts) -> Option<HeaderValue> {
    let asked = head.version == Version::HTTP_11
        && tokens(&head.headers, &header::CONNECTION).any(|t| t.eq_ignore_ascii_case("upgrade"));
    let wanted = asked.then(|| head.headers.get(header::UPGRADE)).flatten()?;
    let is_http2 = wanted.as_bytes().windows(2).any(|two| two.eq_ignore_ascii_case(b"h2"));
    (!is_http2).then(|| wanted.clone())
}

/// The trailers that a head announces, but for those that would say where the message came from.
pub(crate) fn announced_trailers(headers: &HeaderMap) -> HashSet<HeaderName> {
    let mut announced = http1::announced_trailers(headers);
    announced.retain(|name| !is_a_claim(name.as_str()));
    announced
}
