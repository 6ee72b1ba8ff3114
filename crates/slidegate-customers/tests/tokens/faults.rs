//! Providers that are away, slow or broken.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use slidegate_customers::{InvalidToken, InvalidTokens, TokenAnswer};
use slidegate_testbed::Certificates;
use tokio::time::Instant;

use crate::provider::{Answer, Provider};
use crate::signing::{ED25519, P256, RSA, jwks};
use crate::world::{World, until};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test]
async fn it_starts_without_the_provider_and_recovers() {
    let mut provider = Provider::start(Answer::Keys(jwks([&*P256]))).await;
    provider.stop().await;
    let mut world = World::without_keys(provider, |_| ());
    world.until("the fetch failed", |status| status.error.is_some()).await;
    let token = world.token(&P256);
    world.assert_invalid(&token, InvalidToken::NoKeys).await;
    let status = world.status();
    assert!(status.is_degraded());
    assert_eq!((status.answered_ago, status.keys), (None, 0));

    world.provider.resume().await;
    // The longest pause between two attempts.
    world.clock.advance(Duration::from_secs(60));
    world.until("the keys are loaded", |status| status.keys == 1).await;
    assert!(!world.status().is_degraded());
    world.valid(&token).await;
}

#[tokio::test]
async fn attempts_without_keys_are_repeated() {
    let provider = Provider::start(Answer::Status(StatusCode::BAD_GATEWAY)).await;
    let world = World::without_keys(provider, |_| ());
    for attempts in 1..=4 {
        until("an attempt was made", || world.provider.fetches() == attempts).await;
        world.until("it failed", |status| status.error.is_some()).await;
        // The pause after the first is at most 1 s, after the second 2 s, and so on.
        world.clock.advance(Duration::from_secs(1 << (attempts - 1)));
    }
    assert_eq!(world.status().error.as_deref(), Some("status 502 Bad Gateway"));
}

#[tokio::test]
async fn a_provider_that_is_gone_later_does_no_harm_for_a_day() {
    let mut world = World::new(&[&P256, &RSA]).await;
    let live_for_days = json!({ "exp": 4_000_000_000_u64 });
    let token = world.token_with(&P256, &live_for_days);
    world.valid(&token).await;
    world.provider.stop().await;
    world.clock.advance(Duration::from_secs(10 * 60));
    world.until("the fetch failed", |status| status.error.is_some()).await;
    // What is remembered counts, and so does what was never seen.
    world.clock.advance(DAY - Duration::from_secs(10 * 60) - Duration::from_nanos(1));
    assert!(world.tokens.find(&token).is_some());
    let other = world.token_with(&RSA, &live_for_days);
    world.valid(&other).await;
    assert_eq!(world.status().keys, 2);

    world.clock.advance(Duration::from_nanos(1));
    world.assert_invalid(&token, InvalidToken::NoKeys).await;
    world.assert_invalid(&other, InvalidToken::NoKeys).await;
    let status = world.status();
    assert_eq!((status.answered_ago, status.keys), (Some(DAY), 0));

    world.provider.resume().await;
    world.clock.advance(Duration::from_secs(60));
    world.until("the keys are loaded", |status| status.keys == 2).await;
    world.valid(&token).await;
}

#[tokio::test]
async fn answers_that_are_no_key_set_replace_nothing() {
    let secret = json!({ "keys": [{ "kty": "oct", "kid": "p256", "k": "c2VjcmV0" }] });
    let broken = [
        (Answer::Status(StatusCode::INTERNAL_SERVER_ERROR), "status 500"),
        (Answer::Status(StatusCode::FOUND), "status 302"),
        (Answer::Status(StatusCode::NO_CONTENT), "status 204"),
        (Answer::Keys(String::new()), "no key set"),
        (Answer::Keys("<html>".to_owned()), "no key set"),
        (Answer::Keys(json!({ "error": "later" }).to_string()), "no key set"),
        (Answer::Keys(json!({ "keys": [] }).to_string()), "no key for the listed algorithms"),
        (Answer::Keys(secret.to_string()), "no key for the listed algorithms (1 others)"),
        (Answer::Keys(" ".repeat(300_000)), "could not be read"),
    ];
    let check = async |(answer, expected): (Answer, &str)| {
        let world = World::new(&[&P256]).await;
        let token = world.token(&P256);
        world.valid(&token).await;
        world.fail_to_refresh(answer).await;
        let error = world.status().error.unwrap();
        assert!(error.contains(expected), "{error}");
        assert_eq!(world.status().keys, 1);
        assert!(world.tokens.find(&token).is_some());
        world.valid(&world.token(&P256)).await;
    };
    join_all(broken.into_iter().map(check)).await;
}

/// CVE-2025-64527: a gateway crashed when a request had two tokens and the fetch failed.
#[tokio::test]
async fn two_tokens_and_a_failing_fetch_do_no_harm() {
    let failing = [Answer::Status(StatusCode::SERVICE_UNAVAILABLE), Answer::Keys("{".to_owned())];
    for answer in failing {
        let provider = Provider::start(answer).await;
        let world = World::without_keys(provider, |_| ());
        let (one, two) = (world.token(&P256), world.token(&RSA));
        let no_keys = TokenAnswer::Invalid(InvalidToken::NoKeys);
        for (one, two) in [(&one, &two), (&one, &one), (&two, &one)] {
            let both = tokio::join!(world.check(one), world.check(two));
            assert_eq!(both, (no_keys.clone(), no_keys.clone()));
            world.clock.advance(Duration::from_secs(60));
        }
        // One of the requests goes away while both wait.
        {
            let mut first = pin!(world.check(&one));
            let is_waiting = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await;
            assert!(is_waiting);
        }
        assert_eq!(world.check(&two).await, no_keys);

        world.provider.answer(Answer::Keys(jwks([&*P256, &RSA])));
        world.clock.advance(Duration::from_secs(60));
        let both = tokio::join!(world.check(&one), world.check(&two));
        assert!(matches!(both, (TokenAnswer::Valid(_), TokenAnswer::Valid(_))), "{both:?}");
    }
}

