//! Refuses ambiguous requests before they are counted.
//!
//! Body framing needs no check here: hyper rejects a malformed body, drops `Content-Length` beside
//! chunked and closes the connection, and frames the body again for upstream, so nothing can be
//! smuggled between two requests. But a transfer coding other than chunked would be lost.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header, uri::Authority,
};

use super::error::ProxyError;
use super::proxy_headers::{RequestFields, has_too_many_names, hyphened, is_claim, tokens};
use crate::HeaderRules;

/// Checks that a request is unambiguous, in one pass over its headers, which finds what the proxy acts
/// on later.
///
/// Also if it is not, headers that upstream could mistake for others are removed, and protected names
/// are removed from `Connection`: headers with a request's origin or user, which a proxy in front may
/// have set.
pub(crate) fn inspect<B>(
    request: &mut Request<B>,
    rules: HeaderRules,
    identity: &[HeaderName],
) -> Result<RequestFields, ProxyError> {
    let mut fields = RequestFields::default();
    let mut framing = FramingFields::default();
    let mut mistakable = Vec::new();
    for (name, value) in request.headers() {
        let text = name.as_str();
        if !text.contains('_') {
            fields.note(name);
            framing.note(name, value);
        } else if rules.underscores && !is_framing(text) {
            fields.note_underscored(text);
        } else {
            mistakable.push(name.clone());
            continue;
        }
        framing.has_override |= rules.refuse_overrides && is_override(text);
    }
    let validated = validate(request, &framing, rules);
    for name in mistakable {
        request.headers_mut().remove(name);
    }
    if fields.has_connection {
        keep_from_connection(request.headers_mut(), identity);
    }
    validated.map(|()| fields)
}

/// Whether some servers would mistake the name for a framing header.
fn is_framing(name: &str) -> bool {
    ["transfer-encoding", "content-length"].contains(&&*hyphened(name))
}

/// Headers that say who sends a request, and in which trace. They are end-to-end by definition.
const PROTECTED: [&str; 5] =
    ["cf-connecting-ip", "x-api-key", "authorization", "traceparent", "tracestate"];

/// Removes the names of protected headers from `Connection`, which would remove the headers.
fn keep_from_connection(headers: &mut HeaderMap, identity: &[HeaderName]) {
    let is_protected = |token: &str| {
        let Ok(name) = token.parse::<HeaderName>() else { return false };
        name.as_str().starts_with("x-forwarded-")
            || is_claim(name.as_str())
            || PROTECTED.contains(&name.as_str())
            || identity.contains(&name)
    };
    // A request with too many names is refused.
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

fn validate<B>(
    request: &Request<B>,
    fields: &FramingFields<'_>,
    rules: HeaderRules,
) -> Result<(), ProxyError> {
    if *request.method() == Method::CONNECT {
        return Err(ProxyError::ConnectNotAllowed);
    }
    if rules.refuse_overrides {
        validate_method(request.method())?;
    }
    let uri = request.uri();
    reject_if(fields.has_override, "The request has a header that overrides its method or path.")
        .and_then(|()| validate_target(uri))
        .and_then(|()| validate_host(uri, fields, request.version()))
        .and_then(|()| validate_framing(fields))
        .and_then(|()| validate_names(fields, request.headers()))
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

fn is_override(name: &str) -> bool {
    OVERRIDE_HEADERS.contains(&&*hyphened(name))
}

fn validate_method(method: &Method) -> Result<(), ProxyError> {
    let method = method.as_str();
    let is_trace = method.eq_ignore_ascii_case("TRACE") || method.eq_ignore_ascii_case("TRACK");
    if is_trace { Err(ProxyError::TraceNotAllowed) } else { Ok(()) }
}

fn reject_if(condition: bool, why: &'static str) -> Result<(), &'static str> {
    if condition { Err(why) } else { Ok(()) }
}

/// The headers that can give a request a second meaning.
#[derive(Default)]
struct FramingFields<'h> {
    host: Option<&'h HeaderValue>,
    has_several_hosts: bool,
    coding: Option<&'h HeaderValue>,
    has_several_codings: bool,
    names_fields: bool,
    /// Whether a header that the rules refuse overrides the method or path.
    has_override: bool,
}

impl<'h> FramingFields<'h> {
    fn note(&mut self, name: &HeaderName, value: &'h HeaderValue) {
        if *name == header::HOST {
            self.has_several_hosts |= self.host.replace(value).is_some();
        } else if *name == header::TRANSFER_ENCODING {
            self.has_several_codings |= self.coding.replace(value).is_some();
        } else if *name == header::CONNECTION || *name == header::TRAILER {
            self.names_fields = true;
        }
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
        inspect(&mut builder.body(()).unwrap(), HeaderRules::default(), &[]).map(drop)
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
            let mut request = Request::new(());
            *request.headers_mut() = lines.collect();
            let identity = [HeaderName::from_static("x-tenant")];
            // A request without a host is refused, but not before this.
            assert!(inspect(&mut request, HeaderRules::default(), &identity).is_err());
            let left = request.headers().get_all(header::CONNECTION).iter();
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
