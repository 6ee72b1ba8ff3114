//! Headers between client and upstream.

use http::Request;
use slidegate_testbed::http1::response;
use slidegate_testbed::http2::frames;
use slidegate_testbed::{Http2Client, Upstream};

use crate::{configure, options, unlimited};

#[test]
fn what_is_for_one_connection_stays_there() {
    let upstream = Upstream::answering(|_| {
        let headers = "Connection: X-Hop, keep-alive\r\nX-Hop: secret\r\nKeep-Alive: timeout=60\r\n\
            Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nX-End: kept\r\nTE: gzip\r\n\
            Proxy-Connection: x\r\n";
        response("200 OK", headers, "ok")
    });
    let gateway = unlimited(&upstream);
    let headers = "Connection: x-hop, Keep-Alive, x-twice\r\nConnection: x-other, host, content-length\r\n\
        X-Hop: 1\r\nX-Other: 2\r\nx-twice: 3\r\nX-Twice: 4\r\nKeep-Alive: timeout=5\r\nTE: gzip, trailers\r\n\
        Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n\
        HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nX-End: kept\r\n";
    let answer = gateway.get("/", headers);
    let received = upstream.last();
    for name in [
        "connection",
        "x-hop",
        "x-other",
        "x-twice",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "upgrade",
        "http2-settings",
        "transfer-encoding",
    ] {
        assert_eq!(received.values(name), [""; 0], "{name} to upstream");
    }
    assert_eq!(received.value("te").as_deref(), Some("trailers"));
    assert_eq!(received.value("x-end").as_deref(), Some("kept"));
    assert_eq!(received.value("host").as_deref(), Some("a.example"));
    for name in [
        "x-hop",
        "keep-alive",
        "proxy-authenticate",
        "upgrade",
        "te",
        "proxy-connection",
        "connection",
    ] {
        assert_eq!(answer.values(name), [""; 0], "{name} to the client");
    }
    assert_eq!(answer.value("x-end").as_deref(), Some("kept"));
}

#[test]
fn trailers_are_asked_for_as_the_standard_has_it() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    gateway.get("/", "Connection: TE\r\nTE: trailers, deflate;q=0.5\r\n");
    assert_eq!(upstream.last().values("te"), ["trailers"]);
    gateway.get("/", "Connection: TE\r\nTE: deflate\r\n");
    assert_eq!(upstream.last().values("te"), [""; 0]);
}

/// What a client may claim about itself.
const CLAIMS: &str = "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-For: 198.51.100.9\r\n\
    X-Forwarded-Proto: https\r\nX-Forwarded-Host: b.example\r\nX-Real-IP: 203.0.113.7\r\n\
    Forwarded: for=203.0.113.7;proto=https\r\n";

const EVERY_FORWARDING_HEADER: &str =
    r#"["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "forwarded"]"#;

#[test]
fn forwarding_headers_are_those_that_are_configured() {
    let upstream = Upstream::simple();
    let names =
        ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "forwarded"];
    for (configured, sent) in [
        (None, &names[..3]),
        (Some("[]"), &[]),
        (Some(r#"["x-real-ip"]"#), &names[3..4]),
        (Some(r#"["forwarded", "x-forwarded-proto"]"#), &["x-forwarded-proto", "forwarded"]),
        (Some(EVERY_FORWARDING_HEADER), &names),
    ] {
        let setup = configure(&upstream);
        let gateway = match configured {
            Some(headers) => setup.key("forwarding_headers", headers).start(),
            None => setup.start(),
        };
        // What a client claims never arrives, whether the header is configured or not.
        assert_eq!(gateway.get("/", CLAIMS).status(), 200);
        let received = upstream.last();
        let arrived = names.into_iter().filter(|name| received.value(name).is_some());
        assert_eq!(arrived.collect::<Vec<_>>(), sent, "{configured:?}");
        assert!(!received.head.contains("203.0.113.7"), "{}", received.head);
    }
    let trusting = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("forwarding_headers", "[]")
        .start();
    assert_eq!(trusting.get("/", CLAIMS).status(), 200);
    let received = upstream.last();
    assert_eq!(received.values("x-real-ip"), ["203.0.113.7"], "a proxy's is kept");
    let hops = "203.0.113.7, 198.51.100.9, 127.0.0.1";
    assert_eq!(received.values("x-forwarded-for"), [hops], "and completed where it is a list");
}

#[test]
fn what_a_stranger_claims_is_replaced() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).key("forwarding_headers", EVERY_FORWARDING_HEADER).start();
    let lookalikes = "X_Forwarded_For: 6.6.6.6\r\nX-Forwarded_For: 6.6.6.6\r\nx_real-ip: 6.6.6.6\r\n\
        X_Forwarded_Host: 6.6.6.6\r\nX-Forwarded_Proto: 6.6.6.6\r\n";
    for claims in ["", CLAIMS, &format!("{CLAIMS}{lookalikes}"), "X-Forwarded-For:\r\n"] {
        assert_eq!(gateway.get("/", claims).status(), 200);
        let received = upstream.last();
        for (name, expected) in [
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "a.example"),
            ("x-real-ip", "127.0.0.1"),
            ("forwarded", "for=127.0.0.1;host=\"a.example\";proto=http"),
        ] {
            assert_eq!(received.values(name), [expected], "{claims}");
        }
        assert!(!received.head.contains("6.6.6.6"), "{}", received.head);
    }
}

