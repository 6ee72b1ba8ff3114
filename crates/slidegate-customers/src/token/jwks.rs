//! An issuer's public keys (RFC 7517), of which only those for signatures are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::crypto::aws_lc;
use serde::Deserialize;
use serde_json::Value;
use slidegate::Timestamp;

use super::algorithm::TokenAlgorithm;
use super::invalid::InvalidToken;
use super::unverified::UnverifiedToken;

/// The public keys of an issuer.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    keys: Vec<Arc<VerifyingKey>>,
}

/// Why a document gives no keys. Its content is not repeated: some publish secrets by mistake.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JwksError {
    #[error("the answer is no key set: no JSON object with a list of `keys` (line {line})")]
    Format { line: usize },
    #[error("the key set has no key for the listed algorithms ({keys} others)")]
    NoUsableKey { keys: usize },
}

impl KeySet {
    /// Reads the keys that fit one of the algorithms. A key that `previous` has is the same key, so
    /// that what was checked with it goes on to count.
    pub(super) fn parse(
        document: &[u8],
        algorithms: &[TokenAlgorithm],
        previous: &Self,
    ) -> Result<Self, JwksError> {
        let document: Document = serde_json::from_slice(document)
            .map_err(|error| JwksError::Format { line: error.line() })?;
        let found = document.keys.len();
        let usable = document.keys.into_iter().filter_map(|key| {
            let key = VerifyingKey::new(serde_json::from_value(key).ok()?)?;
            algorithms.iter().any(|algorithm| key.fits(*algorithm)).then_some(key)
        });
        let mut keys: Vec<Arc<VerifyingKey>> = Vec::new();
        for key in usable {
            if keys.iter().all(|other| other.jwk != key.jwk) {
                let known = previous.keys.iter().find(|known| known.jwk == key.jwk);
                keys.push(known.map_or_else(|| Arc::new(key), Arc::clone));
            }
        }
        if keys.is_empty() {
            return Err(JwksError::NoUsableKey { keys: found });
        }
        Ok(Self { keys })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Lets the keys count until then, and those that only `previous` had no longer.
    pub(super) fn replace(&self, previous: &Self, good_until: Timestamp) {
        for key in &previous.keys {
            key.good_until_ns.store(0, Ordering::Release);
        }
        for key in &self.keys {
            key.good_until_ns.store(good_until.as_nanos(), Ordering::Release);
        }
    }

    /// The one key that can have signed the token.
    pub(super) fn choose(
        &self,
        token: &UnverifiedToken<'_>,
        algorithm: TokenAlgorithm,
    ) -> Result<&Arc<VerifyingKey>, InvalidToken> {
        let id = token.key_id.as_ref();
        let mut named = self.keys.iter().filter(|key| id.is_none() || key.jwk.kid.as_ref() == id);
        let mut fitting = named.clone().filter(|key| key.fits(algorithm));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (Some(_), Some(_)) => Err(InvalidToken::AmbiguousKey),
            (None, _) if id.is_some() && named.next().is_some() => Err(InvalidToken::OtherKeyType),
            (None, _) => Err(InvalidToken::UnknownKey),
        }
    }
}

