//! API keys by HTTP look-up, against a service that the tests control.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod log;
mod service;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use slidegate::limit::{ManualClock, Quotas};
use slidegate::policy::KeyHash;
use slidegate::{Clock, Timestamp};
use slidegate_customers::{HttpKeys, HttpKeysConfig, HttpKeysError, KeyAnswer, KnownKey};
use slidegate_testbed::Certificates;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance};
use tokio_rustls::TlsAcceptor;

use crate::log::Log;
use crate::service::{Service, StillTime, sending, until};

const ACME: &str = r#"{"customer": "acme"}"#;

const DEADLINE: Duration = Duration::from_millis(200);

fn known(customer: &str) -> KeyAnswer {
    KeyAnswer::Known(KnownKey {
        customer: Some(customer.into()),
        plan: None,
        quotas: None,
        expires: None,
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn keys_of(service: &Service) -> HttpKeys {
    HttpKeys::new(service.config()).unwrap()
}

fn spawn_find(keys: &HttpKeys, key: &str) -> JoinHandle<KeyAnswer> {
    spawn_find_from(None, keys, key)
}

fn spawn_find_from(address: Option<IpAddr>, keys: &HttpKeys, key: &str) -> JoinHandle<KeyAnswer> {
    let (keys, key) = (keys.clone(), key.to_owned());
    tokio::spawn(async move { keys.find(key.as_bytes(), address).await })
}

/// One of many clients.
fn client(number: u16) -> Option<IpAddr> {
    let [high, low] = number.to_be_bytes();
    Some(IpAddr::from([10, 0, high, low]))
}

/// Waits until look-ups that were started before this have been answered.
async fn settle(keys: &HttpKeys, service: &Service) -> usize {
    let before = service.received();
    for round in ["settle-1", "settle-2"] {
        let round = format!("{round}-{before}");
        assert_eq!(keys.find(round.as_bytes(), None).await, KeyAnswer::Unknown);
    }
    service.received() - 2
}

#[tokio::test(start_paused = true)]
async fn a_known_key_is_looked_up_once() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    let body = r#"{"customer": "acme", "plan": "pro", "expires": "2127-01-01T00:00:00Z",
        "quotas": ["600/min", "10000/day"], "owner": {"id": 7}}"#;
    service.reply("k-1", 200, body);
    let keys = keys_of(&service);
    let expected = KeyAnswer::Known(KnownKey {
        customer: Some("acme".into()),
        plan: Some("pro".into()),
        quotas: Some(
            Quotas::new(["600/min", "10000/day"].map(|text| text.parse().unwrap())).unwrap(),
        ),
        expires: Some(Timestamp::from_millis(4_954_435_200_000)),
    });
    assert_eq!(keys.find_now(b"k-1"), None);
    assert_eq!(keys.find(b"k-1", None).await, expected);
    assert_eq!(keys.find_now(b" k-1 "), Some(expected.clone()));
    assert_eq!(keys.clone().find(b"k-1", None).await, expected);
    assert_eq!(service.received(), 1);
    let request = service.last();
    assert_eq!(request.method, "GET");
    assert_eq!(request.uri.path(), format!("/keys/{}", KeyHash::Slidegate.hex(b"k-1")));
    assert_eq!(request.headers["host"], service.address().to_string());
    assert!(!request.headers.contains_key("authorization"));
}

#[tokio::test(start_paused = true)]
async fn the_digest_is_the_tables_and_the_header_is_sent_along() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    let keys = HttpKeys::new(HttpKeysConfig {
        url: format!("http://{}/a?d={{digest}}&e={{digest}}", service.address()),
        hash: KeyHash::Sha256,
        authorization: Some(HeaderValue::from_static("Bearer t-1")),
        ..service.config()
    })
    .unwrap();
    assert_eq!(keys.find(b"abc", None).await, KeyAnswer::Unknown);
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(service.last().uri.to_string(), format!("/a?d={digest}&e={digest}"));
    assert_eq!(service.last().headers["authorization"], "Bearer t-1");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_first_requests_are_one_look_up() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    service.hold();
    let keys = keys_of(&service);
    let finds: Vec<_> = (0..1_000).map(|_| spawn_find(&keys, "k-1")).collect();
    service.until_received(1).await;
    service.release();
    for find in finds {
        assert_eq!(find.await.unwrap(), known("acme"));
    }
    assert_eq!(settle(&keys, &service).await, 1);
}

