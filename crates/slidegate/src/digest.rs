//! The one-way form of a secret or of a text too long to keep.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Half of a SHA-256 digest: enough that no two values meet, and no value can be read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 16]);

impl Digest {
    /// Digests a value together with its kind, so that equal values of two kinds differ.
    pub(crate) fn of(kind: &str, value: &[u8]) -> Self {
        let hash = Sha256::new()
            .chain_update(b"slidegate\0")
            .chain_update(kind)
            .chain_update(b"\0")
            .chain_update(value)
            .finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&hash[..16]);
        Self(half)
    }

    pub(crate) fn bits(self) -> u128 {
        u128::from_le_bytes(self.0)
    }
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
