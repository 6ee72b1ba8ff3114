//! What an operator has to show.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
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

fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
