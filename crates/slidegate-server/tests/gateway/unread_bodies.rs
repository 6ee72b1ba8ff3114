//! Responses to requests whose body was not read. The rest of the body stands between the response
//! and the next request: that one is answered, or the response has announced the connection's end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use http::Request;
use slidegate_testbed::http1::{chunk, response};
use slidegate_testbed::http2::{data, frames, trailer};
use slidegate_testbed::{Gateway, Http2Client, Upstream, Wire};

use crate::{PROGRAM, configure, unlimited};

/// When the body is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sent {
    WithHead,
    Later,
    Never,
}

/// A body, and the header fields that announce it.
#[derive(Debug)]
struct BodyCase {
    fields: String,
    body: String,
    sent: Sent,
}

fn body_cases() -> Vec<BodyCase> {
    let mut cases = Vec::new();
    let mut add = |fields: &str, body: &str, times: &[Sent]| {
        for sent in times {
            cases.push(BodyCase { fields: fields.to_owned(), body: body.to_owned(), sent: *sent });
        }
    };
    use Sent::{Later, Never, WithHead};
    for length in [1, 5, 5_000, 70_000] {
        let fields = format!("Content-Length: {length}\r\n");
        add(&fields, &"x".repeat(length), &[WithHead, Later]);
    }
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    for length in [1, 5, 20, 5_000, 70_000] {
        let body = format!("{}0\r\n\r\n", chunk(&"x".repeat(length)));
        add(CHUNKED, &body, &[WithHead, Later]);
    }
    add("Content-Length: 5\r\n", "", &[Never]);
    add(CHUNKED, "", &[Never]);
    add(CHUNKED, &chunk("hello"), &[WithHead]);
    add(CHUNKED, "0\r\n\r\n", &[WithHead, Later]);
    add(CHUNKED, "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", &[WithHead, Later]);
    add(CHUNKED, "7\r\na\n\r\n\r\n0\r\n0\r\n\r\n", &[WithHead]);
    for fields in ["Content-Length: 5\r\n", CHUNKED] {
        let fields = format!("Expect: 100-continue\r\n{fields}");
        let body = if fields.contains("chunked") { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" };
        add(&fields, body, &[WithHead, Never]);
    }
    cases
}

/// Sends a request whose body is not read, and checks what becomes of the connection.
fn check(address: SocketAddr, start: &str, status: u16, case: &BodyCase, next: &str) {
    let what = format!("{start:?} {case:.80?}");
    let mut wire = Wire::connect(address);
    wire.set_read_timeout(Duration::from_secs(5));
    let head = format!("{start}{}\r\n", case.fields);
    match case.sent {
        Sent::WithHead => wire.send(format!("{head}{}", case.body)),
        Sent::Later | Sent::Never => wire.send(head),
    }
    if case.sent == Sent::Later {
        thread::sleep(Duration::from_millis(1));
        // The connection may have been closed, with an announcement.
        let _ = wire.try_send(&case.body);
    }
    let answer = loop {
        let answer = wire.response_to("GET").unwrap_or_else(|error| panic!("{what}: {error}"));
        if answer.status() != 100 {
            break answer;
        }
        assert!(case.fields.contains("Expect"), "{what}");
    };
    assert_eq!(answer.status(), status, "{what}: {}", answer.head);
    if answer.values("connection").iter().any(|value| value == "close") {
        assert!(wire.is_closed(), "{what}: announced its end and goes on");
        return;
    }
    assert_ne!(case.sent, Sent::Never, "{what}: the next request would be read as the body");
    wire.send(next);
    let answer = wire.response_to("GET");
    let answer = answer.unwrap_or_else(|error| panic!("{what}: the next request: {error}"));
    assert_ne!(answer.status(), 400, "{what}: {}", answer.head);
}

fn check_all(address: SocketAddr, requests: &[(&str, u16)], next: &str) {
    let cases = body_cases();
    thread::scope(|scope| {
        for (start, status) in requests {
            let cases = &cases;
            scope.spawn(move || {
                for case in cases {
                    check(address, start, *status, case, next);
                }
            });
        }
    });
}

const NEXT: &str = "GET /known/next HTTP/1.1\r\nHost: a\r\n\r\n";

/// A gateway that refuses for every reason.
fn gateway_that_refuses(upstream: &Upstream, silent: &Upstream) -> Gateway {
    let gone = Upstream::simple();
    let setup = Gateway::options(PROGRAM)
        .timeouts("response = \"150ms\"")
        .key("refuse_overrides", "true")
        .route("/known", &[upstream])
        .route("/silent", &[silent])
        .route("/gone", &[&gone]);
    drop(gone);
    let gateway = setup
        .tables("[blocked]\npaths = [\"/blocked\"]")
        .policy("limited", "1/h", "match = { path = \"/limited\" }")
        .policy("unavailable", "1000/s", "match = { path = \"/nowhere\" }")
        .start();
    assert_eq!(gateway.status("/limited"), 404, "counted, and without a route");
    gateway
}

/// One that never answers.
fn silent() -> Upstream {
    Upstream::raw(|wire| {
        let _ = wire.rest();
    })
}

#[test]
fn a_gateways_own_response_never_jams_its_connection() {
    let (upstream, silent) = (Upstream::simple(), silent());
    let gateway = gateway_that_refuses(&upstream, &silent);
    let requests = [
        ("POST /limited HTTP/1.1\r\nHost: a\r\n", 429),
        ("GET /limited HTTP/1.1\r\nHost: a\r\n", 429),
        ("POST /blocked HTTP/1.1\r\nHost: a\r\n", 403),
        ("POST /known HTTP/1.1\r\nHost: a b\r\n", 400),
        ("POST /nowhere HTTP/1.1\r\nHost: a\r\n", 404),
        ("TRACE /known HTTP/1.1\r\nHost: a\r\n", 405),
        ("POST /gone HTTP/1.1\r\nHost: a\r\n", 502),
    ];
    check_all(gateway.listener(), &requests, NEXT);
}

#[test]
fn a_late_upstream_never_jams_the_clients_connection() {
    let (upstream, silent) = (Upstream::simple(), silent());
    let gateway = gateway_that_refuses(&upstream, &silent);
    // As long as a client owes its body, upstream is not late.
    let cases = body_cases();
    thread::scope(|scope| {
        for case in cases.iter().filter(|case| case.sent != Sent::Never && case.body.len() > 15) {
            let (address, start) = (gateway.listener(), "PUT /silent HTTP/1.1\r\nHost: a\r\n");
            scope.spawn(move || check(address, start, 504, case, NEXT));
        }
    });
}

#[test]
fn a_crowded_gateway_never_jams_the_clients_connection() {
    let (upstream, arrived) = (Upstream::simple(), Arc::new(AtomicBool::new(false)));
    let has_arrived = arrived.clone();
    let silent = Upstream::raw(move |wire| {
        let _ = wire.head();
        arrived.store(true, Ordering::SeqCst);
        let _ = wire.rest();
    });
    let gateway = Gateway::options(PROGRAM)
        .bounds("in_flight = 1")
        .route("/known", &[&upstream])
        .route("/silent", &[&silent])
        .start();
    let mut held = gateway.wire();
    held.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
    // Not by asking for a 503: the question would be the one in flight.
    slidegate_testbed::wait_until("it to be in flight", || has_arrived.load(Ordering::SeqCst));
    check_all(gateway.listener(), &[("POST /known HTTP/1.1\r\nHost: a\r\n", 503)], NEXT);
}

#[test]
fn a_body_that_is_too_large_ends_its_connection_with_an_announcement() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).bounds("body_bytes = 3").start();
    let cases = body_cases();
    for case in cases.iter().filter(|case| case.body.len() > 20 && case.sent != Sent::Never) {
        // An Expect that was answered, or a body of unknown length, has begun to be read.
        check(gateway.listener(), "POST / HTTP/1.1\r\nHost: a\r\n", 413, case, NEXT);
    }
}

