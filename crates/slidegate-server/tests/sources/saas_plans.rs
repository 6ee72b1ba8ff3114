//! The developer-tools company: one customer's script against everybody else.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slidegate_testbed::{Gateway, Message, RedisServer, Upstream, ledger_keys, wait_until};

use crate::admissions::Admissions;
use crate::example::{Example, number, request, send};
use crate::stop_guard::StopGuard;

const SCRIPT: usize = 50_000;
const CONNECTIONS: usize = 8;

/// The script goes out through so many addresses that none of them ever floods.
const ADDRESSES: usize = 1000;

/// Longer than any answer takes on a busy machine, and shorter than people put up with.
const SLOW: Duration = Duration::from_secs(10);

fn api() -> (Gateway, Upstream, RedisServer) {
    let (upstream, redis) = (Upstream::simple(), RedisServer::start());
    let gateway = Example::load("saas-plans.toml").start(&upstream, &redis);
    (gateway, upstream, redis)
}

fn customer(key: &str, plan: &str) -> String {
    format!("X-API-Key: {key}\r\nX-Plan: {plan}\r\n")
}

/// Requests of the script until all have been sent, by one of its connections.
fn script(gateway: &Gateway, next: &AtomicUsize) -> (Admissions, usize) {
    let (mut wire, headers) = (gateway.wire(), customer("key-of-script", "pro"));
    let (mut admissions, mut refused) = (Admissions::default(), 0);
    loop {
        let n = next.fetch_add(1, Ordering::SeqCst);
        if n >= SCRIPT {
            return (admissions, refused);
        }
        let client = format!("198.51.{}.{}", 100 + n % ADDRESSES / 250, n % 250);
        let sent = Instant::now();
        let answer = send(&mut wire, "GET /v1/reports", &client, &headers);
        match answer.status() {
            200 => admissions.note(sent, Instant::now()),
            429 => refused += 1,
            status => panic!("{status}: {}", answer.head),
        }
        if n + 1 == SCRIPT {
            assert_refused_by_plan(&answer);
        }
    }
}

fn assert_refused_by_plan(answer: &Message) {
    // On a machine so slow that a minute has passed, the last one may have been admitted.
    if answer.status() == 200 {
        return;
    }
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["error"], "Rate limit exceeded", "{body}");
    assert_eq!((&body["limit"], &body["plan"]), (&600.into(), &"pro".into()), "{body}");
    assert!(body.get("upgradeUrl").is_none(), "of the free plan only: {body}");
    assert!((1..=61_000).contains(&body["retryAfterMs"].as_u64().unwrap()), "{body}");
    assert_eq!(number(answer, "x-ratelimit-limit"), 600);
    assert!(number(answer, "retry-after") >= 1);
}

/// A customer with a pace that its plan has room for, until the script is over.
fn calm(gateway: &Gateway, (name, plan, pace): (&str, &str, Duration), over: &AtomicBool) -> usize {
    let (mut wire, headers) = (gateway.wire(), customer(&format!("key-of-{name}"), plan));
    let client = format!("203.0.113.{}", name.len());
    let mut answers = 0;
    while answers == 0 || !over.load(Ordering::SeqCst) {
        let sent = Instant::now();
        let answer = send(&mut wire, "GET /v1/reports", &client, &headers);
        assert_eq!(answer.status(), 200, "{name}, after {answers}: {}", answer.head);
        assert_eq!(answer.text(), "ok");
        assert!(sent.elapsed() < SLOW, "{name} waited for {:?}", sent.elapsed());
        answers += 1;
        thread::sleep(pace);
    }
    answers
}

