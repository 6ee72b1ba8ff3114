//! Who may use the admin API: whoever presents the token or is on this machine, and no other site's
//! page.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::problem::Problem;
use crate::token::{Token, bearer};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Lets requests pass that present the token. Where there is none, requests must address this
/// machine by an IP address or as localhost. That keeps web pages out: with DNS rebinding a page can
/// have its own name resolve to this machine, but its requests carry that name.
pub(super) async fn authorize(
    State(token): State<Option<Token>>,
    request: Request,
    next: Next,
) -> Response {
    match token {
        Some(token) if !bearer(request.headers()).is_some_and(|given| token.is(given)) => {
            let detail = "This page needs the operator's token: Authorization: Bearer TOKEN.";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, detail);
            ([(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response()
        }
        None if request.uri().path() != "/metrics" && !has_local_host(&request) => {
            not_local().into_response()
        }
        _ => next.run(request).await,
    }
}

/// Refuses what is not read only if a browser sends it for a page of another origin.
pub(super) async fn same_origin(request: Request, next: Next) -> Response {
    if !request.method().is_safe() && is_cross_origin(&request) {
        let detail = "Another site's page cannot change anything here: expected an Origin that is \
                      this host's, or none.";
        return Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    }
    next.run(request).await
}

/// The refusal of a request without a token that does not address this machine.
pub(super) fn not_local() -> Problem {
    let detail = "Without a token, this is only for requests to an address or to localhost.";
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// Whether the host is an IP address, localhost or missing.
pub(super) fn has_local_host(request: &Request) -> bool {
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

fn host(request: &Request) -> Host {
    let host = request.headers().get(header::HOST).map(HeaderValue::as_bytes);
    let authority = match (request.uri().authority(), host) {
        (Some(authority), _) => Ok(authority.clone()),
        (None, None | Some(b"")) => return Host::Missing,
        (None, Some(host)) => Authority::try_from(host),
    };
    authority.map_or(Host::Malformed, Host::Named)
}

/// Whether a browser says that the request is another origin's. Programs say nothing of the kind.
fn is_cross_origin(request: &Request) -> bool {
    let value = |name| one(request.headers(), name);
    match (value(header::ORIGIN.as_str()), value(SEC_FETCH_SITE)) {
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
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}
