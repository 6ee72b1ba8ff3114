//! Requests that cannot be read in one way only are refused before anything is counted.
//!
//! Where a body ends is not among the questions: hyper reads it and refuses what is malformed, drops
//! a length beside chunks and ends the connection, and frames the body anew for upstream, so that
//! nothing can hide between two requests. But a transfer coding other than chunks would be lost on
//! the way.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header, uri::Authority,
};

use super::error::ProxyError;
use super::proxy_headers::{has_too_many_names, hyphened_is, is_claim, remove_where, tokens};
use crate::HeaderRules;

/// Removes headers that upstream may take for others, and the client's say about headers that are
/// not the client's: those that name a request's origin and user, which a proxy in
/// front may have set.
pub(crate) fn clean(headers: &mut HeaderMap, rules: HeaderRules, identity: &[HeaderName]) {
    remove_where(headers, |name| name.contains('_') && (!rules.underscores || is_framing(name)));
    if headers.contains_key(header::CONNECTION) {
        keep_from_connection(headers, identity);
    }
}

/// Whether some servers would mistake the name for a framing header.
fn is_framing(name: &str) -> bool {
    hyphened_is(name, "transfer-encoding") || hyphened_is(name, "content-length")
}

/// Takes the names of protected headers out of `Connection`, which would have them removed.
fn keep_from_connection(headers: &mut HeaderMap, identity: &[HeaderName]) {
    let is_protected = |token: &str| {
        let Ok(name) = token.parse::<HeaderName>() else { return false };
        name.as_str().starts_with("x-forwarded-")
            || is_claim(name.as_str())
            || ["cf-connecting-ip", "x-api-key", "authorization"].contains(&name.as_str())
            || identity.contains(&name)
    };
    // Too many are refused anyway.
    if has_too_many_names(headers, &header::CONNECTION)
        || !tokens(headers, &header::CONNECTION).any(is_protected)
    {
        return;
    }
    let rest: Vec<&str> =
        tokens(headers, &header::CONNECTION).filter(|token| !is_protected(token)).collect();
    match HeaderValue::from_str(&rest.join(", ")) {
        Ok(rest) if !rest.is_empty() => drop(headers.insert(header::CONNECTION, rest)),
        _ => drop(headers.remove(header::CONNECTION)),
    }
}

/// What is wrong with a request, if anything is.
pub(crate) fn validate<B>(request: &Request<B>, rules: HeaderRules) -> Option<ProxyError> {
    if *request.method() == Method::CONNECT {
        return Some(ProxyError::NoTunnels);
    }
    if rules.refuse_overrides
        && let Some(problem) = override_objection(request)
    {
        return Some(problem);
    }
    let (uri, said) = (request.uri(), FramingFields::in_headers(request.headers()));
    let objection = target_objection(uri)
        .or_else(|| host_objection(uri, &said, request.version()))
        .or_else(|| framing_objection(&said))
        .or_else(|| names_objection(&said, request.headers()));
    objection.map(ProxyError::BadRequest)
}

/// The headers by which frameworks let a client ask for another method or path than it sent.
const OVERRIDES: [&str; 5] = [
    "x-original-url",
    "x-rewrite-url",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

fn override_objection<B>(request: &Request<B>) -> Option<ProxyError> {
    let method = request.method().as_str();
    if method.eq_ignore_ascii_case("TRACE") || method.eq_ignore_ascii_case("TRACK") {
        return Some(ProxyError::NoTrace);
    }
    let is_override =
        |name: &HeaderName| OVERRIDES.iter().any(|known| hyphened_is(name.as_str(), known));
    let why = "The request has a header that asks for another method or path.";
    request.headers().keys().any(is_override).then_some(ProxyError::BadRequest(why))
}

/// What the headers say of the host and the body, found in one go.
#[derive(Default)]
struct FramingFields<'h> {
    host: Option<&'h HeaderValue>,
    has_several_hosts: bool,
    coding: Option<&'h HeaderValue>,
    has_several_codings: bool,
    names_fields: bool,
}

impl<'h> FramingFields<'h> {
    fn in_headers(headers: &'h HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in headers {
            if *name == header::HOST {
                said.has_several_hosts = said.host.replace(value).is_some();
            } else if *name == header::TRANSFER_ENCODING {
                said.has_several_codings = said.coding.replace(value).is_some();
            } else if *name == header::CONNECTION || *name == header::TRAILER {
                said.names_fields = true;
            }
        }
        said
    }
}

