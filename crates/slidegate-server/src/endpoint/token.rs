//! Tokens that callers have to present.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use sha2::{Digest, Sha256};
use slidegate::limit::Period;
use slidegate_proxy::Accepted;
use subtle::ConstantTimeEq;

use crate::config::Secret;
use crate::endpoint::problem::Problem;
use crate::observe::{ListenerKind, TokenFailures};

/// The token of a listener. Clones are the same token.
#[derive(Debug, Clone)]
pub(crate) struct RequiredToken {
    token: Token,
    listener: ListenerKind,
    failures: Arc<TokenFailures>,
}

/// Why a caller is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenError {
    Missing,
    Wrong,
    /// Its address has presented too many wrong ones, and this one was not looked at.
    TooMany {
        retry_after: Duration,
    },
}

impl RequiredToken {
    pub(crate) fn new(
        secret: &Secret,
        listener: ListenerKind,
        failures: &Arc<TokenFailures>,
    ) -> Self {
        Self { token: Token::new(secret), listener, failures: failures.clone() }
    }

    /// Compares what a caller presents. A missing token is no guess, and is not counted.
    pub(crate) fn check(
        &self,
        presented: Option<&[u8]>,
        peer: Option<IpAddr>,
    ) -> Result<(), TokenError> {
        let presented = presented.ok_or(TokenError::Missing)?;
        if let Some(retry_after) = self.failures.wait(peer) {
            return Err(TokenError::TooMany { retry_after });
        }
        if self.token.is(presented) {
            return Ok(());
        }
        self.failures.record(self.listener, peer);
        Err(TokenError::Wrong)
    }
}

impl TokenError {
    /// The refusal of an HTTP request, with what was expected.
    pub(crate) fn respond(self, expected: &str) -> Response<Bytes> {
        let (problem, name, value) = match self {
            Self::Missing | Self::Wrong => {
                let problem = Problem::new(StatusCode::UNAUTHORIZED, expected);
                (problem, header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
            }
            Self::TooMany { retry_after } => {
                let after_s = Period(retry_after).ceil_seconds();
                let detail =
                    format_args!("too many wrong tokens from this address: retry in {after_s} s");
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, detail);
                (problem, header::RETRY_AFTER, after_s.into())
            }
        };
        let mut response = Response::from(problem);
        response.headers_mut().insert(name, value);
        response
    }
}

/// The address that a request came from.
pub(crate) fn peer<B>(request: &Request<B>) -> Option<IpAddr> {
    request.extensions().get::<Accepted>().and_then(|accepted| accepted.peer)
}

/// A token, kept as its digest: the time of a comparison leaks nothing of the token, not even its
/// length.
#[derive(Debug, Clone)]
struct Token([u8; 32]);

impl Token {
    fn new(secret: &Secret) -> Self {
        Self(Sha256::digest(secret.reveal()).into())
    }

    fn is(&self, presented: &[u8]) -> bool {
        let presented: [u8; 32] = Sha256::digest(presented).into();
        self.0.ct_eq(&presented).into()
    }
}

/// The token of `Authorization: Bearer TOKEN`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