#[test]
fn fifty_thousand_requests_are_cut_to_the_plan_without_effect_on_other_customers() {
    let (gateway, upstream, redis) = api();
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (mut admissions, mut refused) = (Admissions::default(), 0);
    let others = thread::scope(|scope| {
        let (gateway, next, over) = (&gateway, &next, &over);
        let stop_guard = StopGuard::new(over);
        let calm = [("ann", "free", 1100), ("bert", "pro", 110), ("celia", "enterprise", 30)]
            .map(|(name, plan, pace)| (name, plan, Duration::from_millis(pace)))
            .map(|who| scope.spawn(move || calm(gateway, who, over)));
        let scripts: Vec<_> =
            (0..CONNECTIONS).map(|_| scope.spawn(move || script(gateway, next))).collect();
        for script in scripts {
            let (admitted, denied) = script.join().unwrap();
            admissions.merge(admitted);
            refused += denied;
        }
        drop(stop_guard);
        calm.map(|thread| thread.join().unwrap())
    });
    assert_eq!(admissions.count() + refused, SCRIPT, "every request has an answer");
    admissions.assert_quota(600);
    assert!(others.iter().all(|answers| *answers > 0), "{others:?}");
    let passed = admissions.count() + others.iter().sum::<usize>();
    assert_eq!(upstream.received().len(), passed, "the refused never got there");

    let exceeded = gateway.metric("rate_limit_exceeded_total", "policy=\"api\"");
    assert_eq!(exceeded as usize, refused, "all by the plan");
    assert_eq!(gateway.metric("rate_limit_exceeded_total", "policy=\"flood\"") as usize, 0);
    // Both windows of four customers, under names without a secret.
    let keys = ledger_keys(&redis);
    assert!(keys.iter().all(|key| !key.contains("key-of-")), "{keys:?}");
    for window in ["min", "day"] {
        let start = format!("ratelimit:{window}:");
        assert_eq!(keys.iter().filter(|key| key.starts_with(&start)).count(), 4, "{keys:?}");
    }
}

#[test]
fn a_flood_of_one_address_is_refused_without_asking_redis() {
    let (gateway, upstream, _redis) = api();
    let headers = customer("key-of-flood", "enterprise");
    let burst = request("GET /v1/reports", "192.0.2.1", &headers).repeat(100);
    let mut allowed = 0;
    wait_until("more than 200 a second to be sent", || {
        let mut wire = gateway.wire();
        wire.send(&burst);
        let answers: Vec<Message> = (0..100).map(|_| wire.response()).collect();
        allowed += answers.iter().filter(|answer| answer.status() == 200).count();
        let refused: Vec<_> = answers.iter().filter(|answer| answer.status() != 200).collect();
        for answer in &refused {
            assert_eq!((answer.status(), answer.text().as_str()), (429, "Too Many Requests"));
            assert!(number(answer, "retry-after") >= 1);
        }
        !refused.is_empty()
    });
    assert_eq!(upstream.received().len(), allowed);
    let calls = gateway.metric("slidegate_store_calls_total", "");
    assert!(calls as usize <= allowed, "{calls} calls for {allowed} requests");
    // Refused requests do not count: a client that goes on as before gets 200 a second.
    let (mut wire, began, mut passed) = (gateway.wire(), Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(2500) {
        wire.send(&burst);
        passed += (0..100).filter(|_| wire.response().status() == 200).count();
    }
    let most = 200 * (began.elapsed().as_secs() as usize + 1);
    assert!((200..=most).contains(&passed), "{passed} of {most}");
    // Another address of the same customer is not the flood.
    assert_eq!(send(&mut gateway.wire(), "GET /v1/reports", "192.0.2.2", &headers).status(), 200);
}

#[test]
fn a_key_without_a_known_plan_has_the_free_one() {
    let (gateway, _upstream, _redis) = api();
    let unknown = customer("key-of-dora", "platinum");
    for headers in [unknown.as_str(), "Authorization: Bearer of-emil\r\n"] {
        let (mut wire, mut admissions) = (gateway.wire(), Admissions::default());
        for n in 0..80 {
            let (sent, client) = (Instant::now(), format!("192.0.2.{n}"));
            let answer = send(&mut wire, "GET /v1/reports", &client, headers);
            if answer.status() == 200 {
                admissions.note(sent, Instant::now());
            } else {
                let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!(body["error"], "Rate limit exceeded", "{body}");
                assert_eq!((&body["limit"], &body["plan"]), (&60.into(), &"free".into()), "{body}");
                assert_eq!(body["upgradeUrl"], "https://app.example.com/upgrade", "{body}");
            }
        }
        admissions.assert_quota(60);
    }
}
