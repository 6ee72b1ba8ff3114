//! Requests and responses of every form, passed on as they are.

use std::time::Duration;

use slidegate_testbed::http1::{chunk, response};
use slidegate_testbed::{Upstream, Wire, wait_until};

use crate::{configure, unlimited};

#[test]
fn a_request_arrives_as_it_was_sent() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    for (method, target, body) in [
        ("GET", "/", ""),
        ("GET", "/a%20b/../c//d;x?q=%2F&r=a+b&&", ""),
        ("POST", "/", "hello"),
        ("POST", "/empty", ""),
        ("PUT", "/x", "{}"),
        ("PATCH", "/x", "{}"),
        ("DELETE", "/x", ""),
        ("DELETE", "/x", "why"),
        ("OPTIONS", "*", ""),
        ("GET", "/with-a-body", "strange but legal"),
        ("BREW", "/pot", "milk"),
    ] {
        let length = body.len();
        let framing = if body.is_empty() && method != "POST" {
            String::new()
        } else {
            format!("Content-Length: {length}\r\n")
        };
        let mut wire = gateway.wire();
        wire.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: a.example\r\nX-Own: one\r\nX-Own: two\r\n{framing}\r\n{body}"
        ));
        assert_eq!(wire.response().text(), "ok", "{method} {target}");
        let received = upstream.last();
        assert_eq!(received.start(), format!("{method} {target} HTTP/1.1"));
        assert_eq!(received.text(), body);
        assert_eq!(received.values("x-own"), ["one", "two"]);
        assert_eq!(received.value("host").as_deref(), Some("a.example"));
    }
}

#[test]
fn a_response_arrives_as_it_was_sent() {
    let upstream = Upstream::answering(|request| match request.target() {
        "/teapot" => response("418 I'm a teapot", "X-Own: one\r\nX-Own: two\r\n", "short"),
        "/empty" => response("200 OK", "", ""),
        "/none" => "HTTP/1.1 204 No Content\r\nX-Own: three\r\n\r\n".to_owned(),
        "/unchanged" => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_owned(),
        "/early" => {
            let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            format!("{early}{}", response("200 OK", "", "late"))
        }
        "/chunked" => format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}{}0\r\n\r\n",
            chunk("one "),
            chunk("two")
        ),
        _ => response("404 Not Found", "", "nothing here"),
    });
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    for (path, status, body, own) in [
        ("/teapot", 418, "short", vec!["one", "two"]),
        ("/empty", 200, "", vec![]),
        ("/none", 204, "", vec!["three"]),
        ("/unchanged", 304, "", vec![]),
        ("/early", 200, "late", vec![]),
        ("/chunked", 200, "one two", vec![]),
        ("/other", 404, "nothing here", vec![]),
    ] {
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let mut received = wire.response();
        while received.status() == 103 {
            received = wire.response();
        }
        assert_eq!((received.status(), received.text().as_str()), (status, body), "{path}");
        assert_eq!(received.values("x-own"), own, "{path}");
        assert!(received.value("date").is_some(), "{path}");
    }
    assert_eq!(upstream.connections(), 1, "all over one connection");
}

#[test]
fn a_response_without_a_length_ends_with_its_connection() {
    let upstream = Upstream::serving(|wire, _| {
        wire.try_send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")?;
        Err(std::io::ErrorKind::Other.into())
    });
    let gateway = unlimited(&upstream);
    for _ in 0..2 {
        assert_eq!(gateway.get("/", "").text(), "until the end");
    }
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn head_has_a_head_alone() {
    let upstream = Upstream::answering(|request| match request.target() {
        "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n",
    });
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    for (path, status, length) in
        [("/length", 200, Some("1000000")), ("/chunked", 200, None), ("/other", 404, Some("9"))]
    {
        wire.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = wire.response_to("HEAD").unwrap();
        assert_eq!(head.status(), status);
        assert_eq!(head.value("content-length").as_deref(), length, "{path}");
        assert!(upstream.last().start().starts_with("HEAD "));
    }
    assert!(wire.is_silent_for(Duration::from_millis(50)), "no body");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn trailers_pass_both_ways() {
    let upstream = Upstream::answering(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
        format!("{head}{}0\r\nX-Sum: 42\r\n\r\n", chunk("body"))
    });
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: X-Check\r\n");
    wire.send("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Check: 7\r\n\r\n");
    let response = wire.response();
    assert_eq!(response.text(), "body");
    assert_eq!(response.trailers.to_ascii_lowercase(), "x-sum: 42\r\n");
    let received = upstream.last();
    assert_eq!(received.text(), "abc");
    assert_eq!(received.trailers.to_ascii_lowercase(), "x-check: 7\r\n");
}

#[test]
fn a_client_of_http_1_0_is_served_as_it_knows() {
    let upstream = Upstream::answering(|request| match request.target() {
        "/chunked" => format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
            chunk("in pieces")
        ),
        _ => response("200 OK", "", "whole"),
    });
    let gateway = unlimited(&upstream);
    for (path, body) in [("/", "whole"), ("/chunked", "in pieces")] {
        let mut wire = gateway.wire();
        wire.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
        let response = wire.response();
        assert_eq!(response.text(), body);
        assert_eq!(response.value("transfer-encoding"), None, "HTTP/1.0 knows no chunks");
        assert!(wire.is_closed());
        assert_eq!(upstream.last().start(), format!("GET {path} HTTP/1.1"));
        let host = upstream.last().value("host");
        assert_eq!(host.as_deref(), Some(upstream.address().to_string().as_str()));
    }
    let mut wire = gateway.wire();
    for _ in 0..2 {
        wire.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(wire.response().text(), "whole");
    }
}

#[test]
fn a_body_is_asked_for_when_the_request_passes() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("few", "2/min", "").start();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut wire = gateway.wire();
    for _ in 0..2 {
        wire.send(head);
        assert_eq!(wire.response().status(), 100);
        wire.send("hello");
        assert_eq!(wire.response().status(), 200);
        assert_eq!(upstream.last().text(), "hello");
        assert_eq!(upstream.last().value("expect"), None);
    }
    wire.send(head);
    assert_eq!(wire.response().status(), 429, "without asking");
    assert_eq!(upstream.received().len(), 2);
}

#[test]
fn large_and_many_headers_pass() {
    let upstream = Upstream::answering(|_| {
        let many: String = (0..80).map(|n| format!("X-Back-{n}: {n}\r\n")).collect();
        response("200 OK", &format!("{many}X-Long: {}\r\n", "b".repeat(16_000)), "ok")
    });
    let gateway = unlimited(&upstream);
    let many: String = (0..80).map(|n| format!("X-There-{n}: {n}\r\n")).collect();
    let response = gateway.get("/", &format!("{many}X-Long: {}\r\n", "a".repeat(16_000)));
    assert_eq!(response.status(), 200);
    assert_eq!(response.value("x-long").unwrap().len(), 16_000);
    assert_eq!(response.value("x-back-79").as_deref(), Some("79"));
    let received = upstream.last();
    assert_eq!(received.value("x-long").unwrap().len(), 16_000);
    assert!((0..80).all(|n| received.value(&format!("x-there-{n}")) == Some(n.to_string())));
}

#[test]
fn a_client_that_leaves_is_noticed_by_upstream() {
    let upstream = Upstream::raw(|wire: &mut Wire| {
        let _ = wire.request();
        wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while wire.try_send(chunk(&"x".repeat(10_000))).is_ok() {}
        LEFT.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    static LEFT: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.head().unwrap();
    drop(wire);
    wait_until("upstream to see the end", || LEFT.load(std::sync::atomic::Ordering::SeqCst));
}