/// The same on several threads, where some come as the look-up ends. On a slow machine some may miss
/// their deadline; the cache has the answer all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_first_requests_on_four_threads_are_one_look_up() {
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    let keys = keys_of(&service);
    let finds: Vec<_> = (0..1_000).map(|_| spawn_find(&keys, "k-1")).collect();
    for find in finds {
        assert_ne!(find.await.unwrap(), KeyAnswer::Unknown);
    }
    until("the answer", || keys.find_now(b"k-1") == Some(known("acme"))).await;
    assert_eq!(service.received(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_refreshed_once_it_is_no_longer_fresh() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    let keys = keys_of(&service);
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));

    advance(seconds(10) - Duration::from_millis(1)).await;
    assert_eq!(keys.find_now(b"k-1"), Some(known("acme")));
    assert_eq!(settle(&keys, &service).await, 1);

    let before = service.received();
    service.reply("k-1", 200, r#"{"customer": "initech"}"#);
    service.hold();
    advance(Duration::from_millis(1)).await;
    for _ in 0..100 {
        assert_eq!(keys.find(b"k-1", None).await, known("acme"), "it answers at once");
    }
    service.until_received(before + 1).await;
    service.release();
    until("the refresh", || keys.find_now(b"k-1") == Some(known("initech"))).await;
    assert_eq!(settle(&keys, &service).await, before + 1);
}

/// A cache that is never refreshed would let a revoked key go on for as long as it is used.
#[tokio::test(start_paused = true)]
async fn a_revoked_key_in_use_ends_with_its_freshness() {
    for status in [404, 410] {
        let _still = StillTime::begin();
        let service = Service::start().await;
        service.reply("k-1", 200, ACME);
        let keys = keys_of(&service);
        assert_eq!(keys.find(b"k-1", None).await, known("acme"));
        service.reply("k-1", status, "");
        advance(seconds(10)).await;
        assert_eq!(keys.find_now(b"k-1"), Some(known("acme")));
        until("the refresh", || keys.find_now(b"k-1") == Some(KeyAnswer::Unknown)).await;
        assert_eq!(keys.find(b"k-1", None).await, KeyAnswer::Unknown);
        assert_eq!(service.received(), 2);
        assert_eq!(keys.status().keys, 0);
    }
}

/// An answer that takes long is as old as its question.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_look_up_counts_towards_the_age_of_its_answer() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    service.hold();
    let keys = HttpKeys::new(HttpKeysConfig { fresh: seconds(1), ..service.config() }).unwrap();
    let find = spawn_find(&keys, "k-1");
    service.until_received(1).await;
    advance(seconds(1)).await;
    assert_eq!(find.await.unwrap(), KeyAnswer::Unavailable);
    service.release();
    until("the answer", || keys.find_now(b"k-1") == Some(known("acme"))).await;
    service.until_received(2).await;
}

/// A long negative entry would refuse a key that is created after its first use.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_created_works_after_the_unknown_time() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    let keys = keys_of(&service);
    assert_eq!(keys.find(b"k-1", None).await, KeyAnswer::Unknown);
    service.reply("k-1", 200, ACME);
    advance(seconds(5) - Duration::from_millis(1)).await;
    assert_eq!(keys.find_now(b"k-1"), Some(KeyAnswer::Unknown));
    assert_eq!(keys.find(b"k-1", None).await, KeyAnswer::Unknown);
    assert_eq!(service.received(), 1);
    advance(Duration::from_millis(1)).await;
    assert_eq!(keys.find_now(b"k-1"), None);
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));
    assert_eq!(service.received(), 2);
}

