//! Refuses ambiguous requests before they are counted.
//!
//! Body framing needs no check here: hyper rejects a malformed body, drops `Content-Length` beside
//! chunked and closes the connection, and frames the body again for upstream, so nothing can be
//! smuggled between two requests. But a transfer coding other than chunked would be lost.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header, uri::Authority,
};

use super::error::ProxyError;
use super::proxy_headers::{has_too_many_names, hyphened_is, is_claim, remove_where, tokens};
use crate::HeaderRules;

/// Removes headers that upstream could mistake for others, and removes protected names from
/// `Connection`: headers with a request's origin or user, which a proxy in front may have set.
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

/// Removes the names of protected headers from `Connection`, which would remove the headers.
fn keep_from_connection(headers: &mut HeaderMap, identity: &[HeaderName]) {
    let is_protected = |token: &str| {
        let Ok(name) = token.parse::<HeaderName>() else { return false };
        name.as_str().starts_with("x-forwarded-")
            || is_claim(name.as_str())
            || ["cf-connecting-ip", "x-api-key", "authorization"].contains(&name.as_str())
            || identity.contains(&name)
    };
    // `validate` refuses a request with too many names.
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

/// Checks that a request is unambiguous.
pub(crate) fn validate<B>(request: &Request<B>, rules: HeaderRules) -> Result<(), ProxyError> {
    if *request.method() == Method::CONNECT {
        return Err(ProxyError::ConnectNotAllowed);
    }
    if rules.refuse_overrides {
        validate_overrides(request)?;
    }
    let (uri, fields) = (request.uri(), FramingFields::in_headers(request.headers()));
    validate_target(uri)
        .and_then(|()| validate_host(uri, &fields, request.version()))
        .and_then(|()| validate_framing(&fields))
        .and_then(|()| validate_names(&fields, request.headers()))
        .map_err(ProxyError::BadRequest)
}

/// Headers with which frameworks let a client override the method or path.
const OVERRIDE_HEADERS: [&str; 5] = [
    "x-original-url",
    "x-rewrite-url",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

fn validate_overrides<B>(request: &Request<B>) -> Result<(), ProxyError> {
    let method = request.method().as_str();
    if method.eq_ignore_ascii_case("TRACE") || method.eq_ignore_ascii_case("TRACK") {
        return Err(ProxyError::TraceNotAllowed);
    }
    let is_override =
        |name: &HeaderName| OVERRIDE_HEADERS.iter().any(|known| hyphened_is(name.as_str(), known));
    let why = "The request has a header that overrides its method or path.";
    reject_if(request.headers().keys().any(is_override), why).map_err(ProxyError::BadRequest)
}

fn reject_if(condition: bool, why: &'static str) -> Result<(), &'static str> {
    if condition { Err(why) } else { Ok(()) }
}

/// The headers about host and body, found in one pass.
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
        let mut fields = Self::default();
        for (name, value) in headers {
            if *name == header::HOST {
                fields.has_several_hosts = fields.host.replace(value).is_some();
            } else if *name == header::TRANSFER_ENCODING {
                fields.has_several_codings = fields.coding.replace(value).is_some();
            } else if *name == header::CONNECTION || *name == header::TRAILER {
                fields.names_fields = true;
            }
        }
        fields
    }
}

fn validate_framing(fields: &FramingFields<'_>) -> Result<(), &'static str> {
    let Some(coding) = fields.coding else { return Ok(()) };
    let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    let why = "The request's transfer coding is not chunked.";
    reject_if(fields.has_several_codings || !is_chunked, why)
}

fn validate_names(fields: &FramingFields<'_>, headers: &HeaderMap) -> Result<(), &'static str> {
    let lists = [header::CONNECTION, header::TRAILER];
    let too_many = || lists.iter().any(|list| has_too_many_names(headers, list));
    let why = "The request's Connection or Trailer names more than 100 fields.";
    reject_if(fields.names_fields && too_many(), why)
}

fn validate_target(uri: &Uri) -> Result<(), &'static str> {
    let Some(authority) = uri.authority() else { return Ok(()) };
    reject_if(uri.scheme().is_none(), "Invalid request target.")?;
    reject_if(authority.as_str().contains('@'), "The request's target contains user information.")
}

fn validate_host(
    uri: &Uri,
    fields: &FramingFields<'_>,
    version: Version,
) -> Result<(), &'static str> {
    reject_if(fields.has_several_hosts, "The request has more than one Host.")?;
    if let Some(host) = fields.host {
        // HTTP allows an empty Host, and some clients send one.
        let is_malformed = !host.is_empty() && Authority::try_from(host.as_bytes()).is_err();
        reject_if(is_malformed, "Invalid Host header.")?;
        reject_if(
            host.as_bytes().contains(&b'@'),
            "The request's Host contains user information.",
        )?;
    }
    match (fields.host, uri.authority()) {
        (None, None) => reject_if(version == Version::HTTP_11, "The request has no Host."),
        // In HTTP/1.1 the target wins; in HTTP/2, legitimate clients never send differing ones.
        (Some(host), Some(authority)) if version == Version::HTTP_2 => {
            let is_same = host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
            reject_if(!is_same, "The request's Host differs from its authority.")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validated(builder: http::request::Builder) -> Result<(), ProxyError> {
        validate(&builder.body(()).unwrap(), HeaderRules::default())
    }

    #[test]
    fn plain_requests_are_valid() {
        for host in ["example.com", "example.com:8080", "[::1]:80", ""] {
            let request = Request::get("/").header("host", host);
            assert_eq!(validated(request), Ok(()), "{host}");
        }
        let target_wins = Request::get("http://b.example/").header("host", "a.example");
        assert_eq!(validated(target_wins), Ok(()));
        assert_eq!(validated(Request::get("/").version(Version::HTTP_10)), Ok(()));
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
    fn requests_with_two_meanings_are_invalid() {
        let bad = |request| matches!(validated(request), Err(ProxyError::BadRequest(_)));
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
        assert_eq!(validated(Request::connect("a:80")), Err(ProxyError::ConnectNotAllowed));
    }
}
