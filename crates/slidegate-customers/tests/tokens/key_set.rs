//! Which key checks a token, and how new keys come and old ones go.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use slidegate_customers::{InvalidToken, JwksLocation, TokenAnswer};
use slidegate_testbed::Directory;

use crate::provider::{Answer, Provider};
use crate::signing::{ED25519, OTHER_P256, P256, RSA, jwks, message};
use crate::world::World;

const COOL_DOWN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_new_key_counts_at_once_and_an_old_one_until_it_is_withdrawn() {
    let (old, new) = (P256.named("old"), OTHER_P256.named("new"));
    let world = World::new(&[&old]).await;
    let old_token = world.token(&old);
    world.valid(&old_token).await;

    world.provider.answer(Answer::Keys(jwks([&old, &new])));
    let new_token = world.token(&new);
    world.valid(&new_token).await;
    assert_eq!(world.provider.fetches(), 2);
    assert!(world.tokens.find(&old_token).is_some(), "its key is still in the set");

    world.refresh(jwks([&new])).await;
    world.assert_invalid(&old_token, InvalidToken::UnknownKey).await;
    assert!(world.tokens.find(&new_token).is_some(), "its key is still in the set");
    assert_eq!(world.tokens.checks(), 2);
}

#[tokio::test]
async fn another_key_of_the_same_id_is_another_key() {
    let world = World::new(&[&P256]).await;
    let token = world.token(&P256);
    world.valid(&token).await;
    world.refresh(jwks([&OTHER_P256.named("p256")])).await;
    world.assert_invalid(&token, InvalidToken::Signature).await;
}

#[tokio::test]
async fn without_a_key_id_only_one_key_may_fit() {
    let world = World::new(&[&P256, &RSA, &ED25519]).await;
    world.valid(&world.token(&P256.unnamed())).await;
    world.valid(&world.token(&RSA.unnamed())).await;
    world.refresh(jwks([&*P256, &OTHER_P256, &RSA])).await;
    world.assert_invalid(&world.token(&P256.unnamed()), InvalidToken::AmbiguousKey).await;
    world.valid(&world.token(&RSA.unnamed())).await;
    world.valid(&world.token(&P256)).await;
    // The same id for two keys of one kind says no more than none.
    world.refresh(jwks([&*P256, &OTHER_P256.named("p256")])).await;
    world.assert_invalid(&world.token(&P256), InvalidToken::AmbiguousKey).await;
    world.assert_invalid(&world.token(&ED25519.unnamed()), InvalidToken::UnknownKey).await;
}

#[tokio::test]
async fn a_set_of_one_key_without_an_id_is_used() {
    let world = World::new(&[&P256.unnamed()]).await;
    world.valid(&world.token(&P256.unnamed())).await;
    world.assert_invalid(&world.token(&P256), InvalidToken::UnknownKey).await;
}

#[tokio::test]
async fn ten_thousand_invented_key_ids_cause_one_fetch_in_30_s() {
    let world = World::new(&[&P256]).await;
    for round in 1..=3 {
        let tokens: Vec<String> =
            (0..10_000).map(|n| invented(&world, round * 10_000 + n)).collect();
        let answers = join_all(tokens.iter().map(|token| world.check(token))).await;
        let unknown = TokenAnswer::Invalid(InvalidToken::UnknownKey);
        assert!(answers.iter().all(|answer| *answer == unknown));
        // Those that come one after the other do not wait either.
        for token in &tokens[..100] {
            assert_eq!(world.check(token).await, unknown);
        }
        assert_eq!(world.provider.fetches(), 1 + round);
        world.clock.advance(COOL_DOWN - Duration::from_nanos(1));
        assert_eq!(world.check(&tokens[0]).await, unknown);
        assert_eq!(world.provider.fetches(), 1 + round);
        world.clock.advance(Duration::from_nanos(1));
    }
    assert_eq!(world.tokens.checks(), 0);
    world.valid(&world.token(&P256)).await;
}

