//! How a token may be signed.

use std::fmt;
use std::str::FromStr;

use jsonwebtoken::Algorithm;

/// An algorithm by which a token may be signed: those with a public key, by their names in RFC 7518.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenAlgorithm {
    /// RSA, PKCS #1 v1.5, with SHA-256.
    Rs256,
    /// RSA, PKCS #1 v1.5, with SHA-384.
    Rs384,
    /// RSA, PKCS #1 v1.5, with SHA-512.
    Rs512,
    /// RSA, PSS, with SHA-256.
    Ps256,
    /// RSA, PSS, with SHA-384.
    Ps384,
    /// RSA, PSS, with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

/// Why a name is not that of an algorithm that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AlgorithmError {
    /// `none` signs nothing.
    #[error("algorithm `{0}` cannot be used: a token without a signature proves nothing")]
    Unsigned(String),
    /// The `HS` family has one secret for signing and checking.
    #[error(
        "algorithm `{0}` cannot be used: its keys are secrets that a key set cannot publish, and \
         a public key in their place lets anyone sign"
    )]
    Symmetric(String),
    /// The name is not known.
    #[error("unknown algorithm `{0}`: use one of {list}", list = names())]
    Unknown(String),
}

const ALL: [TokenAlgorithm; 9] = [
    TokenAlgorithm::Rs256,
    TokenAlgorithm::Rs384,
    TokenAlgorithm::Rs512,
    TokenAlgorithm::Ps256,
    TokenAlgorithm::Ps384,
    TokenAlgorithm::Ps512,
    TokenAlgorithm::Es256,
    TokenAlgorithm::Es384,
    TokenAlgorithm::EdDsa,
];

impl TokenAlgorithm {
    /// Its name in a token's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm of exactly this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

impl FromStr for TokenAlgorithm {
    type Err = AlgorithmError;

    fn from_str(name: &str) -> Result<Self, AlgorithmError> {
        let upper = name.to_ascii_uppercase();
        Self::named(name).ok_or_else(|| match upper.as_str() {
            "NONE" => AlgorithmError::Unsigned(name.to_owned()),
            upper if upper.starts_with("HS") => AlgorithmError::Symmetric(name.to_owned()),
            _ => AlgorithmError::Unknown(name.to_owned()),
        })
    }
}

impl fmt::Display for TokenAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<TokenAlgorithm> for Algorithm {
    fn from(algorithm: TokenAlgorithm) -> Self {
        match algorithm {
            TokenAlgorithm::Rs256 => Self::RS256,
            TokenAlgorithm::Rs384 => Self::RS384,
            TokenAlgorithm::Rs512 => Self::RS512,
            TokenAlgorithm::Ps256 => Self::PS256,
            TokenAlgorithm::Ps384 => Self::PS384,
            TokenAlgorithm::Ps512 => Self::PS512,
            TokenAlgorithm::Es256 => Self::ES256,
            TokenAlgorithm::Es384 => Self::ES384,
            TokenAlgorithm::EdDsa => Self::EdDSA,
        }
    }
}

fn names() -> String {
    ALL.map(TokenAlgorithm::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for algorithm in ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (name, reason) in [
            ("none", "without a signature"),
            ("None", "without a signature"),
            ("HS256", "secrets"),
            ("hs512", "secrets"),
            ("rs256", "use one of RS256, RS384"),
            ("ES512", "use one of"),
            ("", "use one of"),
        ] {
            let error = name.parse::<TokenAlgorithm>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(&format!("`{name}`")), "{error}");
        }
    }
}