/// A public key of an issuer.
#[derive(Debug)]
pub(super) struct VerifyingKey {
    jwk: Jwk,
    kind: KeyKind,
    /// The only algorithm it may be used with, if it says so.
    algorithm: Option<TokenAlgorithm>,
    key: DecodingKey,
    /// Zero as soon as it has left the issuer's set.
    good_until_ns: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl VerifyingKey {
    /// None unless the key is for signatures, and of a kind and size that can be used.
    fn new(jwk: Jwk) -> Option<Self> {
        let is_for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig")
            && jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        if !is_for_signatures {
            return None;
        }
        let algorithm = match &jwk.alg {
            Some(name) => Some(TokenAlgorithm::named(name)?),
            None => None,
        };
        let (kind, key) = jwk.public_key()?;
        Some(Self { jwk, kind, algorithm, key, good_until_ns: AtomicU64::new(0) })
    }

    /// Until when (exclusive) the key counts.
    pub(super) fn good_until(&self) -> Timestamp {
        Timestamp::from_nanos(self.good_until_ns.load(Ordering::Acquire))
    }

    /// Whether the token's signature is of this key. Takes up to 100 µs of processor time.
    pub(super) fn has_signed(&self, token: &UnverifiedToken<'_>, by: TokenAlgorithm) -> bool {
        // Not the process's default provider, which panics if another crate makes it ambiguous.
        let verifier = (aws_lc::DEFAULT_PROVIDER.verifier_factory)(&by.into(), &self.key);
        verifier.is_ok_and(|verifier| {
            verifier.verify(token.message.as_bytes(), &token.signature).is_ok()
        })
    }

    fn fits(&self, algorithm: TokenAlgorithm) -> bool {
        self.algorithm.is_none_or(|only| only == algorithm) && self.kind.of(algorithm)
    }
}

impl KeyKind {
    fn of(self, algorithm: TokenAlgorithm) -> bool {
        use TokenAlgorithm as A;
        match self {
            Self::Rsa => {
                matches!(algorithm, A::Rs256 | A::Rs384 | A::Rs512 | A::Ps256 | A::Ps384 | A::Ps512)
            }
            Self::P256 => algorithm == A::Es256,
            Self::P384 => algorithm == A::Es384,
            Self::Ed25519 => algorithm == A::EdDsa,
        }
    }
}

#[derive(Deserialize)]
struct Document {
    // One by one: a key of a kind that is unknown does not spoil the others.
    keys: Vec<Value>,
}

/// A key as it is published, without what is not needed: private parts are never kept.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    fn public_key(&self) -> Option<(KeyKind, DecodingKey)> {
        let field = |field: &Option<String>| URL_SAFE_NO_PAD.decode(field.as_deref()?).ok();
        let point = |len: usize| {
            let (x, y) = (field(&self.x)?, field(&self.y)?);
            let uncompressed = [&[0x04], x.as_slice(), &y].concat();
            let is_whole = x.len() == len && y.len() == len;
            is_whole.then(|| DecodingKey::from_ec_der(&uncompressed))
        };
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Some((KeyKind::Rsa, rsa_key(&field(&self.n)?, &field(&self.e)?)?)),
            ("EC", Some("P-256")) => Some((KeyKind::P256, point(32)?)),
            ("EC", Some("P-384")) => Some((KeyKind::P384, point(48)?)),
            ("OKP", Some("Ed25519")) => {
                let x = field(&self.x)?;
                (x.len() == 32).then(|| (KeyKind::Ed25519, DecodingKey::from_ed_der(&x)))
            }
            // Symmetric keys (`oct`) among them: what is published cannot be a secret.
            _ => None,
        }
    }
}