/// An error cached as a miss would refuse good keys after the service is back.
#[tokio::test(start_paused = true)]
async fn errors_are_neither_cached_nor_unknown_keys() {
    let _still = StillTime::begin();
    let large = format!(r#"{{"customer": "acme", "notes": "{}"}}"#, "x".repeat(64 * 1024));
    for (status, body, error) in [
        (500, "", "500 Internal Server Error"),
        (503, ACME, "503"),
        (401, "", "401 Unauthorized"),
        (403, "", "403"),
        (429, "", "429"),
        (301, ACME, "301"),
        (307, ACME, "307"),
        (201, ACME, "201"),
        (204, "", "204"),
        (200, "", "not JSON"),
        (200, "<html>not found</html>", "not JSON"),
        (200, r#"{"error": "no database"}"#, "neither customer nor plan"),
        (200, r#"{"customer": "acme", "expires": "soon"}"#, "expires is \"soon\""),
        (200, &large, "could not be read: length limit exceeded"),
        (404, &large, "could not be read: length limit exceeded"),
    ] {
        let service = Service::start().await;
        service.reply("k-1", status, body);
        let keys = keys_of(&service);
        for attempt in 1..=3 {
            assert_eq!(keys.find(b"k-1", None).await, KeyAnswer::Unavailable, "{status} {error}");
            assert_eq!(keys.find_now(b"k-1"), None);
            assert_eq!(service.received(), attempt, "each is asked for, and no redirect followed");
            let told = keys.status().error.unwrap();
            assert!(told.contains(error), "{told}");
        }
        service.reply("k-1", 200, ACME);
        assert_eq!(keys.find(b"k-1", None).await, known("acme"));
        assert!(!keys.status().is_degraded());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_64_kib_is_read() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    let padding = " ".repeat(64 * 1024 - ACME.len());
    service.reply("k-1", 200, format!("{ACME}{padding}"));
    assert_eq!(keys_of(&service).find(b"k-1", None).await, known("acme"));
}

#[tokio::test(start_paused = true)]
async fn responses_that_never_end_are_late() {
    let _still = StillTime::begin();
    for bytes in
        [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"]
    {
        let keys = HttpKeys::new(sending(bytes).await).unwrap();
        let find = spawn_find(&keys, "k-1");
        tokio::task::yield_now().await;
        advance(DEADLINE).await;
        assert_eq!(find.await.unwrap(), KeyAnswer::Unavailable);
        advance(seconds(2)).await;
        until("the look-up's end", || keys.status().is_degraded()).await;
        assert_eq!(keys.status().error.unwrap(), "no answer within 2s");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_http_is_an_error() {
    let _still = StillTime::begin();
    let keys = HttpKeys::new(sending(b"-ERR unknown command 'GET'\r\n").await).unwrap();
    assert_eq!(keys.find(b"k-1", None).await, KeyAnswer::Unavailable);
    assert!(keys.status().is_degraded());
}

/// An outage of the service must not become 401 for its keys.
#[tokio::test(start_paused = true)]
async fn known_keys_go_on_without_the_service() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    let (keys, address) = (keys_of(&service), service.address());
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));
    let began = Instant::now();
    drop(service);

    advance(seconds(10)).await;
    assert_eq!(keys.find_now(b"k-1"), Some(known("acme")));
    until("a refresh to fail", || keys.status().is_degraded()).await;
    while began.elapsed() < seconds(3_600) {
        assert_eq!(keys.find(b"k-1", None).await, known("acme"));
        advance(seconds(30)).await;
    }
    assert_eq!(keys.find(b"k-2", None).await, KeyAnswer::Unavailable, "an error is no unknown key");
    assert_eq!(keys.find_now(b"k-1"), None, "it is too old to count");
    assert_eq!(keys.find(b"k-1", None).await, KeyAnswer::Unavailable);
    assert_eq!(keys.status().answered_ago, Some(began.elapsed()));

    let service = Service::start_at(address).await;
    service.reply("k-1", 200, ACME);
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));
    assert_eq!(keys.find(b"k-2", None).await, KeyAnswer::Unknown);
    assert!(!keys.status().is_degraded());
}

/// A start without the service must not leave it unasked for good.
#[tokio::test(start_paused = true)]
async fn it_starts_without_the_service() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    let (keys, address) = (keys_of(&service), service.address());
    assert_eq!(keys.status(), Default::default());
    drop(service);
    until("the port to be closed", || std::net::TcpStream::connect(address).is_err()).await;
    assert_eq!(keys.find(b"k-1", None).await, KeyAnswer::Unavailable);
    let status = keys.status();
    assert_eq!((status.answered_ago, status.keys), (None, 0));
    assert!(status.error.unwrap().contains("Connection refused"));

    let service = Service::start_at(address).await;
    service.reply("k-1", 200, ACME);
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));
    let status = keys.status();
    assert_eq!((status.error, status.keys), (None, 1));
    advance(seconds(3)).await;
    assert_eq!(keys.status().answered_ago, Some(seconds(3)));
}