#[tokio::test]
async fn a_slow_provider_delays_a_request_by_two_seconds_at_most() {
    let world = World::new(&[&P256]).await;
    world.provider.answer(Answer::Nothing);
    let token = world.token(&RSA);
    let began = Instant::now();
    world.assert_invalid(&token, InvalidToken::NoKeys).await;
    let waited = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(8)).contains(&waited), "{waited:?}");
    // The fetch goes on; others do not wait for it, and tokens of known keys never have.
    let began = Instant::now();
    for _ in 0..100 {
        world.assert_invalid(&token, InvalidToken::NoKeys).await;
        world.valid(&world.token(&P256)).await;
    }
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    assert_eq!(world.provider.fetches(), 2);
}

#[tokio::test]
async fn no_request_waits_in_vain_for_a_task_that_has_ended() {
    let mut world = World::new(&[&P256]).await;
    world.provider.answer(Answer::Nothing);
    world.clock.advance(Duration::from_secs(10 * 60));
    until("a fetch began", || world.provider.fetches() == 2).await;
    world.stop_running().await;
    let token = world.token(&ED25519);
    world.assert_invalid(&token, InvalidToken::NoKeys).await;

    world.provider.answer(Answer::Keys(jwks([&*P256, &ED25519])));
    world.run_again();
    world.until("the keys are loaded", |status| status.keys == 2).await;
    world.valid(&token).await;
}

#[tokio::test]
async fn a_provider_is_trusted_by_its_certificate() {
    let certificates = Certificates::new();
    let start = || Provider::start_tls(Answer::Keys(jwks([&*P256])), &certificates);
    let ca = CertificateDer::from_pem_file(&certificates.ca).unwrap();
    let world = World::without_keys(start().await, |config| config.authorities.add(ca).unwrap());
    world.until("the keys are loaded", |status| status.keys == 1).await;
    world.valid(&world.token(&P256)).await;

    let world = World::without_keys(start().await, |_| ());
    world.until("the fetch failed", |status| status.error.is_some()).await;
    let error = world.status().error.unwrap();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(world.provider.fetches(), 0);
}

#[tokio::test]
async fn of_two_tasks_one_fetches() {
    let mut world = World::new(&[&P256]).await;
    let second = crate::world::spawn_run(&world.tokens);
    world.refresh(jwks([&*P256])).await;
    assert_eq!(world.provider.fetches(), 2);
    world.stop_running().await;
    world.refresh(jwks([&*P256, &RSA])).await;
    assert_eq!(world.status().keys, 2);
    second.abort();
}

#[tokio::test]
async fn refusing_issuers_refuse_what_cannot_be_checked() {
    let provider = Provider::start(Answer::Status(StatusCode::NOT_FOUND)).await;
    let world = World::without_keys(provider, |config| config.invalid = InvalidTokens::Refuse);
    world.until("the fetch failed", |status| status.error.is_some()).await;
    let refused = TokenAnswer::Refused(InvalidToken::NoKeys);
    assert_eq!(world.check(&world.token(&P256)).await, refused);
}

#[tokio::test]
async fn a_fault_is_logged_when_it_begins_and_when_it_ends() {
    const LOGGED: &str = "https://logged.example/";
    // Of the whole process: what one thread logs is lost if another logged the same before.
    let subscriber = tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let lines = || -> Vec<String> {
        let log = String::from_utf8(LOG.lock().clone()).unwrap();
        log.lines().filter(|line| line.contains(LOGGED)).map(str::to_owned).collect()
    };
    let provider = Provider::start(Answer::Status(StatusCode::NOT_FOUND)).await;
    let world = World::without_keys(provider, |config| config.issuer = LOGGED.to_owned());
    for attempts in 1..=3 {
        until("an attempt was made", || world.provider.fetches() == attempts).await;
        world.until("it failed", |status| status.error.is_some()).await;
        world.clock.advance(Duration::from_secs(60));
    }
    world.provider.answer(Answer::Keys(jwks([&*P256])));
    world.clock.advance(Duration::from_secs(60));
    world.until("the keys are loaded", |status| status.keys == 1).await;
    let [begin, end] = lines().try_into().unwrap();
    for expected in ["WARN", "all tokens of this issuer are invalid", "404"] {
        assert!(begin.contains(expected), "{begin}");
    }
    assert!(end.contains("INFO") && end.contains("fetched again"), "{end}");

    world.fail_to_refresh(Answer::Status(StatusCode::NOT_FOUND)).await;
    assert!(lines()[2].contains("using the last one"));
    world.clock.advance(DAY);
    until("the end of the keys is logged", || lines().len() == 4).await;
    assert!(lines()[3].contains("all tokens of this issuer are invalid"));
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
