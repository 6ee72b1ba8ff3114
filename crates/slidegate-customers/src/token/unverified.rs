//! A token before its signature is checked: what may be read without trusting it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};
use slidegate::Timestamp;

use super::algorithm::TokenAlgorithm;
use super::invalid::InvalidToken;

/// The longest token. Servers take about 8 KiB of a header field; few tokens have more than 2 KiB.
pub(super) const MAX_TOKEN_LEN: usize = 16 * 1024;

/// The parts of a token. They count only after the signature was checked, but a token that would
/// not count anyway need not cost that check.
#[derive(Debug)]
pub(super) struct UnverifiedToken<'a> {
    /// Header and payload as they were signed.
    pub(super) message: &'a str,
    pub(super) signature: Vec<u8>,
    /// None if it is one that is never used.
    pub(super) algorithm: Option<TokenAlgorithm>,
    pub(super) key_id: Option<String>,
    payload: Vec<u8>,
    registered: RegisteredClaims,
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that have to be understood, of which none is.
    crit: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct RegisteredClaims {
    iss: Option<String>,
    aud: Option<Audience>,
    /// Seconds since the epoch, which may have a fraction (RFC 7519, section 2).
    exp: Option<f64>,
    nbf: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Any(Vec<String>),
}

impl<'a> UnverifiedToken<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, InvalidToken> {
        if token.len() > MAX_TOKEN_LEN {
            return Err(InvalidToken::NotJwt);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(InvalidToken::NotJwt)?;
        let (header, payload) = message.split_once('.').ok_or(InvalidToken::NotJwt)?;
        let header: Header = object(&decode(header)?)?;
        if header.crit.is_some() {
            return Err(InvalidToken::NotJwt);
        }
        let payload = decode(payload)?;
        Ok(Self {
            message,
            signature: decode(signature)?,
            algorithm: TokenAlgorithm::named(&header.alg),
            key_id: header.kid,
            registered: object(&payload)?,
            payload,
        })
    }

    pub(super) fn issuer(&self) -> Option<&str> {
        self.registered.iss.as_deref()
    }

    pub(super) fn is_for(&self, audience: &[String]) -> bool {
        match &self.registered.aud {
            Some(Audience::One(one)) => audience.contains(one),
            Some(Audience::Any(any)) => any.iter().any(|one| audience.contains(one)),
            None => false,
        }
    }

    pub(super) fn expires(&self) -> Option<Timestamp> {
        self.registered.exp.map(instant)
    }

    pub(super) fn begins(&self) -> Option<Timestamp> {
        self.registered.nbf.map(instant)
    }

    /// All claims. To be read only after the signature was checked.
    pub(super) fn claims(&self) -> Result<Map<String, Value>, InvalidToken> {
        serde_json::from_slice(&self.payload).map_err(|_| InvalidToken::NotJwt)
    }
}

/// Strict: without padding and stray bits, so that a token has exactly one spelling.
fn decode(part: &str) -> Result<Vec<u8>, InvalidToken> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| InvalidToken::NotJwt)
}

fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, InvalidToken> {
    // Serde would take an array for an object, its items in the order of the fields.
    let is_object = json.trim_ascii_start().starts_with(b"{");
    let parsed = is_object.then(|| serde_json::from_slice(json).ok()).flatten();
    parsed.ok_or(InvalidToken::NotJwt)
}

/// Seconds before the epoch are the epoch, and those beyond the end of time its end.
fn instant(seconds: f64) -> Timestamp {
    let since_epoch = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    Timestamp::default() + since_epoch
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(header: &str, payload: &str) -> String {
        [header, payload, "signature"].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
    }

    #[test]
    fn the_form_of_a_token_is_checked() {
        let header = r#"{"alg":"RS256"}"#;
        assert!(UnverifiedToken::parse(&token(header, "{}")).is_ok());
        let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
        let crafted = [
            String::new(),
            ".".to_owned(),
            "..".to_owned(),
            ".".repeat(MAX_TOKEN_LEN),
            "a.b.c.d.e".to_owned(),
            format!("{}.", token(header, "{}")),
            format!(".{}", token(header, "{}")),
            format!("{} ", token(header, "{}")),
            format!("{}=", token(header, "{}")),
            token("[\"RS256\"]", "{}"),
            token(header, "[\"iss\",\"aud\",1,1]"),
            token(header, "null"),
            token(header, ""),
            token("", "{}"),
            token("{}", "{}"),
            token("{\"alg\":null}", "{}"),
            token("{\"alg\":\"RS256\",\"alg\":\"none\"}", "{}"),
            token("{\"alg\":\"RS256\",\"kid\":7}", "{}"),
            token("{\"alg\":\"RS256\",\"crit\":[\"exp\"]}", "{}"),
            token("{\"alg\":\"RS256\",\"crit\":[]}", "{}"),
            token(header, "{\"iss\":\"a\",\"iss\":\"b\"}"),
            token(header, "{\"exp\":\"1\"}"),
            token(header, "{\"exp\":1e999}"),
            token(header, "{\"aud\":{\"a\":1}}"),
            token(header, &format!(r#"{{"aud":{}}}"#, "[".repeat(5000))),
            token(&format!(r#"{{"alg":{}"#, "[".repeat(5000)), "{}"),
            token(&format!(r#"{{"alg":"RS256","crit":{}"#, "{\"a\":".repeat(1500)), "{}"),
            token(header, &format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_TOKEN_LEN))),
        ];
        for token in crafted {
            let parsed = UnverifiedToken::parse(&token);
            assert_eq!(parsed.err(), Some(InvalidToken::NotJwt), "{token}");
        }
        // A claim that is not read may be nested as deeply as it likes, but then never counts.
        let deep = token(header, &deep);
        let claims = UnverifiedToken::parse(&deep).and_then(|token| token.claims());
        assert_eq!(claims.err(), Some(InvalidToken::NotJwt));
    }

    #[test]
    fn dates_saturate() {
        let nanos = |seconds| instant(seconds).as_nanos();
        assert_eq!(nanos(1.5), 1_500_000_000);
        assert_eq!(nanos(-1.0), 0);
        assert_eq!(nanos(1e300), u64::MAX);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            text in ".*",
            header in r#"\{("(alg|kid|crit)":("[a-z]*"|[0-9]{1,400}|null|\[\]|\{\}),?){0,4}\}?"#,
            payload in r#"\{("(iss|aud|exp|nbf)":("[a-z]*"|-?[0-9]{1,400}(e[0-9]{1,4})?|null|\["a"\]),?){0,5}\}?"#,
        ) {
            let _ = UnverifiedToken::parse(&text);
            if let Ok(token) = UnverifiedToken::parse(&token(&header, &payload)) {
                let _ = (token.expires(), token.begins(), token.claims());
            }
        }
    }
}
