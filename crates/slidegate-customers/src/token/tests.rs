//! Any text as a token, and any document as a key set: what is not trusted yet.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moka::Expiry as _;
use serde_json::Value;
use slidegate::{Clock, ManualClock, Timestamp};

use super::jwks::KeySet;
use super::unverified::{MAX_TOKEN_LEN, UnverifiedToken};
use super::{
    MAX_REMEMBERED, MAX_REMEMBERED_TIME, Remembered, TokenAlgorithm, TokenClaims, TokenDigest,
    UntilExpired, remember,
};

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

/// The claims of a token that ends at this instant, and its key.
fn remembered(expires: Timestamp) -> Remembered {
    let keys = KeySet::parse(KEYS.as_bytes(), &ALGORITHMS, &KeySet::default()).unwrap();
    let parts = [r#"{"alg":"ES256","kid":"p256"}"#, r#"{"iss":"a"}"#, "s"].map(encoded);
    let text = parts.join(".");
    let token = UnverifiedToken::parse(&text).unwrap();
    let key = Arc::clone(keys.choose(&token, TokenAlgorithm::Es256).unwrap());
    let user = Some("ann".to_owned());
    let claims = TokenClaims { user, customer: None, plan: None, issuer: "a".into(), expires };
    Remembered { claims: Arc::new(claims), key }
}

fn numbered(number: u64) -> TokenDigest {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&number.to_be_bytes());
    digest
}

#[test]
fn tokens_that_are_remembered_are_bounded_and_the_newest_stay() {
    let clock = ManualClock::default();
    let expires = clock.now() + Duration::from_secs(3600);
    let tokens = remember(&(Arc::new(clock) as Arc<dyn Clock>));
    let token = remembered(expires);
    let count = MAX_REMEMBERED * 2;
    for number in 0..count {
        tokens.insert(numbered(number), token.clone());
    }
    tokens.run_pending_tasks();
    assert_eq!(tokens.entry_count(), MAX_REMEMBERED);
    let is_remembered = |number: u64| tokens.contains_key(&numbered(number));
    assert!((count - MAX_REMEMBERED / 2..count).all(is_remembered));
}

#[test]
fn a_token_is_forgotten_when_it_expires() {
    let clock = ManualClock::default();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let lifetime = |seconds: u64| {
        let token = remembered(clock.now() + Duration::from_secs(seconds));
        let now = tokio::time::Instant::now().into_std();
        UntilExpired(Arc::clone(&shared)).expire_after_create(&numbered(1), &token, now)
    };
    assert_eq!(lifetime(60), Some(Duration::from_secs(60)));
    assert_eq!(lifetime(10 * 24 * 60 * 60), Some(MAX_REMEMBERED_TIME));
    // The cache's own clock is real.
    let tokens = remember(&shared);
    tokens.insert(numbered(1), remembered(clock.now() + Duration::from_millis(50)));
    tokens.insert(numbered(2), remembered(clock.now() + Duration::from_secs(60)));
    slidegate_testbed::wait_until("the token to go", || {
        tokens.run_pending_tasks();
        tokens.entry_count() == 1
    });
    assert!(tokens.contains_key(&numbered(2)));
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