/// The sizes that are checked later are those of the library: 2,048 to 8,192 bits. Others would
/// count as keys here and then never fit a signature.
fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Option<DecodingKey> {
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let (modulus_len, top) = (modulus.len() - zeros, modulus.get(zeros)?);
    let bits = modulus_len.saturating_mul(8) - top.leading_zeros() as usize;
    let has_good_size = (2048..=8192).contains(&bits) && (1..=4).contains(&exponent.len());
    has_good_size.then(|| DecodingKey::from_rsa_raw_components(&modulus[zeros..], exponent))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALGORITHMS: [TokenAlgorithm; 3] =
        [TokenAlgorithm::Rs256, TokenAlgorithm::Es256, TokenAlgorithm::EdDsa];

    fn parse(keys: &Value) -> Result<usize, JwksError> {
        let document = json!({ "keys": keys }).to_string();
        KeySet::parse(document.as_bytes(), &ALGORITHMS, &KeySet::default()).map(|set| set.len())
    }

    fn rsa(bits: usize) -> Value {
        let modulus = URL_SAFE_NO_PAD.encode(vec![0xff; bits / 8]);
        json!({ "kty": "RSA", "kid": "r", "n": modulus, "e": "AQAB" })
    }

    fn with(mut key: Value, field: &str, value: &str) -> Value {
        key[field] = json!(value);
        key
    }

    #[test]
    fn only_public_keys_for_signatures_are_kept() {
        let coordinate = URL_SAFE_NO_PAD.encode([7; 32]);
        let ec = json!({ "kty": "EC", "crv": "P-256", "x": coordinate, "y": coordinate });
        let ed = json!({ "kty": "OKP", "crv": "Ed25519", "x": coordinate });
        for good in [rsa(2048), rsa(8192), with(rsa(2048), "use", "sig"), ec.clone(), ed.clone()] {
            assert_eq!(parse(&json!([good])), Ok(1), "{good}");
        }
        let others = [
            rsa(1024),
            rsa(16384),
            with(rsa(2048), "e", ""),
            with(rsa(2048), "n", "AAAA"),
            with(rsa(2048), "n", "not Base64"),
            with(rsa(2048), "use", "enc"),
            with(rsa(2048), "alg", "RSA-OAEP"),
            with(rsa(2048), "alg", "HS256"),
            // It could be used, but the issuer may not use it.
            with(rsa(2048), "alg", "PS512"),
            json!({ "kty": "oct", "kid": "s", "k": coordinate }),
            json!({ "kty": "oct", "alg": "RS256", "k": coordinate, "n": coordinate }),
            with(ec.clone(), "crv", "P-384"),
            with(ec.clone(), "crv", "secp256k1"),
            with(ec, "y", "AAAA"),
            with(ed.clone(), "crv", "X25519"),
            with(ed, "x", "AAAA"),
            json!({ "kty": "RSA" }),
            json!({ "kty": 7 }),
            json!("key"),
            json!(null),
        ];
        for other in &others {
            assert_eq!(parse(&json!([other])), Err(JwksError::NoUsableKey { keys: 1 }), "{other}");
        }
        let mut mixed = others.to_vec();
        mixed.push(rsa(2048));
        assert_eq!(parse(&json!(mixed)), Ok(1));
        let mut signs = rsa(2048);
        signs["key_ops"] = json!(["sign"]);
        assert!(parse(&json!([signs])).is_err());
        signs["key_ops"] = json!(["verify"]);
        assert_eq!(parse(&json!([signs])), Ok(1));
    }

    #[test]
    fn what_is_no_key_set_is_an_error_without_its_content() {
        for document in ["", "<html>", "[]", "{}", r#"{"keys":"secret"}"#, r#"{"keys":{"a":1}}"#] {
            let error = KeySet::parse(document.as_bytes(), &ALGORITHMS, &KeySet::default());
            let error = error.unwrap_err().to_string();
            assert!(error.contains("no key set") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_key_that_stays_is_the_same_key() {
        let first = json!({ "keys": [rsa(2048), with(rsa(2048), "kid", "old")] }).to_string();
        let first = KeySet::parse(first.as_bytes(), &ALGORITHMS, &KeySet::default()).unwrap();
        first.replace(&KeySet::default(), Timestamp::from_nanos(5));
        // The same id with another modulus is another key.
        let second = json!({ "keys": [rsa(2048), with(rsa(4096), "kid", "old")] }).to_string();
        let second = KeySet::parse(second.as_bytes(), &ALGORITHMS, &first).unwrap();
        second.replace(&first, Timestamp::from_nanos(9));
        let good_until = |set: &KeySet| -> Vec<u64> {
            set.keys.iter().map(|key| key.good_until().as_nanos()).collect()
        };
        assert_eq!(good_until(&first), [9, 0]);
        assert_eq!(good_until(&second), [9, 9]);
    }
}
