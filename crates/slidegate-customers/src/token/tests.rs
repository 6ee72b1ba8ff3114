//! Any text as a token, and any document as a key set: what is not trusted yet.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use slidegate::Timestamp;

use super::TokenAlgorithm;
use super::jwks::KeySet;
use super::unverified::{MAX_TOKEN_LEN, UnverifiedToken};

/// Public keys of RFC 7515 and RFC 8037.
const KEYS: &str = r#"{"keys":[
    {"kty":"EC","crv":"P-256","kid":"p256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
     "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
    {"kty":"OKP","crv":"Ed25519","kid":"ed","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

const ALGORITHMS: [TokenAlgorithm; 3] =
    [TokenAlgorithm::Rs256, TokenAlgorithm::Es256, TokenAlgorithm::EdDsa];

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An input is a token, or its header, its payload and its signature, each on a line.
#[test]
fn token() {
    let keys = KeySet::parse(KEYS.as_bytes(), &ALGORITHMS, &KeySet::default()).unwrap();
    slidegate_fuzz::check("token", |input| {
        if let Ok(text) = std::str::from_utf8(input) {
            check_token(&keys, text);
        }
        let lines: Vec<&[u8]> = input.splitn(3, |byte| *byte == b'\n').collect();
        if let [header, payload, signature] = lines[..] {
            check_token(&keys, &[header, payload, signature].map(encoded).join("."));
        }
    });
}

fn check_token(keys: &KeySet, text: &str) {
    let Ok(token) = UnverifiedToken::parse(text) else { return };
    assert!(text.len() <= MAX_TOKEN_LEN);
    let (header, payload) = token.message.split_once('.').unwrap();
    let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
    let spelled = [&header, &payload, &token.signature].map(encoded).join(".");
    assert_eq!(spelled, text, "a token has one spelling");

    // What is looked at before the signature is checked is what counts afterwards.
    if let Ok(header) = serde_json::from_slice::<Value>(&header) {
        assert_eq!(header.get("crit").filter(|crit| !crit.is_null()), None);
        let named = token.algorithm.map(TokenAlgorithm::name);
        assert!(named.is_none() || named == header["alg"].as_str());
        assert_eq!(token.key_id.as_deref(), header["kid"].as_str());
    }
    if let Ok(claims) = token.claims() {
        let claim = |name: &str| claims.get(name).filter(|value| !value.is_null());
        assert_eq!(token.issuer(), claim("iss").and_then(Value::as_str));
        assert_eq!(token.expires().is_some(), claim("exp").is_some());
        assert_eq!(token.begins().is_some(), claim("nbf").is_some());
        if let Some(seconds) = claim("exp").and_then(Value::as_u64).filter(|s| *s < 1 << 33) {
            assert_eq!(token.expires(), Some(Timestamp::from_millis(1000 * seconds)));
        }
        let is_for_api = match claim("aud") {
            Some(Value::Array(list)) => list.contains(&Value::from("api")),
            one => one == Some(&Value::from("api")),
        };
        assert_eq!(token.is_for(&["api".to_owned()]), is_for_api);
    }

    if let Some(algorithm) = token.algorithm
        && let Ok(key) = keys.choose(&token, algorithm)
    {
        assert!(!key.has_signed(&token, algorithm), "the private keys are unknown here");
    }
}

#[test]
fn key_set() {
    slidegate_fuzz::check("key_set", |input| {
        match KeySet::parse(input, &ALGORITHMS, &KeySet::default()) {
            Ok(keys) => {
                let document: Value = serde_json::from_slice(input).unwrap();
                assert!((1..=document["keys"].as_array().unwrap().len()).contains(&keys.len()));
            }
            Err(error) => assert!(error.to_string().len() < 100, "{error}"),
        }
    });
}