#[test]
fn a_response_of_the_decision_api_never_jams_its_connection() {
    let gateway = Gateway::options(PROGRAM)
        .tables("[decisions]\nlisten = \"127.0.0.1:0\"\ntoken = \"0123456789abcdef\"")
        .policy("limited", "1/h", "match = { path = \"/limited\" }");
    let upstream = Upstream::simple();
    let gateway = gateway.key("upstream", &format!("{:?}", upstream.url())).start();
    let token = "Host: localhost\r\nX-Slidegate-Token: 0123456789abcdef\r\n";
    let auth = format!(
        "GET /v1/auth HTTP/1.1\r\n{token}X-Forwarded-Uri: /limited\r\n\
        X-Forwarded-Method: GET\r\nX-Forwarded-For: 192.0.2.1\r\n"
    );
    let mut wire = Wire::connect(gateway.address("decisions"));
    wire.send(format!("{auth}\r\n"));
    assert_eq!(wire.response().status(), 200);
    let requests = [
        (auth, 429),
        (
            format!(
                "GET /v1/auth HTTP/1.1\r\n{token}X-Forwarded-Uri: /free\r\n\
            X-Forwarded-Method: GET\r\nX-Forwarded-For: 192.0.2.1\r\n"
            ),
            200,
        ),
        ("POST /v1/decide HTTP/1.1\r\nHost: localhost\r\n".to_owned(), 401),
        (format!("GET /v1/decide HTTP/1.1\r\n{token}"), 405),
        (format!("POST /v1/nothing HTTP/1.1\r\n{token}"), 404),
        (format!("POST /v1/decide HTTP/1.1\r\n{token}Content-Type: text/plain\r\n"), 415),
    ];
    let requests: Vec<_> =
        requests.iter().map(|(start, status)| (start.as_str(), *status)).collect();
    let next = format!(
        "GET /v1/auth HTTP/1.1\r\n{token}X-Forwarded-Uri: /free\r\n\
        X-Forwarded-Method: GET\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
    );
    check_all(gateway.address("decisions"), &requests, &next);
}

