//! Why a token does not count.

/// Why a token does not count. Nothing of the token is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// Its form is not that of a signed token, or it is longer than 16 KiB, or it demands an
    /// extension (`crit`).
    #[error("it is not a well-formed JWT")]
    NotJwt,
    /// `iss` is missing, or not one that is configured.
    #[error("it is from another issuer")]
    OtherIssuer,
    /// It is signed by an algorithm that its issuer may not use, or not at all.
    #[error("its algorithm is not listed")]
    Algorithm,
    /// The issuer's key set has no key of its `kid`.
    #[error("its key id is not in the issuer's key set")]
    UnknownKey,
    /// It has no `kid`, and more than one key could have signed it.
    #[error("more than one key of the issuer's set could have signed it")]
    AmbiguousKey,
    /// The key of its `kid` is for another algorithm.
    #[error("its key is for another algorithm")]
    OtherKeyType,
    /// The signature is not that of the key.
    #[error("its signature is wrong")]
    Signature,
    /// `exp` has passed.
    #[error("it has expired")]
    Expired,
    /// `nbf` has not come.
    #[error("it is not valid yet")]
    NotYetValid,
    /// `aud` is missing, or has none that is configured.
    #[error("it is for another audience")]
    OtherAudience,
    /// `exp` is missing, or all claims that are configured: they are not there, are neither text nor
    /// a whole number, or are longer than 512 bytes.
    #[error("it lacks a claim that is needed")]
    MissingClaim,
    /// The issuer's keys were never loaded, or a day ago for the last time.
    #[error("the issuer's keys are not loaded")]
    NoKeys,
}
