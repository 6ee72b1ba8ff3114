//! Connections that are used again, on both sides.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use slidegate_testbed::http1::response;
use slidegate_testbed::{Upstream, Wire, wait_until};

use crate::{configure, unlimited};

#[test]
fn connections_are_used_again() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut wire = gateway.wire();
    for _ in 0..50 {
        assert_eq!(wire.get("/", "").text(), "ok");
    }
    for _ in 0..20 {
        assert_eq!(gateway.get("/", "").text(), "ok");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn clients_at_once_have_no_more_connections_than_they_need() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).key("workers", "1").start();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut wire = gateway.wire();
                (0..100).for_each(|_| assert_eq!(wire.get("/", "").status(), 200));
            });
        }
    });
    assert!(upstream.connections() <= 8, "{}", upstream.connections());
    assert_eq!(upstream.received().len(), 800);
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let upstream = Upstream::answering(|request| {
        if request.target() == "/0" {
            thread::sleep(Duration::from_millis(100));
        }
        response("200 OK", "", request.target())
    });
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    let requests: String =
        (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    wire.send(requests);
    for n in 0..20 {
        assert_eq!(wire.response().text(), format!("/{n}"));
    }
}

#[test]
fn a_close_is_heeded_on_either_side() {
    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/close" => {
            wire.try_send(response("200 OK", "Connection: close\r\n", "last"))?;
            Err(ErrorKind::Other.into())
        }
        _ => wire.try_send(response("200 OK", "", "ok")),
    });
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut wire = gateway.wire();
    assert_eq!(wire.get("/", "").text(), "ok");
    assert_eq!(wire.get("/close", "").text(), "last", "what upstream closes is no matter here");
    assert_eq!(wire.get("/", "Connection: close\r\n").text(), "ok");
    assert!(wire.is_closed());
    assert_eq!(upstream.last().value("connection"), None);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn an_idle_connection_that_upstream_has_closed_costs_nothing() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut wire = gateway.wire();
    for round in 1..=30 {
        let body = if round % 2 == 0 { "" } else { "hello" };
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert_eq!(wire.response().status(), 200, "round {round}");
        upstream.hang_up();
    }
    assert_eq!(upstream.received().len(), 30, "nothing is sent twice");
}

#[test]
fn a_request_that_changes_nothing_is_sent_again_if_a_kept_connection_breaks() {
    let requests = AtomicUsize::new(0);
    // Answers, reads the next and breaks off, and answers again on another connection.
    let upstream =
        Upstream::serving(move |wire, _| match requests.fetch_add(1, Ordering::SeqCst) {
            1 => Err(ErrorKind::Other.into()),
            _ => wire.try_send(response("200 OK", "", "ok")),
        });
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut wire = gateway.wire();
    for _ in 0..2 {
        assert_eq!(wire.get("/", "").text(), "ok");
    }
    assert_eq!((upstream.received().len(), upstream.connections()), (3, 2));
}

#[test]
fn a_request_that_breaks_upstream_is_sent_twice_at_most() {
    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/breaks" => Err(ErrorKind::Other.into()),
        _ => {
            // Long enough that all are in flight at once, and leave as many connections behind.
            thread::sleep(Duration::from_millis(100));
            wire.try_send(response("200 OK", "", "ok"))
        }
    });
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut wires: Vec<Wire> = (0..10).map(|_| gateway.wire()).collect();
    wires.iter_mut().for_each(|wire| wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    wires.iter_mut().for_each(|wire| assert_eq!(wire.response().status(), 200));
    let before = upstream.received().len();
    assert_eq!(gateway.get("/breaks", "").problem(), 502);
    assert_eq!(upstream.received().len() - before, 2, "over a kept connection and a new one");
}

#[test]
fn an_upstream_that_answers_early_gets_the_rest_of_the_request() {
    let upstream = Upstream::raw(|wire: &mut Wire| {
        while wire.head().is_ok() {
            wire.send("HTTP/1.1 204 No Content\r\n\r\n");
            if wire.exactly(10).is_ok_and(|body| body == b"0123456789") {
                WHOLE.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    static WHOLE: AtomicUsize = AtomicUsize::new(0);
    let gateway = configure(&upstream).key("workers", "1").start();
    for round in 1..=3 {
        let mut wire = gateway.wire();
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
        let answer = wire.response();
        assert_eq!(answer.status(), 204);
        // Whether upstream will read the rest is not known yet.
        assert_eq!(answer.value("connection").as_deref(), Some("close"));
        wire.send("56789");
        wait_until("upstream to have all", || WHOLE.load(Ordering::SeqCst) == round);
    }
}

#[test]
fn a_request_that_upstream_has_read_is_not_sent_again() {
    let requests = AtomicUsize::new(0);
    let upstream =
        Upstream::serving(move |wire, _| match requests.fetch_add(1, Ordering::SeqCst) {
            0 => wire.try_send(response("200 OK", "", "ok")),
            _ => Err(ErrorKind::Other.into()),
        });
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut wire = gateway.wire();
    assert_eq!(wire.get("/", "").status(), 200);
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(wire.response().problem(), 502);
    assert_eq!(upstream.received().len(), 2);
}

#[test]
fn upstream_s_word_on_how_long_it_keeps_connections_is_believed() {
    let upstream = Upstream::answering(|_| response("200 OK", "Keep-Alive: timeout=1\r\n", "ok"));
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut wire = gateway.wire();
    for _ in 0..3 {
        let response = wire.get("/", "");
        assert_eq!(response.value("keep-alive"), None, "it was for this connection only");
    }
    assert_eq!(upstream.connections(), 3, "a second is too short to trust");
}

#[test]
fn a_slow_upload_that_is_answered_early_delays_no_other_request() {
    // Upstream answers before it has read the body, and goes on reading it.
    let upstream = Upstream::raw(|wire: &mut Wire| {
        while wire.head().is_ok() {
            wire.send(response("200 OK", "", "ok"));
        }
    });
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut slow = gateway.wire();
    slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
    assert_eq!(slow.response().text(), "ok");
    let mut other = gateway.wire();
    other.set_read_timeout(Duration::from_secs(2));
    other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = other.response_to("GET");
    assert_eq!(response.expect("in time").text(), "ok");
}

#[test]
fn an_idle_client_connection_is_closed() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).timeouts("idle = \"300ms\", head = \"300ms\"").start();
    let mut served = gateway.wire();
    assert_eq!(served.get("/", "").status(), 200);
    let mut silent = gateway.wire();
    assert!(served.is_closed());
    assert!(silent.is_closed());
}
