//! Who may use the admin and decision APIs: callers with the token or on this machine, and no web
//! page of another site.

use std::net::IpAddr;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};

use crate::endpoint::problem::Problem;
use crate::endpoint::token::{RequiredToken, bearer, peer};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets requests pass that present the token. Where there is none, requests must address this
/// machine by an IP address or as localhost. That keeps web pages out: with DNS rebinding a page can
/// have its own name resolve to this machine, but its requests carry that name.
pub(crate) async fn authorize(
    State(token): State<Option<RequiredToken>>,
    request: Request,
    next: Next,
) -> Response {
    let checked = token.map(|token| token.check(bearer(request.headers()), peer(&request)));
    match checked {
        Some(Err(error)) => {
            let expected = "This page needs the operator's token: Authorization: Bearer TOKEN.";
            error.respond(expected).map(Body::from)
        }
        None if request.uri().path() != "/metrics" && !has_local_host(&request) => {
            not_local().into_response()
        }
        _ => next.run(request).await,
    }
}

/// Accepts questions of programs and proxies, where there is no token, and refuses those that a web
/// page has a browser send.
///
/// The client's headers come along with what a proxy asks, `Origin` and `Sec-Fetch-Site` among them, and
/// some proxies keep the client's `Host`. So they count only where they cannot be the client's: a page
/// that has rebound its name has to address this listener's port, and one of another site cannot add
/// the headers by which proxies describe a request.
pub(crate) fn only_programs<B>(ports: &[u16], request: &http::Request<B>) -> Result<(), Problem> {
    let path = request.uri().path();
    let is_forwarded = path == AUTH || path.starts_with("/v1/auth/");
    if is_forwarded {
        let is_rebound = addresses_port(ports, request) && !has_local_host(request);
        let is_described = DESCRIPTIONS.iter().any(|name| request.headers().contains_key(*name));
        if is_rebound {
            return Err(not_local());
        }
        if !is_described && is_cross_origin(request) {
            return Err(cross_origin());
        }
        return Ok(());
    }
    if !has_local_host(request) {
        return Err(not_local());
    }
    if is_cross_origin(request) {
        return Err(cross_origin());
    }
    Ok(())
}

const AUTH: &str = "/v1/auth";

/// The headers by which proxies describe a request. A page can have them sent to its own origin only.
const DESCRIPTIONS: [&str; 3] = ["x-forwarded-for", "x-forwarded-method", "x-original-method"];

/// Whether the host has a port of the listener. That of a request which a proxy asks about has the
/// proxy's.
fn addresses_port<B>(ports: &[u16], request: &http::Request<B>) -> bool {
    match host(request) {
        Host::Named(authority) => ports.contains(&authority.port_u16().unwrap_or(80)),
        Host::Missing | Host::Malformed => false,
    }
}

/// Refuses what is not read only if a browser sends it for a page of another origin.
pub(crate) async fn same_origin(request: Request, next: Next) -> Response {
    if !request.method().is_safe() && is_cross_origin(&request) {
        return cross_origin().into_response();
    }
    next.run(request).await
}

fn cross_origin() -> Problem {
    let detail = "Another site's page cannot change anything here: expected an Origin that is this \
                  host's, or none.";
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// The refusal of a request without a token that does not address this machine.
pub(crate) fn not_local() -> Problem {
    let detail = "Without a token, this is only for requests to an address or to localhost.";
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// Whether the host is an IP address, localhost or missing.
pub(crate) fn has_local_host<B>(request: &http::Request<B>) -> bool {
    match host(request) {
        Host::Missing => true,
        Host::Malformed => false,
        Host::Named(authority) => {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
        }
    }
}

/// What a request says that it is for.
enum Host {
    Missing,
    Malformed,
    Named(Authority),
}

fn host<B>(request: &http::Request<B>) -> Host {
    let host = request.headers().get(header::HOST).map(HeaderValue::as_bytes);
    let authority = match (request.uri().authority(), host) {
        (Some(authority), _) => Ok(authority.clone()),
        (None, None | Some(b"")) => return Host::Missing,
        (None, Some(host)) => Authority::try_from(host),
    };
    authority.map_or(Host::Malformed, Host::Named)
}

/// Whether a browser says that the request is another origin's. Programs say nothing of the kind.
fn is_cross_origin<B>(request: &http::Request<B>) -> bool {
    let value = |name| one(request.headers(), name);
    match (value(&header::ORIGIN), value(&SEC_FETCH_SITE)) {
        (Ok(None), Ok(None)) => false,
        (Ok(None), Ok(Some(site))) => !["same-origin", "none"].contains(&site),
        (Ok(Some(origin)), Ok(_)) => {
            let origin = origin.parse::<Uri>().ok().and_then(|uri| uri.authority().cloned());
            // Behind a proxy with TLS the schemes differ.
            !matches!((origin, host(request)), (Some(origin), Host::Named(host)) if origin == host)
        }
        _ => true,
    }
}

/// The value of a header that is there at most once, as text.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}
