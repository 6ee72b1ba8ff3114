//! What a token of a good signature has to say, and when.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use slidegate::Clock as _;
use slidegate_customers::{InvalidToken, InvalidTokens, IssuerConfig, TokenAnswer, Tokens};

use crate::provider::{Answer, Provider};
use crate::signing::{ED25519, P256, P384, RSA, SigningKey, jwks};
use crate::world::{ISSUER, World, config, spawn_run, until};

#[tokio::test]
async fn tokens_of_every_kind_of_key_count() {
    use jsonwebtoken::Algorithm as A;
    let rsa = RSA.by(A::RS256);
    let world = World::new(&[&rsa, &P256, &P384, &ED25519]).await;
    for algorithm in [A::RS256, A::RS384, A::RS512, A::PS256, A::PS384, A::PS512] {
        let claims = world.valid(&world.token(&RSA.by(algorithm))).await;
        assert_eq!(claims.user.as_deref(), Some("ann"), "{algorithm:?}");
    }
    for key in [&P256, &P384, &ED25519] {
        let claims = world.valid(&world.token(key)).await;
        assert_eq!(claims.user.as_deref(), Some("ann"), "{:?}", key.algorithm);
        assert_eq!(&*claims.issuer, ISSUER);
    }
    assert_eq!(world.tokens.checks(), 9);
    let [(issuer, status)] = world.tokens.statuses().try_into().unwrap();
    assert_eq!((issuer.as_str(), status.keys), (ISSUER, 4));
}

#[tokio::test]
async fn user_customer_and_plan_are_read() {
    let change = |config: &mut IssuerConfig| {
        config.customer = Some("app.org.id".to_owned());
        config.plan = Some("https://example.com/plan".to_owned());
    };
    let world = World::with(&[&P256], change).await;
    let more = json!({
        "sub": 42, "app": { "org": { "id": "acme" } }, "https://example.com/plan": "pro",
    });
    let claims = world.valid(&world.token_with(&P256, &more)).await;
    assert_eq!(claims.user.as_deref(), Some("42"));
    assert_eq!(claims.customer.as_deref(), Some("acme"));
    assert_eq!(claims.plan.as_deref(), Some("pro"));

    let claims = world.valid(&world.token(&P256)).await;
    assert_eq!((&claims.customer, &claims.plan), (&None, &None));
    let nobody = world.token_with(&P256, &json!({ "sub": "" }));
    world.assert_invalid(&nobody, InvalidToken::MissingClaim).await;
}

#[tokio::test]
async fn a_token_counts_until_it_expires() {
    let world = World::new(&[&P256]).await;
    let token = world.token(&P256);
    let claims = world.valid(&token).await;
    // An hour, and 5 s for clocks that differ.
    world.clock.set(claims.expires - Duration::from_nanos(1));
    world.valid(&token).await;
    assert!(world.tokens.find(&token).is_some());
    world.clock.advance(Duration::from_nanos(1));
    world.assert_invalid(&token, InvalidToken::Expired).await;
    let now = world.clock.now().as_millis() / 1000;
    for (exp, expected) in [
        (json!(now - 4), None),
        (json!(now as f64 - 4.5), None),
        (json!(now - 5), Some(InvalidToken::Expired)),
        (json!(0), Some(InvalidToken::Expired)),
        (json!(-1), Some(InvalidToken::Expired)),
        (json!(u64::MAX), None),
        (json!(1e300), None),
        (json!(null), Some(InvalidToken::MissingClaim)),
        (json!(format!("{}", now + 60)), Some(InvalidToken::NotJwt)),
    ] {
        let token = world.token_with(&P256, &json!({ "exp": exp }));
        expect(&world, &token, expected).await;
    }
}

#[tokio::test]
async fn a_token_counts_from_its_first_instant() {
    let world = World::new(&[&P256]).await;
    let now = world.clock.now().as_millis() / 1000;
    let token = world.token_with(&P256, &json!({ "nbf": now + 60 }));
    world.assert_invalid(&token, InvalidToken::NotYetValid).await;
    world.clock.advance(Duration::from_secs(55) - Duration::from_nanos(1));
    world.assert_invalid(&token, InvalidToken::NotYetValid).await;
    world.clock.advance(Duration::from_nanos(1));
    world.valid(&token).await;
    world.valid(&world.token_with(&P256, &json!({ "nbf": null }))).await;
}

