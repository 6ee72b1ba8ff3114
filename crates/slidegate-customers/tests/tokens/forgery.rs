//! Tokens that the issuer has not signed.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use proptest::prelude::*;
use serde_json::json;
use slidegate_customers::{InvalidToken, IssuerConfig, TokenAnswer};

use crate::signing::{
    ED25519, OTHER_P256, OTHER_RSA, P256, P384, RSA, RSA_WITH_PEM, message, sign_with_secret,
};
use crate::world::World;

#[tokio::test]
async fn a_claim_without_the_issuers_signature_is_no_identity() {
    let world = World::new(&[&RSA, &P256]).await;
    let forged = world.token_with(&OTHER_RSA.named("rsa"), &json!({ "sub": "victim" }));
    world.assert_invalid(&forged, InvalidToken::Signature).await;
    let forged = world.token(&OTHER_P256.named("p256"));
    world.assert_invalid(&forged, InvalidToken::Signature).await;
    // Another payload under a good signature.
    let good = world.token(&RSA);
    let (_, signature) = good.rsplit_once('.').unwrap();
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": "rsa" });
    let victim = message(&header, &world.claims(&json!({ "sub": "victim" })));
    world.assert_invalid(&format!("{victim}.{signature}"), InvalidToken::Signature).await;
    for opaque in ["", "token", "0123456789abcdef", "a.b", "é.é.é", "\0.\0.\0"] {
        world.assert_invalid(opaque, InvalidToken::NotJwt).await;
    }
}

#[tokio::test]
async fn a_token_without_a_signature_does_not_count() {
    let world = World::new(&[&RSA]).await;
    let claims = world.claims(&json!({}));
    for name in ["none", "None", "NONE", "nOnE", "", " none", "none ", "rs256", "RS256 "] {
        for id in [json!("rsa"), json!(null)] {
            let message = message(&json!({ "alg": name, "kid": id }), &claims);
            world.assert_invalid(&format!("{message}."), InvalidToken::Algorithm).await;
            let good = world.token(&RSA);
            let (_, signature) = good.rsplit_once('.').unwrap();
            let signed = format!("{message}.{signature}");
            world.assert_invalid(&signed, InvalidToken::Algorithm).await;
        }
    }
    let message = message(&json!({ "alg": "RS256", "kid": "rsa" }), &claims);
    world.assert_invalid(&format!("{message}."), InvalidToken::Signature).await;
    world.assert_invalid(&message, InvalidToken::NotJwt).await;
}

#[tokio::test]
async fn a_public_key_is_no_secret() {
    let (key, pem) = &*RSA_WITH_PEM;
    let world = World::new(&[key]).await;
    let jwk = key.jwk();
    let modulus = jwk["n"].as_str().unwrap();
    let secrets = [
        pem.clone(),
        pem.trim_ascii_end().to_vec(),
        jwk.to_string().into_bytes(),
        modulus.as_bytes().to_vec(),
        URL_SAFE_NO_PAD.decode(modulus).unwrap(),
        Vec::new(),
    ];
    for secret in secrets {
        for (alg, expected) in
            [("HS256", InvalidToken::Algorithm), ("RS256", InvalidToken::Signature)]
        {
            let header = json!({ "alg": alg, "kid": key.id });
            let token = sign_with_secret(&header, &world.claims(&json!({})), &secret);
            world.assert_invalid(&token, expected).await;
        }
    }
}

#[tokio::test]
async fn a_secret_in_a_key_set_signs_nothing() {
    let world = World::new(&[&RSA]).await;
    let secret = URL_SAFE_NO_PAD.encode(b"secret");
    let oct = |id: &str, alg: &str| json!({ "kty": "oct", "kid": id, "alg": alg, "k": secret });
    let keys = json!({ "keys": [oct("s", "HS256"), oct("r", "RS256"), RSA.jwk()] });
    world.refresh(keys.to_string()).await;
    assert_eq!(world.status().keys, 1);
    for (id, alg, expected) in [
        ("s", "HS256", InvalidToken::Algorithm),
        ("s", "RS256", InvalidToken::UnknownKey),
        ("r", "RS256", InvalidToken::UnknownKey),
        ("rsa", "RS256", InvalidToken::Signature),
    ] {
        let header = json!({ "alg": alg, "kid": id });
        let token = sign_with_secret(&header, &world.claims(&json!({})), b"secret");
        world.assert_invalid(&token, expected).await;
    }
}

#[tokio::test]
async fn an_algorithm_that_is_not_listed_does_not_count() {
    let change = |config: &mut IssuerConfig| {
        config.algorithms = vec!["RS256".parse().unwrap(), "ES256".parse().unwrap()];
    };
    let world = World::with(&[&RSA.by(Algorithm::RS256), &P256, &P384, &ED25519], change).await;
    assert_eq!(world.status().keys, 2);
    for key in [&RSA.by(Algorithm::RS512), &RSA.by(Algorithm::PS256), &P384, &ED25519] {
        world.assert_invalid(&world.token(key), InvalidToken::Algorithm).await;
    }
    world.valid(&world.token(&RSA)).await;
    world.valid(&world.token(&P256)).await;
    assert_eq!(world.tokens.checks(), 2);
}

