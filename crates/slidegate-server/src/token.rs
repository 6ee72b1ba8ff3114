//! Tokens that callers have to present.

use http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use crate::config::Secret;

/// A token, kept as its digest: the time of a comparison leaks nothing of the token, not even its
/// length.
#[derive(Debug, Clone)]
pub(crate) struct Token([u8; 32]);

impl Token {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self(Sha256::digest(secret.reveal()).into())
    }

    pub(crate) fn is(&self, presented: &[u8]) -> bool {
        let presented: [u8; 32] = Sha256::digest(presented).into();
        let both = self.0.iter().zip(presented);
        both.fold(0, |differences, (own, other)| differences | (own ^ other)) == 0
    }
}

/// The token of `Authorization: Bearer TOKEN`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
