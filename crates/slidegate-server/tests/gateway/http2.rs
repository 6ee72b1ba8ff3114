//! HTTP/2 from clients, and to upstreams that speak it.

use http::{Request, StatusCode, Version};

use crate::support::{
    Http2Client, Http2Upstream, Setup, Upstream, chunk, data, frames, front, gateway, response,
    trailer, wait_until,
};

#[test]
fn clients_speak_http_2_with_prior_knowledge_and_over_tls() {
    let upstream = Upstream::answering(|request| response("200 OK", "", request.target()));
    let plain = front(&upstream);
    let (secure, files) = gateway(&upstream).start_tls();
    for (client, scheme) in [
        (Http2Client::connect(plain.gateway()), "http"),
        (Http2Client::connect_tls(secure.gateway(), &files.ca), "https"),
    ] {
        for path in ["/", "/a//b?c=%2F"] {
            let heard = client.get(&format!("{scheme}://a.example:81{path}"));
            assert_eq!((heard.status, &heard.body[..]), (StatusCode::OK, path.as_bytes()));
        }
        let heard = upstream.last();
        assert_eq!(heard.start(), "GET /a//b?c=%2F HTTP/1.1");
        assert_eq!(heard.values("host"), ["a.example:81"]);
        assert_eq!(heard.values("x-forwarded-host"), ["a.example:81"]);
        assert_eq!(heard.values("x-forwarded-proto"), [scheme]);
        assert_eq!(heard.values("x-forwarded-for"), ["127.0.0.1"]);
    }
}

#[test]
fn what_differs_between_the_versions_is_translated() {
    let upstream = Upstream::answering(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\n\
            Keep-Alive: timeout=60\r\nX-Hop: 1\r\nTrailer: x-sum\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n";
        format!("{head}{}0\r\nx-sum: 42\r\n\r\n", chunk("body"))
    });
    let front = front(&upstream);
    let client = Http2Client::connect(front.gateway());
    let request = Request::post("http://a.example/")
        .header("cookie", "a=1")
        .header("cookie", "b=2; c=3")
        .header("te", "trailers")
        .header("trailer", "x-check")
        .body(frames([data("he"), data("llo"), trailer("x-check", "7")]))
        .unwrap();
    let answer = client.send(request).unwrap();
    let heard = upstream.last();
    assert_eq!(heard.values("cookie"), ["a=1; b=2; c=3"], "HTTP/1.1 has one line");
    assert_eq!(heard.text(), "hello");
    assert_eq!(heard.value("transfer-encoding").as_deref(), Some("chunked"));
    assert_eq!(heard.trailers.to_ascii_lowercase(), "x-check: 7\r\n");
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
    let front = gateway(&upstream).policy("all", "100/min", "").start();
    let client = Http2Client::connect(front.gateway());
    let request = || Request::get("http://a/").body(frames([])).unwrap();
    let statuses = client.statuses((0..150).map(|_| request()).collect());
    assert_eq!(statuses.iter().filter(|status| status.as_u16() == 200).count(), 100);
    assert_eq!(statuses.iter().filter(|status| status.as_u16() == 429).count(), 50);
    assert_eq!(upstream.heard().len(), 100);
}

#[test]
fn what_http_2_forbids_is_refused() {
    let upstream = Upstream::simple();
    let front = front(&upstream);
    let client = Http2Client::connect(front.gateway());
    for (uri, host) in [("http://a.example/", "b.example"), ("http://me@a.example/", "")] {
        let builder = Request::get(uri);
        let builder = if host.is_empty() { builder } else { builder.header("host", host) };
        let answer = client.send(builder.body(frames([])).unwrap());
        if let Ok(answer) = answer {
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{uri} {host}");
        }
    }
    assert_eq!(upstream.heard().len(), 0);
    assert_eq!(client.get("http://a.example/").status, StatusCode::OK, "the connection goes on");
}

#[test]
fn upstreams_that_speak_http_2_are_spoken_to_in_it() {
    let upstream = Http2Upstream::start();
    let front = Setup::new()
        .key("upstream", &format!("{:?}", upstream.url()))
        .key("http2_upstream", "true")
        .start();
    let client = Http2Client::connect(front.gateway());
    let request = Request::post("http://grpc.example/pkg.Service/Method")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(frames([data("mess"), data("age"), trailer("x-check", "7")]))
        .unwrap();
    let answer = client.send(request).unwrap();
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"message"[..]));
    assert_eq!(answer.trailers.expect("trailers")["grpc-status"], "0");
    // A client of HTTP/1.1 has the same upstream.
    let mut wire = front.wire();
    wire.send("POST /x HTTP/1.1\r\nHost: b.example\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(wire.response().text(), "hi");
    let heard = upstream.heard();
    assert_eq!(heard[0].version(), Version::HTTP_2);
    assert_eq!(heard[0].uri().to_string(), "http://grpc.example/pkg.Service/Method");
    assert_eq!(heard[0].headers()["te"], "trailers");
    assert_eq!(heard[0].headers()["x-forwarded-for"], "127.0.0.1");
    assert_eq!(heard[0].body().trailers.as_ref().expect("trailers")["x-check"], "7");
    assert_eq!(heard[1].uri().to_string(), "http://b.example/x");
    assert_eq!(&heard[1].body().body[..], b"hi");
    assert!(!heard[1].headers().contains_key("host"));
}

#[test]
fn an_http_2_upstream_that_came_back_is_found() {
    let upstream = Http2Upstream::start();
    let setup = Setup::new()
        .key("upstream", &format!("{:?}", upstream.url()))
        .key("http2_upstream", "true")
        .key("workers", "1");
    let front = setup.start();
    assert_eq!(front.status("/"), 200);
    let address = upstream.address();
    drop(upstream);
    assert_eq!(front.get("/", "").problem(), 502);
    let upstream = Http2Upstream::start_at(address);
    assert_eq!(front.status("/"), 200);
    for _ in 0..10 {
        upstream.hang_up();
        wait_until("another connection", || front.status("/") == 200);
    }
}

#[test]
fn large_heads_are_refused_in_http_2_too() {
    let upstream = Upstream::simple();
    let front = gateway(&upstream).bounds("head_bytes = 16384").start();
    let client = Http2Client::connect(front.gateway());
    let request = Request::get("http://a/").header("x-a", "a".repeat(40_000));
    if let Ok(answer) = client.send(request.body(frames([])).unwrap()) {
        assert_eq!(answer.status.as_u16(), 431);
    }
    assert_eq!(upstream.heard().len(), 0);
    assert_eq!(front.status("/"), 200);
}

#[test]
fn a_client_that_stops_its_upload_is_not_held_against_an_http_2_upstream() {
    let upstream = Http2Upstream::start();
    let front = Setup::new()
        .key("upstream", &format!("{:?}", upstream.url()))
        .key("http2_upstream", "true")
        .timeouts("idle = \"300ms\"")
        .start();
    for _ in 0..4 {
        let mut wire = front.wire();
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n1");
        assert_eq!(wire.response().problem(), 408);
    }
    assert!(!front.output().contains("marked unhealthy"), "{}", front.output());
}
