//! Clients that mean no good: memory stays bounded, and others notice nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slidegate_testbed::http1::{chunk, response};
use slidegate_testbed::{Gateway, Upstream, Wire, wait_until};

use crate::{configure, unlimited};

/// Runs an attack while an honest client sends requests, all of which must be answered soon.
fn under_attack(gateway: &Gateway, attack: impl FnOnce()) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let (mut requests, mut slowest) = (0, Duration::ZERO);
            while !over.load(Ordering::SeqCst) || requests < 20 {
                let began = Instant::now();
                assert_eq!(gateway.status("/honest"), 200);
                slowest = slowest.max(began.elapsed());
                requests += 1;
                thread::sleep(Duration::from_millis(2));
            }
            slowest
        });
        let attacked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attack));
        over.store(true, Ordering::SeqCst);
        let slowest = honest.join().expect("the honest client is served");
        attacked.expect("the attack goes as planned");
        assert!(slowest < Duration::from_secs(2), "an honest client waited for {slowest:?}");
    });
    assert!(gateway.is_running());
}

fn grown_kib(gateway: &Gateway, before: u64) -> u64 {
    gateway.peak_rss_kib().saturating_sub(before)
}

#[test]
fn slow_heads_are_cut() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).timeouts("head = \"1s\"").start();
    under_attack(&gateway, || {
        let mut slow: Vec<Wire> = (0..200).map(|_| gateway.wire()).collect();
        let began = Instant::now();
        for wire in &mut slow {
            wire.send("GET / HTTP/1.1\r\nHost: a\r\n");
        }
        // A line now and then does not buy more time.
        while slow.iter_mut().filter_map(|wire| wire.try_send("X-A: b\r\n").ok()).count() > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "they are still there");
            thread::sleep(Duration::from_millis(200));
        }
    });
    assert!(upstream.received().iter().all(|received| received.target() == "/honest"));
}

#[test]
fn slow_bodies_are_cut() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).timeouts("idle = \"1s\"").start();
    under_attack(&gateway, || {
        let mut slow: Vec<Wire> = (0..200).map(|_| gateway.wire()).collect();
        for wire in &mut slow {
            wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx");
        }
        for wire in &mut slow {
            assert_eq!(wire.response().status(), 408);
        }
    });
}

#[test]
fn huge_heads_are_refused() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).bounds("head_bytes = 16384").start();
    let before = gateway.peak_rss_kib();
    under_attack(&gateway, || {
        for _ in 0..20 {
            for request in [
                format!("GET / HTTP/1.1\r\nHost: a\r\nX-A: {}\r\n\r\n", "a".repeat(20_000)),
                format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(20_000)),
                format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(4_000)),
                format!("GET / HTTP/1.1\r\nHost: a\r\nX-A: {}", "a".repeat(1_000_000)),
            ] {
                let mut wire = gateway.wire();
                let _ = wire.try_send(&request);
                let answer = wire.response_to("GET").map(|answer| answer.status());
                assert!(matches!(answer, Ok(431 | 414 | 400)), "{answer:?} to {:.40}", request);
            }
        }
    });
    let answer = gateway.get("/", &format!("X-A: {}\r\n", "a".repeat(20_000)));
    assert_eq!(answer.status(), 431);
    assert_eq!(
        upstream.received().iter().filter(|received| received.target() != "/honest").count(),
        0
    );
    assert!(grown_kib(&gateway, before) < 20 * 1024);
}

#[test]
fn thousands_of_idle_connections_cost_little() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).bounds("connections_per_address = 10000").start();
    let before = gateway.peak_rss_kib();
    under_attack(&gateway, || {
        let mut idle: Vec<Wire> = (0..2000).map(|_| gateway.wire()).collect();
        for wire in idle.iter_mut().step_by(2) {
            assert_eq!(wire.get("/idle", "").status(), 200);
        }
        let grown = grown_kib(&gateway, before);
        assert!(grown < 64 * 1024, "grown by {grown} KiB for 2,000 connections");
    });
    let open = || gateway.metric("slidegate_connections", "gateway");
    wait_until("them to be gone", || open() <= 2.0);
}

#[test]
fn connections_are_bounded() {
    let upstream = Upstream::simple();
    let bounds = "connections = 10, connections_per_address = 10";
    let gateway = configure(&upstream).bounds(bounds).start();
    let mut held: Vec<Wire> = (0..10).map(|_| gateway.wire()).collect();
    for wire in &mut held {
        assert_eq!(wire.get("/", "").status(), 200);
        // One that has begun a request is not idle, and is not closed for another.
        wire.send("GET / HTTP/1.1\r\n");
    }
    let mut eleventh = gateway.wire();
    eleventh.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(eleventh.is_silent_for(Duration::from_millis(300)), "it waits for room");
    assert_eq!(
        gateway.admin_page("/healthz").status(),
        200,
        "the operator has an endpoint of their own"
    );
    drop(held.pop());
    assert_eq!(eleventh.response().status(), 200);
}

