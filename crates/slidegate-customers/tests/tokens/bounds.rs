//! What tokens may cost.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use slidegate::{Clock, ManualClock, Timestamp};
use slidegate_customers::{InvalidToken, TokenAnswer, Tokens};

use crate::provider::Answer;
use crate::signing::{ED25519, OTHER_P256, P256};
use crate::world::{World, config, spawn_run, until};

#[tokio::test]
async fn a_token_is_checked_once() {
    let mut world = World::new(&[&P256]).await;
    let token = world.token(&P256);
    assert_eq!(world.tokens.find(&token), None);
    let claims = world.valid(&token).await;
    world.provider.stop().await;
    for _ in 0..1000 {
        assert_eq!(world.tokens.find(&token), Some(claims.clone()));
        assert_eq!(world.check_from("192.0.2.1", &token).await, TokenAnswer::Valid(claims.clone()));
    }
    assert_eq!(world.tokens.checks(), 1);
    // Clones share what is remembered.
    assert_eq!(world.tokens.clone().find(&token), Some(claims));
}

#[tokio::test]
async fn one_address_causes_a_hundred_checks_a_second() {
    let world = World::new(&[&P256]).await;
    let good = world.token(&P256);
    world.valid(&good).await;
    let forged = |n: u32| world.token_with(&OTHER_P256.named("p256"), &json!({ "sub": n }));
    let invalid = TokenAnswer::Invalid(InvalidToken::Signature);
    for n in 0..100 {
        assert_eq!(world.check_from("192.0.2.1", &forged(n)).await, invalid);
    }
    let TokenAnswer::Unchecked { retry_after } = world.check_from("192.0.2.1", &forged(100)).await
    else {
        panic!("it was checked");
    };
    assert!(retry_after <= Duration::from_millis(1100), "{retry_after:?}");
    let unchecked = TokenAnswer::Unchecked { retry_after };
    // Whatever it sends that needs a check; but what is remembered needs none.
    assert_eq!(
        world.check_from("192.0.2.1", &world.token_with(&P256, &json!({ "sub": "b" }))).await,
        unchecked
    );
    assert!(matches!(world.check_from("192.0.2.1", &good).await, TokenAnswer::Valid(_)));
    // What does not need one is answered as ever.
    let expired = world.token_with(&P256, &json!({ "exp": 1 }));
    let answer = TokenAnswer::Invalid(InvalidToken::Expired);
    assert_eq!(world.check_from("192.0.2.1", &expired).await, answer);
    // Others are not affected. Requests without an address share what one address has, of which the
    // first token has spent one.
    assert_eq!(world.check_from("192.0.2.2", &forged(100)).await, invalid);
    for n in 0..99 {
        assert_eq!(world.check(&forged(n)).await, invalid);
    }
    assert_eq!(world.check(&forged(99)).await, unchecked);
    assert_eq!(world.tokens.checks(), 1 + 100 + 1 + 99);

    world.clock.advance(retry_after - Duration::from_nanos(1));
    let answer = world.check_from("192.0.2.1", &forged(100)).await;
    assert!(matches!(answer, TokenAnswer::Unchecked { .. }), "{answer:?}");
    world.clock.advance(Duration::from_nanos(1));
    assert_eq!(world.check_from("192.0.2.1", &forged(100)).await, invalid);
}

#[tokio::test]
async fn an_ipv6_network_is_one_address() {
    let world = World::new(&[&P256]).await;
    let forged = world.token(&OTHER_P256.named("p256"));
    for n in 0..100 {
        world.check_from(&format!("2001:db8::{n:x}"), &forged).await;
    }
    let answer = world.check_from("2001:db8::ffff", &forged).await;
    assert!(matches!(answer, TokenAnswer::Unchecked { .. }), "{answer:?}");
    let answer = world.check_from("2001:db8:1::1", &forged).await;
    assert_eq!(answer, TokenAnswer::Invalid(InvalidToken::Signature));
}

#[tokio::test]
async fn invalid_tokens_are_not_remembered() {
    let world = World::new(&[&P256]).await;
    let token = world.token(&ED25519);
    world.assert_invalid(&token, InvalidToken::UnknownKey).await;
    let keys = [&*P256, &ED25519];
    world.provider.answer(Answer::Keys(crate::signing::jwks(keys)));
    world.clock.advance(Duration::from_secs(30));
    world.valid(&token).await;
}

#[tokio::test]
async fn a_token_without_the_claims_that_count_costs_no_check() {
    let world = World::new(&[&P256]).await;
    let token = world.token_with(&P256, &json!({"sub": null}));
    for _ in 0..200 {
        let answer = world.check_from("192.0.2.1", &token).await;
        assert_eq!(answer, TokenAnswer::Invalid(InvalidToken::MissingClaim));
    }
    assert_eq!(world.tokens.checks(), 0);
}

/// A clock that was set right after the start: its calendar is two days on.
struct SetRight(ManualClock);

impl Clock for SetRight {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.now() + Duration::from_secs(2 * 24 * 60 * 60)
    }
}

#[tokio::test]
async fn a_token_is_remembered_whatever_the_calendar_did_since_the_start() {
    let world = World::new(&[&P256]).await;
    let clock = SetRight(ManualClock::default());
    let exp = clock.wall().as_millis() / 1000 + 3600;
    let tokens = Tokens::new(vec![config(&world.provider)], Arc::new(clock)).unwrap();
    let run = spawn_run(&tokens);
    until("the keys are loaded", || tokens.statuses()[0].1.keys > 0).await;
    let token = world.token_with(&P256, &json!({"exp": exp, "nbf": null}));
    for _ in 0..3 {
        assert!(matches!(tokens.check(&token, None).await, TokenAnswer::Valid(_)));
    }
    assert_eq!(tokens.checks(), 1);
    run.abort();
}
