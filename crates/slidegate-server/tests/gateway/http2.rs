//! HTTP/2 from clients, and to upstreams that speak it.

use http::{Request, StatusCode, Version};
use slidegate_testbed::http1::{chunk, response};
use slidegate_testbed::http2::{data, frames, trailer};
use slidegate_testbed::{Gateway, Http2Client, Http2Upstream, Upstream, wait_until};

use crate::{PROGRAM, configure, unlimited};

#[test]
fn clients_speak_http_2_with_prior_knowledge_and_over_tls() {
    let upstream = Upstream::answering(|request| response("200 OK", "", request.target()));
    let plain = unlimited(&upstream);
    let (secure, files) = configure(&upstream).start_tls();
    for (client, scheme) in [
        (Http2Client::connect(plain.gateway()), "http"),
        (Http2Client::connect_tls(secure.gateway(), &files.ca), "https"),
    ] {
        for path in ["/", "/a//b?c=%2F"] {
            let received = client.get(&format!("{scheme}://a.example:81{path}"));
            assert_eq!((received.status, &received.body[..]), (StatusCode::OK, path.as_bytes()));
        }
        let received = upstream.last();
        assert_eq!(received.start(), "GET /a//b?c=%2F HTTP/1.1");
        assert_eq!(received.values("host"), ["a.example:81"]);
        assert_eq!(received.values("x-forwarded-host"), ["a.example:81"]);
        assert_eq!(received.values("x-forwarded-proto"), [scheme]);
        assert_eq!(received.values("x-forwarded-for"), ["127.0.0.1"]);
    }
}

#[test]
fn what_differs_between_the_versions_is_translated() {
    let upstream = Upstream::answering(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\n\
            Keep-Alive: timeout=60\r\nX-Hop: 1\r\nTrailer: x-sum\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n";
        format!("{head}{}0\r\nx-sum: 42\r\n\r\n", chunk("body"))
    });
    let gateway = unlimited(&upstream);
    let client = Http2Client::connect(gateway.listener());
    let request = Request::post("http://a.example/")
        .header("cookie", "a=1")
        .header("cookie", "b=2; c=3")
        .header("te", "trailers")
        .header("trailer", "x-check")
        .body(frames([data("he"), data("llo"), trailer("x-check", "7")]))
        .unwrap();
    let answer = client.send(request).unwrap();
    let received = upstream.last();
    assert_eq!(received.values("cookie"), ["a=1; b=2; c=3"], "HTTP/1.1 has one line");
    assert_eq!(received.text(), "hello");
    assert_eq!(received.value("transfer-encoding").as_deref(), Some("chunked"));
    assert_eq!(received.trailers.to_ascii_lowercase(), "x-check: 7\r\n");
    assert_eq!(&answer.body[..], b"body");
    assert_eq!(answer.trailers.expect("trailers")["x-sum"], "42");
    for name in ["connection", "keep-alive", "x-hop", "transfer-encoding"] {
        assert!(!answer.headers.contains_key(name), "{name}");
    }
    assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 2);
}

#[test]
fn many_requests_share_a_connection_and_each_counts() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("all", "100/min", "").start();
    let client = Http2Client::connect(gateway.listener());
    let request = || Request::get("http://a/").body(frames([])).unwrap();
    let statuses = client.statuses((0..150).map(|_| request()).collect());
    assert_eq!(statuses.iter().filter(|status| status.as_u16() == 200).count(), 100);
    assert_eq!(statuses.iter().filter(|status| status.as_u16() == 429).count(), 50);
    assert_eq!(upstream.received().len(), 100);
}

#[test]
fn a_response_to_head_has_no_body() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("api", "1/min", "").start();
    let client = Http2Client::connect(gateway.listener());
    for status in [200, 429, 429] {
        let request = Request::head("http://a/").body(frames([])).unwrap();
        // A body would be an error of the protocol.
        let response = client.send(request).unwrap();
        assert_eq!(response.status, status);
        assert!(response.body.is_empty());
    }
}