#[test]
fn rubbish_is_answered_or_cut_and_nothing_more() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).timeouts("head = \"1s\", idle = \"1s\"").start();
    let before = gateway.peak_rss_kib();
    let mut random = fastrand::Rng::with_seed(7);
    let valid = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello";
    under_attack(&gateway, || {
        let began = Instant::now();
        let mut rounds = 0;
        while began.elapsed() < Duration::from_secs(3) {
            let bytes: Vec<u8> = match rounds % 4 {
                0 => (0..random.usize(1..3000)).map(|_| random.u8(..)).collect(),
                1 => {
                    let mut bytes = valid.as_bytes().to_vec();
                    for _ in 0..random.usize(1..6) {
                        let at = random.usize(..bytes.len());
                        bytes[at] = random.u8(..);
                    }
                    bytes
                }
                2 => {
                    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
                    bytes.extend((0..random.usize(1..500)).map(|_| random.u8(..)));
                    bytes
                }
                _ => valid.as_bytes()[..random.usize(1..valid.len())].to_vec(),
            };
            let mut wire = gateway.wire();
            let _ = wire.try_send(&bytes);
            if rounds % 3 == 0 {
                wire.finish();
                let _ = wire.rest();
            }
            rounds += 1;
        }
        assert!(rounds > 100, "{rounds}");
    });
    assert!(grown_kib(&gateway, before) < 32 * 1024);
    assert!(!gateway.output().contains("panic"), "{}", gateway.output());
}

#[test]
fn a_flood_of_pipelined_requests_is_held_back() {
    let upstream = Upstream::simple();
    let gateway =
        configure(&upstream).policy("api", "10/s", "match = { path = \"/flood\" }").start();
    let before = gateway.peak_rss_kib();
    under_attack(&gateway, || {
        let flood = "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500);
        let mut wires: Vec<Wire> = (0..20).map(|_| gateway.wire()).collect();
        // Nobody reads the answers, so that sending must come to an end.
        thread::scope(|scope| {
            for wire in &mut wires {
                scope.spawn(|| {
                    wire.set_write_timeout(Duration::from_millis(500));
                    (0..2000).take_while(|_| wire.try_send(&flood).is_ok()).count()
                });
            }
        });
    });
    let grown = grown_kib(&gateway, before);
    assert!(grown < 64 * 1024, "grown by {grown} KiB");
}

#[test]
fn clients_that_never_read_are_given_up() {
    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/honest" => wire.try_send(response("200 OK", "", "ok")),
        _ => {
            wire.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let piece = chunk(&"z".repeat(100_000));
            (0..1000).try_for_each(|_| wire.try_send(&piece))
        }
    });
    let gateway = configure(&upstream).timeouts("idle = \"1s\"").start();
    let before = gateway.peak_rss_kib();
    under_attack(&gateway, || {
        let mut wires: Vec<Wire> = (0..50).map(|_| gateway.wire()).collect();
        wires.iter_mut().for_each(|wire| wire.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n"));
        let open = || gateway.metric("slidegate_connections", "gateway");
        wait_until("them to be there", || open() >= 50.0);
        wait_until("them to be given up", || open() <= 5.0);
    });
    let grown = grown_kib(&gateway, before);
    assert!(grown < 64 * 1024, "grown by {grown} KiB");
}

#[test]
fn an_upstream_that_dies_midway_affects_no_other_request() {
    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/honest" => wire.try_send(response("200 OK", "", "ok")),
        _ => {
            wire.try_send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart")?;
            Err(std::io::ErrorKind::Other.into())
        }
    });
    let gateway = unlimited(&upstream);
    under_attack(&gateway, || {
        for _ in 0..200 {
            let mut wire = gateway.wire();
            wire.send("GET /dies HTTP/1.1\r\nHost: a\r\n\r\n");
            wire.response_to("GET").expect_err("it is not complete");
        }
    });
}

#[test]
fn trailers_are_bounded() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).bounds("head_bytes = 16384").start();
    let before = gateway.peak_rss_kib();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    under_attack(&gateway, || {
        let long = format!("X-A: {}\r\n", "a".repeat(1000)).repeat(100_000);
        for trailers in
            [&long, &"X: y\r\n".repeat(10_000), &format!("X: {long}").replace(['\r', '\n'], "")]
        {
            let mut wire = gateway.wire();
            // It may be refused before it was sent.
            let _ = wire.try_send(format!("{head}{trailers}"));
            let answer = wire.all_for(Duration::from_secs(5));
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
    });
    assert!(upstream.received().iter().all(|received| received.target() == "/honest"));
    let grown = grown_kib(&gateway, before);
    assert!(grown < 32 * 1024, "grown by {grown} KiB");
    // An end of the body that is only almost one is not the end: no other request is decided on.
    for almost in ["0\r\n\n", "0\r\nX-T: 1\n\r\n"] {
        let answer = gateway.answer_to(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{almost}\
             GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{almost:?}: {answer}");
        assert!(
            upstream.received().iter().all(|received| received.target() != "/next"),
            "{almost:?}"
        );
    }
}