#[test]
fn what_a_trusted_proxy_says_is_passed_on() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .key("forwarding_headers", EVERY_FORWARDING_HEADER)
        .start();
    assert_eq!(gateway.get("/", CLAIMS).status(), 200);
    let received = upstream.last();
    for (name, expected) in [
        ("x-forwarded-for", "203.0.113.7, 198.51.100.9, 127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "b.example"),
        ("x-real-ip", "203.0.113.7"),
        ("forwarded", "for=203.0.113.7;proto=https, for=127.0.0.1;host=\"a.example\";proto=http"),
    ] {
        assert_eq!(received.values(name), [expected]);
    }
    assert_eq!(gateway.get("/", "X-Forwarded-For: 203.0.113.7, 198.51.100.9\r\n").status(), 200);
    let received = upstream.last();
    assert_eq!(received.values("x-real-ip"), ["198.51.100.9"], "the last untrusted address");
    assert_eq!(received.values("x-forwarded-proto"), ["http"]);
}

/// Some servers prefer `Forwarded` to `X-Forwarded-For`. If the proxy in front sets only the latter,
/// the gateway does not begin the former with the proxy as the client.
#[test]
fn forwarded_never_names_the_proxy_where_the_other_headers_name_the_client() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .key("forwarding_headers", EVERY_FORWARDING_HEADER)
        .start();
    for claim in ["For: 203.0.113.7", "Proto: https", "Host: b.example"] {
        assert_eq!(gateway.get("/", &format!("X-Forwarded-{claim}\r\n")).status(), 200);
        assert_eq!(upstream.last().values("forwarded"), [""; 0], "{claim}");
    }
    gateway.get("/", "X-Real-IP: 203.0.113.7\r\n");
    assert_eq!(upstream.last().values("forwarded"), [""; 0]);
    gateway.get("/", "");
    let own = "for=127.0.0.1;host=\"a.example\";proto=http";
    assert_eq!(upstream.last().values("forwarded"), [own], "the peer is the client");
    gateway.get("/", "X-Forwarded-For: 203.0.113.7\r\nForwarded: for=203.0.113.7\r\n");
    assert_eq!(upstream.last().values("forwarded"), [format!("for=203.0.113.7, {own}")]);
}

#[test]
fn a_client_cannot_have_forwarding_headers_removed() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).key("forwarding_headers", EVERY_FORWARDING_HEADER).start();
    let headers = "Connection: X-Forwarded-For, Forwarded, X-Real-IP, X-Forwarded-Proto\r\n";
    assert_eq!(gateway.get("/", headers).status(), 200);
    assert_eq!(upstream.last().values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(upstream.last().values("x-real-ip"), ["127.0.0.1"]);
    assert!(upstream.last().value("forwarded").is_some());
}

#[test]
fn a_host_header_is_kept_or_set() {
    let upstream = Upstream::simple();
    let own = upstream.address().to_string();
    for (rule, target, host, expected, forwarded) in [
        ("keep", "/", "a.example:81", "a.example:81", "a.example:81"),
        ("keep", "http://b.example/x?y", "a.example", "b.example", "b.example"),
        ("upstream", "/", "a.example", own.as_str(), "a.example"),
    ] {
        let gateway = configure(&upstream).key("host", &format!("{rule:?}")).start();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert!(gateway.answer_to(request).starts_with("HTTP/1.1 200"), "{target}");
        let received = upstream.last();
        assert_eq!(received.values("host"), [expected], "{rule} {target}");
        assert_eq!(received.values("x-forwarded-host"), [forwarded], "{rule} {target}");
        assert!(received.target().starts_with('/'), "origin form: {}", received.target());
    }
}