#[test]
fn what_http_2_forbids_is_refused() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    let client = Http2Client::connect(gateway.listener());
    for (uri, host) in [("http://a.example/", "b.example"), ("http://me@a.example/", "")] {
        let builder = Request::get(uri);
        let builder = if host.is_empty() { builder } else { builder.header("host", host) };
        let answer = client.send(builder.body(frames([])).unwrap());
        if let Ok(answer) = answer {
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{uri} {host}");
        }
    }
    assert_eq!(upstream.received().len(), 0);
    assert_eq!(client.get("http://a.example/").status, StatusCode::OK, "the connection goes on");
}

#[test]
fn upstreams_that_speak_http_2_are_spoken_to_in_it() {
    let upstream = Http2Upstream::start();
    let gateway = Gateway::options(PROGRAM)
        .key("upstream", &format!("{:?}", upstream.url()))
        .key("http2_upstream", "true")
        .start();
    let client = Http2Client::connect(gateway.listener());
    let request = Request::post("http://grpc.example/pkg.Service/Method")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(frames([data("mess"), data("age"), trailer("x-check", "7")]))
        .unwrap();
    let answer = client.send(request).unwrap();
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"message"[..]));
    assert_eq!(answer.trailers.expect("trailers")["grpc-status"], "0");
    // A client of HTTP/1.1 has the same upstream.
    let mut wire = gateway.wire();
    wire.send("POST /x HTTP/1.1\r\nHost: b.example\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(wire.response().text(), "hi");
    let received = upstream.received();
    assert_eq!(received[0].version(), Version::HTTP_2);
    assert_eq!(received[0].uri().to_string(), "http://grpc.example/pkg.Service/Method");
    assert_eq!(received[0].headers()["te"], "trailers");
    assert_eq!(received[0].headers()["x-forwarded-for"], "127.0.0.1");
    assert_eq!(received[0].body().trailers.as_ref().expect("trailers")["x-check"], "7");
    assert_eq!(received[1].uri().to_string(), "http://b.example/x");
    assert_eq!(&received[1].body().body[..], b"hi");
    assert!(!received[1].headers().contains_key("host"));
}

#[test]
fn an_http_2_upstream_that_came_back_is_found() {
    let upstream = Http2Upstream::start();
    let setup = Gateway::options(PROGRAM)
        .key("upstream", &format!("{:?}", upstream.url()))
        .key("http2_upstream", "true")
        .key("workers", "1");
    let gateway = setup.start();
    assert_eq!(gateway.status("/"), 200);
    let address = upstream.address();
    drop(upstream);
    assert_eq!(gateway.get("/", "").problem(), 502);
    let upstream = Http2Upstream::start_at(address);
    assert_eq!(gateway.status("/"), 200);
    for _ in 0..10 {
        upstream.hang_up();
        wait_until("another connection", || gateway.status("/") == 200);
    }
}

#[test]
fn large_heads_are_refused_in_http_2_too() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).bounds("head_bytes = 16384").start();
    let client = Http2Client::connect(gateway.listener());
    let request = Request::get("http://a/").header("x-a", "a".repeat(40_000));
    if let Ok(answer) = client.send(request.body(frames([])).unwrap()) {
        assert_eq!(answer.status.as_u16(), 431);
    }
    assert_eq!(upstream.received().len(), 0);
    assert_eq!(gateway.status("/"), 200);
}

#[test]
fn a_client_that_stops_its_upload_is_not_held_against_an_http_2_upstream() {
    let upstream = Http2Upstream::start();
    let gateway = Gateway::options(PROGRAM)
        .key("upstream", &format!("{:?}", upstream.url()))
        .key("http2_upstream", "true")
        .timeouts("idle = \"300ms\"")
        .start();
    for _ in 0..4 {
        let mut wire = gateway.wire();
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n1");
        assert_eq!(wire.response().problem(), 408);
    }
    assert!(!gateway.output().contains("marked unhealthy"), "{}", gateway.output());
}
