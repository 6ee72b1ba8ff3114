//! Requests that upstreams may read otherwise than policies do: methods, credentials, headers.

use http::{Method, Request};

use crate::support::{Http2Client, Setup, Upstream, frames, gateway};

/// A gateway whose one policy is for `POST /login`.
fn login(upstream: &Upstream) -> Setup {
    gateway(upstream).policy("login", "1/min", "match = { method = \"POST\", path = \"/login\" }")
}

#[test]
fn a_method_in_another_case_is_refused() {
    let upstream = Upstream::simple();
    let front = login(&upstream).start();
    let client = Http2Client::connect(front.gateway());
    for method in ["post", "Post", "pOST", "get", "Delete", "pATCH", "trace", "connect"] {
        let mut wire = front.wire();
        wire.send(format!("{method} /login HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = wire.response();
        assert_eq!(answer.problem(), 400, "{method}");
        assert!(answer.text().contains("only in case"), "{}", answer.text());
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = Request::builder().method(&method).uri("http://a/login").body(frames([]));
        assert_eq!(client.send(request.unwrap()).unwrap().status, 400, "{method}");
    }
    assert_eq!(upstream.heard().len(), 0);
    let mut wire = front.wire();
    for status in [200, 429] {
        wire.send("POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(wire.response().status(), status, "nothing was counted before");
    }
}

#[test]
fn a_method_that_a_policy_names_is_known_and_others_fall_under_policies_that_name_none() {
    let upstream = Upstream::simple();
    let front = gateway(&upstream)
        .policy("purge", "1/min", "match = { method = \"PURGE\" }")
        .policy("all", "3/min", "")
        .start();
    let mut wire = front.wire();
    let mut status = |method: &str| {
        wire.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        wire.response().status()
    };
    assert_eq!([status("PURGE"), status("purge"), status("Purge")], [200, 400, 400]);
    assert_eq!(status("PURGE"), 429);
    // Nobody knows these, so they are counted as they are.
    assert_eq!([status("BREW"), status("brew"), status("POSTS")], [200, 200, 429]);
}
