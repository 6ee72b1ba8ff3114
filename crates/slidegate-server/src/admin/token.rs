//! What an operator has to show.

use std::net::IpAddr;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

use super::problem::problem;
use crate::config::Secret;

/// The token, as its digest: the time that a comparison takes tells nothing of the token, not even
/// its length.
#[derive(Debug, Clone)]
pub(super) struct Token([u8; 32]);

impl Token {
    pub(super) fn new(secret: &Secret) -> Self {
        Self(Sha256::digest(secret.reveal()).into())
    }

    /// Lets a request pass that shows the token, and no other.
    pub(super) async fn demand(self, request: Request, next: Next) -> Response {
        if shown(request.headers()).is_some_and(|shown| self.is(shown)) {
            return next.run(request).await;
        }
        let detail = "This page needs the operator's token: Authorization: Bearer TOKEN.";
        let refusal = problem(StatusCode::UNAUTHORIZED, detail);
        ([(header::WWW_AUTHENTICATE, "Bearer")], refusal).into_response()
    }

    fn is(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let differences = self.0.iter().zip(shown).fold(0, |all, (own, other)| all | (own ^ other));
        differences == 0
    }
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

fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