#[tokio::test]
async fn a_token_is_for_one_of_the_audiences() {
    let change = |config: &mut IssuerConfig| {
        config.audience.push("mobile".to_owned());
    };
    let world = World::with(&[&P256], change).await;
    let other = Some(InvalidToken::OtherAudience);
    for (audience, expected) in [
        (json!("api"), None),
        (json!("mobile"), None),
        (json!(["billing", "mobile"]), None),
        (json!("billing"), other),
        (json!("API"), other),
        (json!("api "), other),
        (json!(["billing", "apis"]), other),
        (json!([]), other),
        (json!(""), other),
        (json!(null), other),
        (json!(["api", 7]), Some(InvalidToken::NotJwt)),
        (json!({ "api": true }), Some(InvalidToken::NotJwt)),
    ] {
        let token = world.token_with(&P256, &json!({ "aud": audience }));
        expect(&world, &token, expected).await;
    }
}

#[tokio::test]
async fn the_issuer_is_compared_exactly() {
    let world = World::new(&[&P256]).await;
    let issuers = [
        json!("https://auth.example.com"),
        json!("https://AUTH.example.com/"),
        json!("https://evil.example/"),
        json!(""),
        json!(null),
    ];
    for issuer in issuers {
        let token = world.token_with(&P256, &json!({ "iss": issuer }));
        world.assert_invalid(&token, InvalidToken::OtherIssuer).await;
    }
    let array = world.token_with(&P256, &json!({ "iss": [ISSUER] }));
    world.assert_invalid(&array, InvalidToken::NotJwt).await;
    assert_eq!(world.tokens.checks(), 0);
}

#[tokio::test]
async fn a_key_of_one_issuer_signs_nothing_for_another() {
    const OTHER: &str = "https://other.example/";
    let world = World::new(&[&P256]).await;
    let provider = Provider::start(Answer::Keys(jwks([&*RSA]))).await;
    let mut other = config(&provider);
    other.issuer = OTHER.to_owned();
    other.invalid = InvalidTokens::Refuse;
    let both = vec![config(&world.provider), other.clone()];
    let tokens = Tokens::new(both, Arc::new(world.clock.clone())).unwrap();
    let run = spawn_run(&tokens);
    until("both are loaded", || tokens.statuses().iter().all(|(_, status)| status.keys == 1)).await;

    let of_other = |key: &SigningKey| world.token_with(key, &json!({ "iss": OTHER, "sub": "bob" }));
    let check = async |token: String| tokens.check(&token, None).await;
    assert!(matches!(check(world.token(&P256)).await, TokenAnswer::Valid(_)));
    match check(of_other(&RSA)).await {
        TokenAnswer::Valid(claims) => assert_eq!(&*claims.issuer, OTHER),
        answer => panic!("{answer:?}"),
    }
    let unknown = InvalidToken::UnknownKey;
    assert_eq!(check(world.token(&RSA)).await, TokenAnswer::Invalid(unknown));
    assert_eq!(check(of_other(&P256)).await, TokenAnswer::Refused(unknown));
    // Only one of the two refuses what is from neither.
    let from_neither = world.token_with(&P256, &json!({ "iss": "neither" }));
    let invalid = TokenAnswer::Invalid(InvalidToken::OtherIssuer);
    assert_eq!(check(from_neither.clone()).await, invalid);
    run.abort();

    let only = Tokens::new(vec![other], Arc::new(world.clock.clone())).unwrap();
    let refused = TokenAnswer::Refused(InvalidToken::OtherIssuer);
    assert_eq!(only.check(&from_neither, None).await, refused);
    assert_eq!(only.check("opaque", None).await, TokenAnswer::Refused(InvalidToken::NotJwt));
}

#[tokio::test]
async fn an_issuer_is_there_once() {
    let world = World::new(&[&P256]).await;
    let twice = vec![config(&world.provider), config(&world.provider)];
    let error = Tokens::new(twice, Arc::new(world.clock.clone())).unwrap_err();
    assert_eq!(error.to_string(), format!("issuer `{ISSUER}` is there twice"));
}

#[tokio::test]
async fn reasons_say_nothing_of_the_token() {
    let world = World::new(&[&P256]).await;
    let secret: Value = json!({ "aud": "secret-audience", "sub": "secret-user" });
    let token = world.token_with(&P256.named("secret-key"), &secret);
    let answer = world.check(&token).await;
    let text = match answer {
        TokenAnswer::Invalid(invalid) => format!("{invalid} {invalid:?} {:?}", world.tokens),
        other => panic!("{other:?}"),
    };
    assert!(text.contains("another audience") && !text.contains("secret"), "{text}");
}

async fn expect(world: &World, token: &str, expected: Option<InvalidToken>) {
    match expected {
        Some(invalid) => world.assert_invalid(token, invalid).await,
        None => drop(world.valid(token).await),
    }
}
