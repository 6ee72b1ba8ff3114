//! Requests that upstreams may read otherwise than policies do: methods, credentials, headers.

use http::{Method, Request};
use slidegate_testbed::http2::frames;
use slidegate_testbed::{GatewayOptions, Http2Client, Upstream};

use crate::configure;

/// A gateway whose one policy is for `POST /login`.
fn login(upstream: &Upstream) -> GatewayOptions {
    configure(upstream).policy("login", "1/min", "match = { method = \"POST\", path = \"/login\" }")
}

#[test]
fn a_method_in_another_case_is_refused() {
    let upstream = Upstream::simple();
    let gateway = login(&upstream).start();
    let client = Http2Client::connect(gateway.listener());
    for method in ["post", "Post", "pOST", "get", "Delete", "pATCH", "trace", "connect", "propfind"]
    {
        let mut wire = gateway.wire();
        wire.send(format!("{method} /login HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = wire.response();
        assert_eq!(answer.problem(), 400, "{method}");
        assert!(answer.text().contains("only in case"), "{}", answer.text());
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = Request::builder().method(&method).uri("http://a/login").body(frames([]));
        assert_eq!(client.send(request.unwrap()).unwrap().status, 400, "{method}");
    }
    assert_eq!(upstream.received().len(), 0);
    let mut wire = gateway.wire();
    for status in [200, 429] {
        wire.send("POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(wire.response().status(), status, "nothing was counted before");
    }
}

#[test]
fn a_method_that_a_policy_names_is_known_and_others_fall_under_policies_that_name_none() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .policy("purge", "1/min", "match = { method = \"PURGE\" }")
        .policy("all", "3/min", "")
        .start();
    let mut wire = gateway.wire();
    let mut status = |method: &str| {
        wire.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        wire.response().status()
    };
    assert_eq!([status("PURGE"), status("purge"), status("Purge")], [200, 400, 400]);
    assert_eq!(status("PURGE"), 429);
    // Nobody knows these, so they are counted as they are.
    assert_eq!([status("BREW"), status("brew"), status("POSTS")], [200, 200, 429]);
}

const BY_TOKEN: &str = "identity = [\"authorization\"]";

#[test]
fn one_credential_is_one_account_however_it_is_written() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("all", "1/min", BY_TOKEN).start();
    let mut wire = gateway.wire();
    assert_eq!(wire.get("/", "Authorization: Bearer t\r\n").status(), 200);
    for same in ["bearer t", "BEARER t", "  bearer t  "] {
        let headers = format!("Authorization: {same}\r\n");
        assert_eq!(wire.get("/", &headers).status(), 429, "{same:?}");
    }
    for other in ["Bearer T", "Basic YTpi", "t"] {
        let headers = format!("Authorization: {other}\r\n");
        assert_eq!(wire.get("/", &headers).status(), 200, "{other:?}");
    }
    // Servers differ in whether these are the same.
    for unclear in ["Bearer  t", "Bearer\tt", "Bearer t x", "Basic t"] {
        let answer = gateway.get("/", &format!("Authorization: {unclear}\r\n"));
        assert_eq!(answer.problem(), 400, "{unclear:?}");
    }
    assert_eq!(upstream.received().len(), 4);
}

#[test]
fn a_credential_that_is_blocked_is_so_however_it_is_written() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .tables("[blocked]\nauthorizations = [\"Bearer stolen\"]\napi_keys = [\"leaked\"]")
        .start();
    let mut wire = gateway.wire();
    for headers in [
        "Authorization: Bearer stolen\r\n",
        "Authorization: bearer stolen\r\n",
        "Authorization:   BEARER stolen \r\n",
        "X-API-Key: leaked\r\n",
        "X-API-Key:   leaked  \r\n",
    ] {
        assert_eq!(wire.get("/", headers).status(), 403, "{headers}");
    }
    let client = Http2Client::connect(gateway.listener());
    for (name, value) in
        [("x-api-key", "leaked "), ("x-api-key", "\tleaked"), ("authorization", " bearer stolen\t")]
    {
        let request = Request::get("http://a/").header(name, value).body(frames([]));
        assert_eq!(client.send(request.unwrap()).unwrap().status, 403, "{name}: {value:?}");
    }
    assert_eq!(upstream.received().len(), 0);
}

#[test]
fn spaces_around_a_value_make_no_other_account_over_http_2() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .policy("keys", "1/min", "identity = [\"api-key\"]\nmatch = { path = \"/keys\" }")
        .policy("tenants", "1/min", "identity = [\"header:x-tenant\"]\nmatch = { path = \"/t\" }")
        .start();
    let client = Http2Client::connect(gateway.listener());
    for (path, name) in [("/keys", "x-api-key"), ("/t", "x-tenant")] {
        let get = |value: &str| {
            let request = Request::get(format!("http://a{path}")).header(name, value);
            client.send(request.body(frames([])).unwrap()).unwrap().status.as_u16()
        };
        assert_eq!([get("k"), get("k ")], [200, 429]);
        for value in [" k", "k\t", "  k  ", "\tk "] {
            assert_eq!(get(value), 429, "{name}: {value:?}");
        }
    }
    // White space alone is no key.
    let blank = Request::get("http://a/keys").header("x-api-key", "  ").body(frames([]));
    assert_eq!(client.send(blank.unwrap()).unwrap().status, 200);
    let none = Request::get("http://a/keys").body(frames([]));
    assert_eq!(client.send(none.unwrap()).unwrap().status, 429, "both are anonymous");
}

#[test]
fn an_identity_header_that_is_there_twice_is_refused() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .tables("[plans.free]\nquotas = [\"100/min\"]")
        .policy("all", "100/min", "identity = [\"header:x-tenant\", \"ip\"]")
        .policy("plans", "", "plan = { header = \"x-plan\", default = \"free\" }")
        .start();
    let client = Http2Client::connect(gateway.listener());
    for name in ["x-api-key", "authorization", "x-tenant", "x-plan"] {
        for values in [["a", "b"], ["a", "a"], ["", "a"]] {
            let headers = values.map(|value| format!("{name}: {value}\r\n")).concat();
            let answer = gateway.get("/", &headers);
            assert_eq!(answer.problem(), 400, "{headers}");
            assert!(answer.text().contains(name), "{}", answer.text());
            let request = Request::get("http://a/").header(name, values[0]);
            let request = request.header(name, values[1]).body(frames([])).unwrap();
            assert_eq!(client.send(request).unwrap().status, 400, "{headers}");
        }
    }
    assert_eq!(upstream.received().len(), 0);
    for other in ["X-Other: a\r\nX-Other: b\r\n", "Accept: a\r\nAccept: b\r\nX-API-Key: k\r\n"] {
        assert_eq!(gateway.get("/", other).status(), 200, "{other}");
    }
}

#[test]
fn splitting_a_cookie_makes_no_other_account() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .policy("all", "1/min", "identity = [\"header:cookie\", \"ip\"]")
        .start();
    assert_eq!(gateway.get("/", "Cookie: a=1; b=2\r\n").status(), 200);
    assert_eq!(gateway.get("/", "Cookie: a=1\r\nCookie: b=2\r\n").status(), 429);
    let client = Http2Client::connect(gateway.listener());
    let request = Request::get("http://a/").header("cookie", "a=1").header("cookie", "b=2");
    assert_eq!(client.send(request.body(frames([])).unwrap()).unwrap().status, 429);
    assert_eq!(gateway.get("/", "Cookie: a=1\r\nCookie: b=3\r\n").status(), 200);
}
