//! No client can take what belongs to all: places, time, or the size of a body.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use http::Request;
use slidegate_testbed::http1::{chunk, response};
use slidegate_testbed::http2::frames;
use slidegate_testbed::{Gateway, Http2Client, Upstream, Wire, wait_until};

use crate::{configure, options, unlimited};

/// Answers `/slow` after a second.
fn slow_upstream() -> Upstream {
    Upstream::answering(|request| {
        if request.target() == "/slow" {
            thread::sleep(Duration::from_secs(1));
        }
        response("200 OK", "", "ok")
    })
}

#[test]
fn one_address_cannot_have_all_requests_in_flight() {
    let upstream = slow_upstream();
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .bounds("in_flight = 20")
        .start();
    let from = |address: &str| format!("X-Forwarded-For: {address}\r\n");
    let mut greedy: Vec<Wire> = (0..2).map(|_| gateway.wire()).collect();
    for (wire, address) in greedy.iter_mut().zip(["2001:db8::1", "2001:db8::2"]) {
        let headers = from(address);
        wire.send(format!("GET /slow HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
    }
    wait_until("both to be in flight", || upstream.received().len() == 2);
    // A tenth of all is the default, and a network of IPv6 is one client.
    let refused = gateway.get("/", &from("2001:db8::3"));
    assert_eq!(refused.problem(), 503);
    assert_eq!(refused.value("retry-after").as_deref(), Some("1"));
    assert_eq!(gateway.get("/", &from("203.0.113.7")).status(), 200, "others are served");
    greedy.iter_mut().for_each(|wire| assert_eq!(wire.response().status(), 200));
    wait_until("there to be room", || gateway.get("/", &from("2001:db8::1")).status() == 200);
}

#[test]
fn streams_of_http_2_are_requests_in_flight_too() {
    let upstream = slow_upstream();
    let gateway = configure(&upstream).bounds("in_flight_per_address = 3").start();
    let client = Http2Client::connect(gateway.listener());
    let requests = (0..8).map(|_| Request::get("http://a/slow").body(frames([])).unwrap());
    let statuses = client.statuses(requests.collect());
    let passed = statuses.iter().filter(|status| status.as_u16() == 200).count();
    let refused = statuses.iter().filter(|status| status.as_u16() == 503).count();
    assert_eq!((passed, refused), (3, 5), "{statuses:?}");
}

#[test]
fn one_address_cannot_have_all_connections() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).bounds("connections = 30").start();
    let mut wires: Vec<Wire> = (0..3).map(|_| gateway.wire()).collect();
    wires.iter_mut().for_each(|wire| assert_eq!(wire.get("/", "").status(), 200));
    assert!(gateway.wire().is_closed(), "a tenth of all is the default");
    assert!(gateway.metric("slidegate_connection_failures_total", "address") >= 1.0);
    drop(wires.pop());
    wait_until("there to be room", || {
        let mut wire = gateway.wire();
        wire.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok()
            && wire.response_to("GET").is_ok()
    });
}

#[test]
fn a_body_may_be_so_large_and_no_larger() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).bounds("body_bytes = 10").start();
    let post = |headers: &str, body: &str| {
        let mut wire = gateway.wire();
        wire.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}"));
        wire.response()
    };
    assert_eq!(post("Content-Length: 10\r\n", "0123456789").status(), 200);
    let chunks = format!("{}{}0\r\n\r\n", chunk("01234"), chunk("56789"));
    assert_eq!(post("Transfer-Encoding: chunked\r\n", &chunks).status(), 200);
    assert_eq!(upstream.received().len(), 2);

    // One that says so is not even asked for.
    assert_eq!(post("Content-Length: 11\r\nExpect: 100-continue\r\n", "").problem(), 413);
    let chunks = format!("{}{}0\r\n\r\n", chunk("01234"), chunk("567890"));
    assert_eq!(post("Transfer-Encoding: chunked\r\n", &chunks).problem(), 413);
    assert_eq!(upstream.received().len(), 2, "upstream has no complete request");
    assert_eq!(gateway.metric("slidegate_upstream_errors_total", ""), 0.0);
}

#[test]
fn a_body_may_take_so_long_and_no_longer() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).timeouts("body = \"600ms\", idle = \"5s\"").start();
    let mut wire = gateway.wire();
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) && wire.try_send("x").is_ok() {
        if !wire.is_silent_for(Duration::from_millis(100)) {
            break;
        }
    }
    assert_eq!(wire.response().problem(), 408);
    // By the time for the body, and not by that for an idle connection.
    let took = began.elapsed();
    assert!((Duration::from_millis(600)..Duration::from_secs(4)).contains(&took), "{took:?}");
    assert_eq!(upstream.received().len(), 0);
}

#[test]
fn a_line_that_ends_with_a_bare_line_feed_is_a_line_for_everybody() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    let bare = [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    let before = [
        "",
        "GET /first HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7\r\na\r\n\r\nbc\r\n0\r\n\r\n",
    ];
    for first in before {
        for second in bare {
            let before = upstream.received().len();
            let answer = gateway.answer_to(format!("{first}{second}"));
            let requests = 1 + usize::from(!first.is_empty());
            let what = format!("{first:?}{second:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 200 ").count(), requests, "{what}");
            let received = upstream.received().split_off(before);
            assert_eq!(received.len(), requests, "{what}");
            assert!(
                received.iter().all(|received| !received.head.replace("\r\n", "").contains('\n'))
            );
        }
    }
}

#[test]
fn a_tunnel_over_which_nothing_passes_is_closed() {
    let upstream = Upstream::raw(|wire: &mut Wire| {
        let _ = wire.head();
        let _ = wire.try_send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
        );
        while let Ok(bytes) = wire.exactly(1) {
            if wire.try_send(bytes).is_err() {
                break;
            }
        }
    });
    let gateway =
        configure(&upstream).key("upgrades", "[\"echo\"]").timeouts("tunnel = \"800ms\"").start();
    let mut wire = gateway.wire();
    wire.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(wire.response().status(), 101);
    let began = Instant::now();
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(300));
        wire.send("x");
        assert_eq!(wire.exactly(1).unwrap(), b"x", "{:?}", began.elapsed());
    }
    let quiet = Instant::now();
    assert!(wire.is_closed());
    assert!(quiet.elapsed() > Duration::from_millis(400), "{:?}", quiet.elapsed());
}

#[test]
fn a_server_raises_and_checks_its_limit_of_open_files() {
    let upstream = Upstream::simple();
    let start = |limits: &str| configure(&upstream).start_with(options().after(limits));
    let limit = |gateway: &Gateway| {
        let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        line.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap()
    };
    let gateway = start("ulimit -Sn 200");
    assert!(limit(&gateway) > 200, "raised to the hard limit");
    let gateway = start("ulimit -n 2000");
    assert_eq!(limit(&gateway), 2000 - 64, "the rest is reserved");
    let warning = "the limit of open files (ulimit -Hn) is too low";
    wait_until("the warning", || gateway.output().contains(warning));
    let output = gateway.output();
    assert!(output.contains("\"limit\":1936,\"needed\":10128"), "{output}");
}