#[test]
fn headers_with_underscores_are_dropped_unless_allowed() {
    let upstream = Upstream::simple();
    let sent = "X_Tenant: a\r\nX-Mixed_Name: b\r\nx_api_key: c\r\nX-Plain: d\r\n";
    let framing = "Transfer_Encoding: chunked\r\nContent_Length: 5\r\ncontent-LENGTH_: 7\r\n";
    for (allowed, expected) in [("false", [0, 0, 0, 1]), ("true", [1, 1, 1, 1])] {
        let gateway = configure(&upstream).key("underscores_in_headers", allowed).start();
        assert_eq!(gateway.get("/", &format!("{sent}{framing}")).status(), 200);
        let client = Http2Client::connect(gateway.listener());
        let request = Request::get("http://a/")
            .header("x_tenant", "a")
            .header("x-mixed_name", "b")
            .header("x_api_key", "c")
            .header("x-plain", "d")
            .header("transfer_encoding", "chunked")
            .header("content_length", "5");
        assert_eq!(client.send(request.body(frames([])).unwrap()).unwrap().status, 200);
        let received = upstream.received();
        for received in &received[received.len() - 2..] {
            let names = ["x_tenant", "x-mixed_name", "x_api_key", "x-plain"];
            assert_eq!(
                names.map(|name| received.values(name).len()),
                expected,
                "{}",
                received.head
            );
            for name in ["transfer_encoding", "content_length"] {
                assert_eq!(received.values(name), [""; 0], "{name}: {}", received.head);
            }
        }
    }
}

#[test]
fn a_header_that_is_dropped_is_no_identity() {
    let upstream = Upstream::simple();
    let identity = "identity = [\"header:x_tenant\", \"ip\"]";
    let setup = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .policy("all", "1/min", identity);
    let gateway = setup.clone().key("underscores_in_headers", "true").start();
    let tenant = |name: &str| format!("X_Tenant: {name}\r\n");
    for (name, status) in [("a", 200), ("b", 200), ("a", 429)] {
        assert_eq!(gateway.get("/", &tenant(name)).status(), status, "{name}");
    }
    // Otherwise such a policy could never count by it.
    let refused = options().configuration(&setup.text()).spawn();
    assert_eq!(refused.wait(), Some(1));
    let output = refused.output();
    assert!(output.contains("gateway.underscores_in_headers: missing"), "{output}");
    assert!(output.contains("x_tenant"), "{output}");
}

#[test]
fn a_client_cannot_have_taken_out_what_the_proxy_in_front_has_set() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .policy("all", "1/min", "identity = [\"header:x-tenant\", \"ip\"]")
        .start();
    let names = "X-Forwarded-For, x-forwarded-proto, X-Forwarded-Port, Forwarded, X-Real-IP, \
        X-Tenant, Authorization, X-API-Key, X-Hop";
    let set = "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\n\
        Forwarded: for=203.0.113.7\r\nX-Real-IP: 203.0.113.7\r\nX-Tenant: acme\r\n\
        Authorization: Bearer t\r\nX-API-Key: k\r\nX-Hop: 1\r\n";
    assert_eq!(gateway.get("/", &format!("Connection: {names}\r\n{set}")).status(), 200);
    let received = upstream.last();
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.7, 127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "443"),
        ("x-real-ip", "203.0.113.7"),
        ("x-tenant", "acme"),
        ("authorization", "Bearer t"),
        ("x-api-key", "k"),
    ] {
        assert_eq!(received.values(name), [value], "{}", received.head);
    }
    assert!(
        received.value("forwarded").is_some_and(|value| value.starts_with("for=203.0.113.7, "))
    );
    assert_eq!(received.values("x-hop"), [""; 0], "what is for one connection only stays there");
    assert_eq!(gateway.get("/", &format!("Connection: {names}\r\n{set}")).status(), 429);
}

#[test]
fn requests_that_ask_for_another_method_or_path_can_be_refused() {
    let upstream = Upstream::simple();
    let (open, strict) =
        (unlimited(&upstream), configure(&upstream).key("refuse_overrides", "true"));
    let strict = strict.key("underscores_in_headers", "true").start();
    for name in [
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "X_HTTP_Method_Override",
    ] {
        let header = format!("{name}: /admin\r\n");
        assert_eq!(open.get("/", &header).status(), 200, "{name}");
        let before = upstream.received().len();
        assert_eq!(strict.get("/", &header).problem(), 400, "{name}");
        assert_eq!(upstream.received().len(), before, "{name}");
    }
    // Without the key, only the case of the last one is wrong.
    for (method, status) in [("TRACE", 200), ("TRACK", 200), ("track", 400)] {
        for (gateway, status) in [(&open, status), (&strict, 405)] {
            let mut wire = gateway.wire();
            wire.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(wire.response().status(), status, "{method}");
        }
    }
    assert_eq!(strict.get("/", "X-Original: x\r\n").status(), 200);
}