fn framing_objection(said: &FramingFields<'_>) -> Option<&'static str> {
    let coding = said.coding?;
    let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    (said.has_several_codings || !is_chunked)
        .then_some("The request's body is coded in another way than in chunks.")
}

fn names_objection(said: &FramingFields<'_>, headers: &HeaderMap) -> Option<&'static str> {
    if !said.names_fields {
        return None;
    }
    let lists = [header::CONNECTION, header::TRAILER];
    let too_many = lists.iter().any(|list| has_too_many_names(headers, list));
    too_many.then_some("The request's Connection or Trailer names more than 100 fields.")
}

fn target_objection(uri: &Uri) -> Option<&'static str> {
    let authority = uri.authority()?;
    if uri.scheme().is_none() {
        return Some("The request's target is no path.");
    }
    let names_a_user = authority.as_str().contains('@');
    names_a_user.then_some("The request's target has a user in it.")
}

fn host_objection(uri: &Uri, said: &FramingFields<'_>, version: Version) -> Option<&'static str> {
    if said.has_several_hosts {
        return Some("The request has more than one Host.");
    }
    if let Some(host) = said.host {
        // Some clients send an empty one, which HTTP allows.
        if !host.is_empty() && Authority::try_from(host.as_bytes()).is_err() {
            return Some("The request's Host is no host.");
        }
        if host.as_bytes().contains(&b'@') {
            return Some("The request's Host has a user in it.");
        }
    }
    match (said.host, uri.authority()) {
        (None, None) if version == Version::HTTP_11 => Some("The request has no Host."),
        // HTTP/1.1 lets the target win; with HTTP/2, honest clients never send two that differ.
        (Some(host), Some(authority))
            if version == Version::HTTP_2
                && !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            Some("The request's Host is not its authority.")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection_to(builder: http::request::Builder) -> Option<ProxyError> {
        validate(&builder.body(()).unwrap(), HeaderRules::default())
    }

    #[test]
    fn what_is_plain_passes() {
        for host in ["example.com", "example.com:8080", "[::1]:80", ""] {
            let request = Request::get("/").header("host", host);
            assert_eq!(objection_to(request), None, "{host}");
        }
        let target_wins = Request::get("http://b.example/").header("host", "a.example");
        assert_eq!(objection_to(target_wins), None);
        assert_eq!(objection_to(Request::get("/").version(Version::HTTP_10)), None);
    }

    #[test]
    fn connection_names_no_header_that_is_not_the_clients() {
        let left = |values: &[&str]| {
            let lines = values.iter().map(|value| (header::CONNECTION, value.parse().unwrap()));
            let mut headers: HeaderMap = lines.collect();
            clean(&mut headers, HeaderRules::default(), &[HeaderName::from_static("x-tenant")]);
            let left = headers.get_all(header::CONNECTION).iter();
            left.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" | ")
        };
        assert_eq!(left(&["close, X-Hop"]), "close, X-Hop");
        assert_eq!(left(&["close", "X-Hop"]), "close | X-Hop");
        assert_eq!(left(&["close, X-Forwarded-For", "X-Tenant, x-hop"]), "close, x-hop");
        assert_eq!(left(&["x-real-ip,Forwarded , authorization, X-API-Key"]), "");
    }

    #[test]
    fn what_has_two_meanings_does_not() {
        let bad = |request| matches!(objection_to(request), Some(ProxyError::BadRequest(_)));
        assert!(bad(Request::get("/")));
        assert!(bad(Request::get("/").header("host", "a").header("host", "b")));
        assert!(bad(Request::get("/").header("host", "a").header("host", "a")));
        assert!(bad(Request::get("/").header("host", "a b")));
        assert!(bad(Request::get("/").header("host", "me@a")));
        assert!(bad(Request::get("http://me@a/").header("host", "a")));
        assert!(bad(Request::get("login").header("host", "a")));
        let coded =
            |coding| Request::post("/").header("host", "a").header("transfer-encoding", coding);
        assert!(!bad(coded("Chunked")));
        assert!(bad(coded("gzip, chunked")));
        assert!(bad(coded("chunked").header("transfer-encoding", "chunked")));
        assert!(bad(Request::get("http://a/").version(Version::HTTP_2).header("host", "b")));
        for list in ["connection", "trailer"] {
            let names = |count| vec!["x"; count].join(",");
            let request = |count| Request::get("/").header("host", "a").header(list, names(count));
            assert!(!bad(request(100)) && bad(request(101)), "{list}");
            assert!(bad(request(100).header(list, "y")), "{list} on two lines");
        }
        assert_eq!(objection_to(Request::connect("a:80")), Some(ProxyError::NoTunnels));
    }
}