#[test]
fn a_response_of_the_admin_api_never_jams_its_connection() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).start();
    let requests = [
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("POST /healthz HTTP/1.1\r\nHost: localhost\r\n", 405),
        ("POST /nothing HTTP/1.1\r\nHost: localhost\r\n", 404),
        ("POST /v1/explain HTTP/1.1\r\nHost: evil.example\r\n", 403),
    ];
    let next = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    check_all(gateway.admin(), &requests, next);
}

#[test]
fn over_http2_a_refusal_leaves_the_connection_as_it_was() {
    let (upstream, silent) = (Upstream::simple(), silent());
    let gateway = gateway_that_refuses(&upstream, &silent);
    let client = Http2Client::connect(gateway.listener());
    for (path, status) in
        [("/limited", 429), ("/blocked", 403), ("/nowhere", 404), ("/gone", 502), ("/silent", 504)]
    {
        for length in [1, 5, 5_000, 70_000] {
            for is_streamed in [false, true] {
                let uri = format!("http://a{path}");
                let body = "x".repeat(length);
                let request = Request::post(uri);
                let (request, end) = match is_streamed {
                    false => (request.header("content-length", length), None),
                    true => (request, Some(trailer("x-sum", "1"))),
                };
                let body = frames([data(&body)].into_iter().chain(end));
                let answer = client.send(request.body(body).unwrap()).expect("a response");
                assert_eq!(answer.status, status, "{path} {length} {is_streamed}");
            }
        }
        assert_eq!(client.get("http://a/known").status, 200, "after {path}");
    }
}

#[test]
fn a_body_of_unknown_length_reaches_upstream_whatever_the_method() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    for method in ["GET", "HEAD", "POST", "DELETE", "OPTIONS"] {
        wire.send(format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n4\r\n you\r\n0\r\n\r\n"
        ));
        assert_eq!(wire.response_to(method).unwrap().status(), 200, "{method}");
        assert_eq!(upstream.last().text(), "hello you", "{method}");
    }
    let client = Http2Client::connect(gateway.listener());
    for method in ["GET", "HEAD", "POST"] {
        let body = frames([data("hello"), data(" you")]);
        let request = Request::builder().method(method).uri("http://a/").body(body).unwrap();
        assert_eq!(client.send(request).expect("a response").status, 200, "{method}");
        assert_eq!(upstream.last().text(), "hello you", "{method} over HTTP/2");
    }
    assert_eq!(upstream.received().len(), 8);
}

#[test]
fn a_half_closed_client_gets_its_response() {
    let upstream = Upstream::serving(|wire, _| {
        thread::sleep(Duration::from_millis(300));
        wire.try_send(response("200 OK", "", "late"))
    });
    let gateway = unlimited(&upstream);
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let mut wire = gateway.wire();
        wire.send(request);
        wire.finish();
        assert_eq!(wire.response().text(), "late", "{request}");
        assert!(wire.is_closed());
    }
}