/// A retry for each request would keep an overloaded service at its limit.
#[tokio::test(start_paused = true)]
async fn a_failing_service_is_asked_for_a_known_key_once_a_second() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    let keys = keys_of(&service);
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));
    service.reply("k-1", 500, "");
    advance(seconds(10)).await;
    for second in 1..=5 {
        for _ in 0..10 {
            assert_eq!(keys.find(b"k-1", None).await, known("acme"));
            service.until_received(1 + second).await;
            until("the refresh to fail", || keys.status().is_degraded()).await;
            assert_eq!(service.received(), 1 + second);
            advance(Duration::from_millis(100)).await;
        }
    }
    service.reply("k-1", 404, "");
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));
    until("the refresh", || keys.find_now(b"k-1") == Some(KeyAnswer::Unknown)).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_service_is_unavailable_and_fills_the_cache() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    service.hold();
    let keys = keys_of(&service);
    let first = spawn_find(&keys, "k-1");
    service.until_received(1).await;
    advance(Duration::from_millis(150)).await;
    let second = spawn_find(&keys, "k-1");
    tokio::task::yield_now().await;
    advance(Duration::from_millis(49)).await;
    assert!(!first.is_finished());
    advance(Duration::from_millis(1)).await;
    assert_eq!(first.await.unwrap(), KeyAnswer::Unavailable);
    assert!(!second.is_finished(), "it has waited for 50 ms only");
    advance(Duration::from_millis(150)).await;
    assert_eq!(second.await.unwrap(), KeyAnswer::Unavailable);
    assert!(!keys.status().is_degraded(), "the look-up is under way");

    advance(seconds(1)).await;
    service.release();
    until("the answer", || keys.find_now(b"k-1") == Some(known("acme"))).await;
    assert_eq!(service.received(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_outlives_those_who_wait_for_it() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    service.reply("k-2", 200, ACME);
    service.hold();
    let keys = keys_of(&service);
    let (first, other) = (spawn_find(&keys, "k-1"), spawn_find(&keys, "k-2"));
    service.until_received(2).await;
    let second = spawn_find(&keys, "k-1");
    tokio::task::yield_now().await;
    first.abort();
    other.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(other.await.unwrap_err().is_cancelled());
    service.release();
    assert_eq!(second.await.unwrap(), known("acme"));
    until("the answer", || keys.find_now(b"k-2") == Some(known("acme"))).await;
    assert_eq!(service.received(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_invented_keys_is_bounded_and_leaves_known_keys_alone() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    let customers: Vec<String> = (0..40).map(|number| format!("k-{number}")).collect();
    let keys = keys_of(&service);
    for key in &customers {
        service.reply(key, 200, ACME);
        assert_eq!(keys.find(key.as_bytes(), None).await, known("acme"));
    }
    advance(seconds(10)).await;
    service.hold();
    let invent = |n| spawn_find_from(client(n), &keys, &format!("invented-{n}"));
    let flood: Vec<_> = (0..1_000).map(invent).collect();
    service.until_received(40 + 24).await;
    for key in &customers {
        assert_eq!(keys.find(key.as_bytes(), None).await, known("acme"), "at once");
    }
    service.until_received(40 + 32).await;
    advance(DEADLINE).await;
    for find in flood {
        assert_eq!(find.await.unwrap(), KeyAnswer::Unavailable);
    }
    assert_eq!(service.most_in_flight(), 32);
    assert_eq!(service.received(), 40 + 32, "those without a place were not asked for");

    for key in &customers {
        service.reply(key, 404, "");
    }
    service.release();
    let is_revoked = |key: &String| keys.find_now(key.as_bytes()) == Some(KeyAnswer::Unknown);
    until("refreshes of all", || customers.iter().filter(|key| is_revoked(key)).count() == 40)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_address_and_requests_without_one_cause_a_hundred_look_ups_a_second() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    let keys = keys_of(&service);
    for address in [client(1), None] {
        let before = service.received();
        let mut answers = Vec::new();
        for number in 0..2_000 {
            answers.push(keys.find(format!("{address:?}-{number}").as_bytes(), address).await);
        }
        assert_eq!(answers[..100], [const { KeyAnswer::Unknown }; 100]);
        let is_too_many = |answer: &&KeyAnswer| match answer {
            KeyAnswer::TooMany { retry_after } => {
                (Duration::ZERO..=seconds(1)).contains(retry_after)
            }
            _ => false,
        };
        let refused = answers.iter().filter(is_too_many).count();
        assert!(refused > 0, "{address:?}");
        let asked = service.received() - before;
        assert_eq!(asked, answers.iter().filter(|one| **one == KeyAnswer::Unknown).count());
        assert_eq!(asked + refused, 2_000, "its own bound is no outage of the service");
    }
    assert_eq!(keys.find(b"k-1", client(2)).await, KeyAnswer::Unknown, "others go on");
}

#[tokio::test(start_paused = true)]
async fn invented_keys_push_out_no_known_key() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, ACME);
    let keys = keys_of(&service);
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));
    for number in 0..2_000 {
        let invented = format!("invented-{number}");
        assert_eq!(keys.find(invented.as_bytes(), client(number)).await, KeyAnswer::Unknown);
    }
    assert_eq!(keys.find_now(b"k-1"), Some(known("acme")));
    assert_eq!((keys.status().keys, service.received()), (1, 2_001));
}

