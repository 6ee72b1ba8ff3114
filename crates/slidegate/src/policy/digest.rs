//! The one-way form of a secret or of a text too long to keep.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Half of a SHA-256 digest: enough that no two values meet, and no value can be read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 16]);

impl Digest {
    /// Digests a value together with its kind, so that equal values of two kinds differ.
    pub(crate) fn of(kind: &str, value: &[u8]) -> Self {
        Self::finish(begin(kind).chain_update(value))
    }

    /// Digests credentials as RFC 9110 section 11.4 has them: a scheme, white space and the rest.
    /// The scheme is brought to one case (`Bearer`) and the white space to one space; what has no
    /// scheme is digested as it is.
    pub(crate) fn of_credentials(kind: &str, value: &[u8]) -> Self {
        let value = value.trim_ascii();
        let Some(end) = value.iter().position(u8::is_ascii_whitespace) else {
            return Self::of(kind, value);
        };
        let (scheme, rest) = value.split_at(end);
        let mut hash = begin(kind);
        hash.update([scheme[0].to_ascii_uppercase()]);
        for piece in scheme[1..].chunks(32) {
            let mut lower = [0; 32];
            lower[..piece.len()].copy_from_slice(piece);
            lower.make_ascii_lowercase();
            hash.update(&lower[..piece.len()]);
        }
        Self::finish(hash.chain_update(b" ").chain_update(rest.trim_ascii_start()))
    }

    fn finish(hash: Sha256) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&hash.finalize()[..16]);
        Self(half)
    }
}

fn begin(kind: &str) -> Sha256 {
    Sha256::new().chain_update(b"slidegate\0").chain_update(kind).chain_update(b"\0")
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).expect("hexadecimal digits are ASCII"))
    }
}