#[tokio::test]
async fn a_key_counts_only_for_its_own_kind_of_algorithm() {
    let named = [&*RSA, &P256, &P384, &ED25519];
    // Many sets do not say which algorithm a key is for.
    let silent = named.map(|key| key.by(key.algorithm));
    for world in [World::new(&named).await, World::new(&silent.each_ref()).await] {
        for (key, id) in [
            (&*RSA, "p256"),
            (&P256, "rsa"),
            (&P256, "p384"),
            (&P384, "p256"),
            (&ED25519, "p256"),
            (&P256, "ed25519"),
        ] {
            let token = world.token(&key.named(id));
            world.assert_invalid(&token, InvalidToken::OtherKeyType).await;
        }
        assert_eq!(world.tokens.checks(), 0);
    }
    let world = World::new(&named).await;
    let other_padding = world.token(&RSA.by(Algorithm::PS256));
    world.assert_invalid(&other_padding, InvalidToken::OtherKeyType).await;
}

#[tokio::test]
async fn keys_that_a_token_brings_along_are_not_used() {
    let world = World::new(&[&RSA]).await;
    let forger = &*OTHER_RSA;
    let claims = world.claims(&json!({}));
    for id in ["rsa", "other-rsa"] {
        let header = json!({
            "alg": "RS256", "kid": id, "jwk": forger.jwk(), "jku": world.provider.url(),
            "x5u": "https://evil.example/", "x5c": ["AAAA"],
        });
        let answer = world.check(&forger.sign_with_header(&header, &claims)).await;
        assert!(matches!(answer, TokenAnswer::Invalid(_)), "{answer:?}");
    }
    let crit = json!({ "alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": false });
    world.assert_invalid(&RSA.sign_with_header(&crit, &claims), InvalidToken::NotJwt).await;
}

#[tokio::test]
async fn a_token_has_one_spelling() {
    let world = World::new(&[&P256, &RSA]).await;
    for key in [&*P256, &RSA] {
        let token = world.token_with(key, &json!({ "sub": "0123456789" }));
        let parts: Vec<&str> = token.split('.').collect();
        let mut variants = vec![
            format!("{token}="),
            format!("{token}=="),
            format!("{token}\n"),
            format!(" {token}"),
            format!("{token}."),
            format!("{token}.{}", parts[2]),
            format!("Bearer {token}"),
        ];
        for (at, part) in parts.iter().enumerate() {
            let bytes = URL_SAFE_NO_PAD.decode(part).unwrap();
            let mut respell = |other: String| {
                let mut parts = parts.clone();
                parts[at] = &other;
                if parts.join(".") != token {
                    variants.push(parts.join("."));
                }
            };
            respell(STANDARD.encode(&bytes));
            respell(URL_SAFE.encode(&bytes));
            respell(format!("{part}="));
            respell(part.replacen(|_: char| true, "+", 1));
            if bytes.len() % 3 != 0 {
                // The same bytes, with stray bits behind them.
                let last = part.chars().last().unwrap();
                respell(format!("{}{}", &part[..part.len() - 1], next_in_alphabet(last)));
            }
        }
        assert!(variants.len() > 15);
        for variant in variants {
            let answer = world.check(&variant).await;
            assert!(matches!(answer, TokenAnswer::Invalid(_)), "{variant}");
        }
        world.valid(&token).await;
    }
}

#[tokio::test]
async fn crafted_tokens_cost_no_signature_check() {
    let world = World::new(&[&P256]).await;
    let huge = world.token_with(&P256, &json!({ "padding": "x".repeat(16 * 1024) }));
    let mut nested = json!(1);
    for _ in 0..120 {
        nested = json!([nested]);
    }
    let deep = format!("{{\"a\":{}", "[".repeat(8_000));
    let deep =
        [r#"{"alg":"ES256","kid":"p256"}"#, &deep, ""].map(|part| URL_SAFE_NO_PAD.encode(part));
    for token in [huge, "x".repeat(10_000_000), ".".repeat(16 * 1024), deep.join(".")] {
        world.assert_invalid(&token, InvalidToken::NotJwt).await;
    }
    assert_eq!(world.tokens.checks(), 0);
    world.valid(&world.token_with(&P256, &json!({ "nested": nested }))).await;
}

#[test]
fn one_changed_byte_and_a_token_does_not_count() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = runtime.block_on(World::new(&[&P256, &RSA, &ED25519]));
    let tokens = [&*P256, &RSA, &ED25519].map(|key| world.token(key));
    for token in &tokens {
        runtime.block_on(world.valid(token));
    }
    let change = (0..tokens.len(), any::<prop::sample::Index>(), 0u8..128, 0..3);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let checked = runner.run(&change, |(which, at, byte, kind)| {
        let token = &tokens[which];
        let at = at.index(token.len());
        let mut bytes = token.clone().into_bytes();
        match kind {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
        let changed = String::from_utf8(bytes).unwrap();
        let answer = runtime.block_on(world.check(&changed));
        let is_valid = matches!(answer, TokenAnswer::Valid(_));
        prop_assert_eq!(is_valid, changed == *token, "{}", changed);
        Ok(())
    });
    checked.unwrap();
}

fn next_in_alphabet(character: char) -> char {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let at = ALPHABET.find(character).expect("it is Base64");
    ALPHABET.chars().nth(at + 1).expect("the last bit is free")
}