#[tokio::test(start_paused = true)]
async fn a_key_ends_when_it_expires() {
    let _still = StillTime::begin();
    let service = Service::start().await;
    service.reply("k-1", 200, r#"{"customer": "acme", "expires": "2026-01-01T00:01:00Z"}"#);
    service.reply("k-2", 200, r#"{"customer": "acme", "expires": "2026-01-01T00:00:00Z"}"#);
    let clock = ManualClock::default();
    let keys = HttpKeys::with_clock(service.config(), clock.clone()).unwrap();
    assert_eq!(keys.find(b"k-2", None).await, KeyAnswer::Unknown, "it has expired at this instant");
    assert!(matches!(keys.find(b"k-1", None).await, KeyAnswer::Known(_)));
    let expires = clock.now() + seconds(60);
    clock.set(expires - Duration::from_millis(1));
    assert!(matches!(keys.find_now(b"k-1"), Some(KeyAnswer::Known(_))));
    clock.set(expires);
    assert_eq!(keys.find_now(b"k-1"), Some(KeyAnswer::Unknown));
    assert_eq!(keys.find(b"k-1", None).await, KeyAnswer::Unknown);

    service.reply("k-1", 200, ACME);
    advance(seconds(10)).await;
    assert_eq!(keys.find_now(b"k-1"), Some(KeyAnswer::Unknown));
    until("its extension", || keys.find_now(b"k-1") == Some(known("acme"))).await;
}

#[tokio::test(start_paused = true)]
async fn https_trusts_the_authorities_it_is_given() {
    let _still = StillTime::begin();
    let certificates = Certificates::new();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_file(&certificates.server).unwrap()];
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(&certificates.server_key).unwrap())
        .unwrap();
    let service = Service::start_tls(TlsAcceptor::from(Arc::new(server))).await;
    service.reply("k-1", 200, ACME);
    let mut authorities = RootCertStore::empty();
    authorities.add(CertificateDer::from_pem_file(&certificates.ca).unwrap()).unwrap();
    let url = format!("https://{}/keys/{{digest}}", service.address());

    let stranger = HttpKeys::new(HttpKeysConfig::new(&url)).unwrap();
    assert_eq!(stranger.find(b"k-1", None).await, KeyAnswer::Unavailable);
    let error = stranger.status().error.unwrap();
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert_eq!(service.received(), 0);

    let keys = HttpKeys::new(HttpKeysConfig { authorities, ..HttpKeysConfig::new(url) }).unwrap();
    assert_eq!(keys.find(b"k-1", None).await, known("acme"));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_two_log_lines_without_secrets() {
    let _still = StillTime::begin();
    let (log, _capturing) = Log::capture();
    let service = Service::start().await;
    let keys = HttpKeys::new(HttpKeysConfig {
        url: format!("http://{}/keys/{{digest}}?token=t-query", service.address()),
        authorization: Some(HeaderValue::from_static("Bearer t-header")),
        ..service.config()
    })
    .unwrap();
    for status in [500, 503] {
        service.reply("k-secret", status, "");
        for _ in 0..10 {
            assert_eq!(keys.find(b"k-secret", None).await, KeyAnswer::Unavailable);
        }
    }
    service.reply("k-secret", 200, ACME);
    assert_eq!(keys.find(b"k-secret", None).await, known("acme"));
    assert_eq!(keys.find(b"invented", None).await, KeyAnswer::Unknown);
    let lines = log.lines_of("slidegate_customers");
    let [warning, recovery] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(warning.contains("WARN") && warning.contains("500 Internal"), "{warning}");
    assert!(warning.contains(&service.address().to_string()), "{warning}");
    assert!(recovery.contains("INFO"), "{recovery}");

    // At most one warning a minute; an outage that lasts longer gets another.
    service.reply("k-other", 500, "");
    for lines in [2, 3, 3] {
        assert_eq!(keys.find(b"k-other", None).await, KeyAnswer::Unavailable);
        assert_eq!(log.lines_of("slidegate_customers").len(), lines);
        advance(seconds(60)).await;
    }

    let digests =
        ["k-secret", "invented", "k-other"].map(|key| KeyHash::Slidegate.hex(key.as_bytes()));
    let all = format!("{:?} {keys:?} {:?} {:?}", log.lines_of(""), keys.status(), service.config());
    for secret in ["k-secret", "invented", "k-other", "t-query", "t-header"]
        .into_iter()
        .chain(digests.iter().map(|digest| &digest[..8]))
    {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
}

#[test]
fn what_is_known_is_found_outside_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let keys = runtime.block_on(async {
        let service = Service::start().await;
        service.reply("k-1", 200, ACME);
        let config = HttpKeysConfig { fresh: Duration::ZERO, ..service.config() };
        let keys = HttpKeys::new(config).unwrap();
        assert_eq!(keys.find(b"k-1", None).await, known("acme"));
        keys
    });
    assert_eq!(keys.find_now(b"k-1"), Some(known("acme")));
    assert_eq!(keys.find_now(b"k-2"), None);
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let config = || HttpKeysConfig::new("http://127.0.0.1/{digest}");
    let year = seconds(366 * 24 * 60 * 60);
    for (config, reason) in [
        (HttpKeysConfig::new("http://127.0.0.1/"), "url: it has no {digest} in its path or query"),
        (HttpKeysConfig { stale: seconds(9), ..config() }, "stale: 9s is shorter than fresh"),
        (HttpKeysConfig { stale: year + seconds(1), ..config() }, "stale: 31622401s is too long"),
        (HttpKeysConfig { unknown: Duration::MAX, ..config() }, "unknown: "),
    ] {
        let error: HttpKeysError = HttpKeys::new(config).unwrap_err();
        assert!(error.to_string().starts_with(reason), "{error}");
    }
    for config in [
        HttpKeysConfig { stale: year, unknown: year, ..config() },
        HttpKeysConfig { fresh: seconds(5), stale: seconds(5), ..config() },
        HttpKeysConfig { unknown: Duration::ZERO, ..config() },
    ] {
        assert!(HttpKeys::new(config).is_ok());
    }
}