#[tokio::test]
async fn requests_with_a_new_key_share_one_fetch_and_one_check() {
    let world = World::new(&[&P256]).await;
    world.provider.answer(Answer::Keys(jwks([&*P256, &ED25519])));
    let token = world.token(&ED25519);
    let answers = join_all((0..1000).map(|_| world.check_from("192.0.2.1", &token))).await;
    assert!(answers.iter().all(|answer| matches!(answer, TokenAnswer::Valid(_))));
    assert_eq!((world.provider.fetches(), world.tokens.checks()), (2, 1));
}

#[tokio::test]
async fn keys_are_fetched_every_ten_minutes() {
    let world = World::new(&[&P256]).await;
    for round in 0..3 {
        assert_eq!(world.provider.fetches(), 1 + round);
        world.refresh(jwks([&*P256])).await;
    }
    assert_eq!(world.status().answered_ago, Some(Duration::ZERO));
}

#[tokio::test]
async fn a_file_is_read_at_start_and_when_it_changes() {
    let directory = Directory::new();
    let path = directory.write("jwks.json", &jwks([&*P256]));
    let provider = Provider::start(Answer::Nothing).await;
    let world = World::without_keys(provider, |config| {
        config.jwks = JwksLocation::File(path.clone());
    });
    // The first request waits for the keys.
    let token = world.token(&P256);
    world.valid(&token).await;

    directory.write("jwks.json", &jwks([&*P256, &RSA]));
    world.until("the new file is read", |status| status.keys == 2).await;
    world.valid(&world.token(&RSA)).await;

    directory.write("jwks.json", "half a fi");
    world.until("the damage is seen", |status| status.error.is_some()).await;
    let error = world.status().error.unwrap();
    assert!(error.contains("no key set"), "{error}");
    assert_eq!(world.status().keys, 2);
    std::fs::remove_file(&path).unwrap();
    let names_file = |error: &String| error.contains("jwks.json: No such file");
    world.until("its end is seen", |status| status.error.as_ref().is_some_and(names_file)).await;
    assert!(world.tokens.find(&token).is_some());

    // A key that is not known yet is looked for at once, once in the cool-down.
    directory.write("jwks.json", &jwks([&*RSA, &ED25519]));
    world.clock.advance(COOL_DOWN);
    world.valid(&world.token(&ED25519)).await;
    world.assert_invalid(&token, InvalidToken::UnknownKey).await;
    assert_eq!(world.status().error, None);
}

#[tokio::test]
async fn a_file_that_is_none_or_too_large_is_an_error() {
    let directory = Directory::new();
    let provider = Provider::start(Answer::Nothing).await;
    let world = World::without_keys(provider, |config| {
        config.jwks = JwksLocation::File(directory.path().to_owned());
    });
    world.until("it fails", |status| status.error.is_some()).await;
    assert!(world.status().error.unwrap().ends_with(": not a file"));

    let path = directory.write("large", &" ".repeat(256 * 1024 + 1));
    let provider = Provider::start(Answer::Nothing).await;
    let world = World::without_keys(provider, |config| {
        config.jwks = JwksLocation::File(path);
    });
    world.until("it fails", |status| status.error.is_some()).await;
    assert!(world.status().error.unwrap().ends_with("large: larger than 262144 bytes"));
}

#[tokio::test]
async fn keys_for_other_uses_do_not_count() {
    let mut keys = vec![P256.jwk(), RSA.jwk()];
    keys[1]["use"] = json!("enc");
    let provider = Provider::start(Answer::Keys(json!({ "keys": keys }).to_string())).await;
    let world = World::without_keys(provider, |_| ());
    world.until("the keys are loaded", |status| status.keys == 1).await;
    world.assert_invalid(&world.token(&RSA), InvalidToken::UnknownKey).await;
    world.valid(&world.token(&P256)).await;
}

/// A token that would count if its key were known.
fn invented(world: &World, number: usize) -> String {
    let header = json!({ "alg": "ES256", "kid": format!("invented-{number}") });
    format!("{}.AAAA", message(&header, &world.claims(&json!({}))))
}
