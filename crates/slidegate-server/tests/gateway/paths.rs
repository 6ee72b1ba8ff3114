//! Nobody gets around a policy by writing a path in another way.

use slidegate_testbed::{Http2Client, Upstream};

use crate::{configure, unlimited};

const DODGES: [&str; 27] = [
    "/login",
    "/api/../login",
    "//login",
    "/%6cogin",
    "/login/",
    "/./login",
    "/%6C%6f%67%69%6E",
    "/api/%2e%2e/login",
    "/%2E/login",
    "/a/b/../../login",
    "/../../login",
    "///.//login//",
    "/login?x=/other",
    "/login/.",
    "/login;x=1",
    "/x/..;/login",
    "/x/%2e%2e;a=b/login",
    "/login%3Bx",
    "/login%20",
    "/login%20;x/",
    "/LOGIN",
    "/%4cogin",
    "/%2Flogin",
    "/api%2f..%2flogin",
    "/api/..%5clogin",
    "/x//../%2e/login%23x",
    "/API%2F..//./Login;x=1/",
];

#[test]
fn every_way_to_write_a_path_counts() {
    for dodge in DODGES {
        let upstream = Upstream::simple();
        let gateway = configure(&upstream)
            .policy("login", "5/min", "match = { method = \"GET\", path = \"/login\" }")
            .start();
        let mut wire = gateway.wire();
        for _ in 0..4 {
            assert_eq!(wire.get("/login", "").status(), 200);
        }
        assert_eq!(wire.get(dodge, "").status(), 200, "{dodge}");
        assert_eq!(upstream.last().target(), dodge, "upstream has the bytes that were sent");
        assert_eq!(wire.get(dodge, "").status(), 429, "{dodge}");
        assert_eq!(wire.get("/login", "").status(), 429, "{dodge} did not count");
        assert_eq!(wire.get("/other", "").status(), 200, "others are free");
        assert_eq!(upstream.received().len(), 6);
    }
}

#[test]
fn a_target_without_a_path_has_one_for_upstream() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    for (target, expected) in [
        ("http://a.example", "/"),
        ("http://a.example?x=1", "/?x=1"),
        ("http://a.example/?x=1", "/?x=1"),
        ("/a/../b?x=%2f&y", "/a/../b?x=%2f&y"),
        ("/b?", "/b?"),
    ] {
        let mut wire = gateway.wire();
        wire.send(format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        assert_eq!(wire.response().status(), 200, "{target}");
        assert_eq!(upstream.last().target(), expected, "{target}");
    }
}

#[test]
fn a_target_with_a_host_counts_too() {
    let upstream = Upstream::simple();
    let gateway =
        configure(&upstream).policy("login", "1/min", "match = { path = \"/login\" }").start();
    let mut wire = gateway.wire();
    for status in [200, 429] {
        wire.send("GET http://a.example//login HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(wire.response().status(), status);
    }
    assert_eq!(upstream.last().target(), "//login");
}

#[test]
fn readings_can_be_switched_off() {
    let upstream = Upstream::simple();
    for (key, value, path, counts) in [
        ("ignore_case", "false", "/LOGIN", false),
        ("ignore_case", "true", "/LOGIN", true),
        ("encoded_slashes", "\"keep\"", "/api/..%2Flogin", false),
        ("encoded_slashes", "\"decode\"", "/api/..%2Flogin", true),
        ("backslashes", "\"slash\"", "/%5clogin", true),
        ("backslashes", "\"keep\"", "/%5clogin", false),
        ("path_parameters", "\"cut\"", "/login;x=1", true),
        ("path_parameters", "\"keep\"", "/login;x=1", false),
    ] {
        let gateway = configure(&upstream)
            .key(key, value)
            .policy("login", "1/min", "match = { path = \"/login\" }")
            .start();
        assert_eq!(gateway.status(path), 200);
        let expected = if counts { 429 } else { 200 };
        assert_eq!(gateway.status("/login"), expected, "{key} = {value}: {path}");
    }
}

#[test]
fn control_characters_in_a_path_are_refused() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    let client = Http2Client::connect(gateway.listener());
    for path in ["/login%00", "/login%00.html", "/%0d%0aX-A:%20b", "/a%1F", "/a%7f", "/a%09"] {
        let answer = gateway.get(path, "");
        assert_eq!(answer.problem(), 400, "{path}");
        assert!(answer.text().contains("control character"), "{}", answer.text());
        assert_eq!(client.get(&format!("http://a{path}")).status, 400, "{path}");
    }
    assert_eq!(upstream.received().len(), 0);
    assert_eq!(gateway.status("/a%20b?c=%00"), 200, "a query is upstream's");
}

#[test]
fn a_path_that_can_be_read_in_too_many_ways_is_refused() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    let path =
        "/e%20;z%20/..;x%20/..%20/c%2f..%5c%20;/c%20//%20/e%5c%20;z%23/d%20;z/..%20;/..;x/..";
    let answer = gateway.get(path, "");
    assert_eq!(answer.problem(), 400);
    assert!(answer.text().contains("read in too many ways"), "{}", answer.text());
    assert_eq!(upstream.received().len(), 0);
}

#[test]
fn an_exemption_covers_no_path_that_leaves_it() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .policy("all", "1/min", "")
        .tables("[exempt]\npaths = [\"/static/{*rest}\"]")
        .start();
    assert_eq!(gateway.status("/"), 200);
    for path in [
        "/static/../login",
        "/static/%2e%2e/login",
        "/static/..;/login",
        "/static/..;a=b/login",
        "/static/..%2flogin",
        "/static/..%5clogin",
        "/static/x%5c..%5c..%5clogin",
        "/static/%252e%252e/login",
        "/static/..%252flogin",
        "/static/..%20/login",
        "/static//../login",
    ] {
        assert_eq!(gateway.status(path), 429, "{path}");
    }
    for path in ["/static/app.js", "/static/a/b%20c.pdf", "/static/app.js;v=3"] {
        assert_eq!(gateway.status(path), 200, "{path}");
    }
}

#[test]
fn routes_go_by_the_same_reading() {
    let (open, inner) = (Upstream::simple(), Upstream::simple());
    let gateway = configure(&open).route("/inner", &[&inner]).start();
    for path in ["/inner/x", "/x/../inner/x", "/%69nner//x", "/inner;y/x"] {
        assert_eq!(gateway.status(path), 200);
        assert_eq!(inner.last().target(), path);
    }
    assert_eq!(open.received().len(), 0);
    // Case counts, and an encoded slash separates nothing.
    for path in ["/INNER/x", "/x%2f..%2finner/x"] {
        assert_eq!(gateway.status(path), 200);
        assert_eq!(open.last().target(), path);
    }
}
