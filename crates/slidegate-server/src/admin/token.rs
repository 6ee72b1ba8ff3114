//! What an operator has to show.

use std::net::IpAddr;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{StatusCode, header};

use super::problem::problem;
use crate::token::{Token, bearer};

/// Lets a request pass that presents the token, and no other.
pub(super) async fn demand(token: Token, request: Request, next: Next) -> Response {
    if bearer(request.headers()).is_some_and(|presented| token.is(presented)) {
        return next.run(request).await;
    }
    let detail = "This page needs the operator's token: Authorization: Bearer TOKEN.";
    let refusal = problem(StatusCode::UNAUTHORIZED, detail);
    ([(header::WWW_AUTHENTICATE, "Bearer")], refusal).into_response()
}

/// Lets a request pass that names this machine by an address, by `localhost` or not at all. Where
/// there is no token, this keeps out web pages: a page can have its own name lead to this machine,
/// but it cannot have another name.
pub(super) async fn demand_plain_host(request: Request, next: Next) -> Response {
    if request.uri().path() == "/metrics" || is_plain(&host(&request)) {
        return next.run(request).await;
    }
    let detail = "Without a token, this is only for requests to an address or to localhost.";
    problem(StatusCode::FORBIDDEN, detail)
}

fn host(request: &Request) -> Option<Authority> {
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let named = named.filter(|host| !host.is_empty());
    let other = "invalid.".parse().ok();
    match (request.uri().authority(), named) {
        (Some(authority), _) => Some(authority.clone()),
        (None, Some(host)) => host.parse().ok().or(other),
        (None, None) => None,
    }
}

fn is_plain(host: &Option<Authority>) -> bool {
    let Some(host) = host else { return true };
    let host = host.host().trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
}
