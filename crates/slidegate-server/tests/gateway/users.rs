//! The user that a trusted proxy names in `user_header`, at the gateway and for forward-auth.

use crate::{configure, options};
use http::Request;
use slidegate_testbed::http2::frames;
use slidegate_testbed::{Gateway, GatewayOptions, Http2Client, Upstream, Wire, wait_until};

const TRUSTED: &str = "[\"127.0.0.0/8\"]";
const LISTS: &str = "[blocked]\nusers = [\"mallory\"]\n[exempt]\nusers = [\"operator\"]";
const BY_USER: &str = "identity = [\"user\", \"ip\"]";

/// A gateway behind a proxy that names users, which admits two requests of each.
fn setup(upstream: &Upstream, trusted: &str) -> GatewayOptions {
    configure(upstream)
        .key("trusted_proxies", trusted)
        .key("client_address", "\"x-forwarded-for\"")
        .key("user_header", "\"X-User-Id\"")
        .tables(LISTS)
        .policy("api", "2/min", BY_USER)
}

fn statuses<const N: usize>(gateway: &Gateway, headers: [&str; N]) -> [u16; N] {
    let mut wire = gateway.wire();
    headers.map(|headers| wire.get("/", headers).status())
}

#[test]
fn a_user_that_a_trusted_proxy_names_is_counted_and_listed_wherever_it_is() {
    let upstream = Upstream::simple();
    let gateway = setup(&upstream, TRUSTED).start();
    let ann = [
        "X-Forwarded-For: 203.0.113.7\r\nX-User-Id: ann\r\n",
        "X-Forwarded-For: 203.0.113.8\r\nx-user-id:   ann  \r\n",
        "X-Forwarded-For: 203.0.113.9\r\nX-USER-ID: ann\r\nX-API-Key: k\r\n",
    ];
    assert_eq!(statuses(&gateway, ann), [200, 200, 429]);
    assert_eq!(statuses(&gateway, ["X-Forwarded-For: 203.0.113.7\r\nX-User-Id: bob\r\n"]), [200]);
    // Neither an empty value nor white space is a user.
    let address = [
        "X-Forwarded-For: 203.0.113.7\r\n",
        "X-Forwarded-For: 203.0.113.7\r\nX-User-Id:\r\n",
        "X-Forwarded-For: 203.0.113.7\r\nX-User-Id: \t \r\n",
    ];
    assert_eq!(statuses(&gateway, address), [200, 200, 429]);
    assert_eq!(statuses(&gateway, ["X-User-Id: mallory\r\n"; 2]), [403; 2]);
    assert_eq!(statuses(&gateway, ["X-User-Id: operator\r\n"; 5]), [200; 5]);
    assert_eq!(statuses(&gateway, ["X-User-Id: Ünal Ö\r\n"; 3]), [200, 200, 429]);
    assert_eq!(upstream.last().value("x-user-id").as_deref(), Some("Ünal Ö"));
    let mut operator = Wire::connect(gateway.admin());
    operator.send("GET /v1/accounts HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let accounts = operator.response().text();
    assert!(accounts.contains("\"user:ann\"") && !accounts.contains("x-user-id"), "{accounts}");
}

#[test]
fn visitors_without_a_user_share_an_account_or_are_skipped() {
    let upstream = Upstream::simple();
    for (anonymous, expected) in [("share", [200, 200, 429, 429]), ("skip", [200; 4])] {
        let keys = format!("identity = \"user\"\nanonymous = \"{anonymous}\"");
        let gateway = configure(&upstream)
            .key("trusted_proxies", TRUSTED)
            .key("client_address", "\"x-forwarded-for\"")
            .key("user_header", "\"X-User-Id\"")
            .policy("users", "2/min", &keys)
            .start();
        let visitors = [
            "X-Forwarded-For: 203.0.113.7\r\n",
            "X-Forwarded-For: 203.0.113.8\r\nX-User-Id:\r\n",
            "X-Forwarded-For: 203.0.113.9\r\n",
            "X-Forwarded-For: 203.0.113.10\r\n",
        ];
        assert_eq!(statuses(&gateway, visitors), expected, "{anonymous}");
        assert_eq!(statuses(&gateway, ["X-User-Id: ann\r\n"; 3]), [200, 200, 429], "{anonymous}");
    }
}

#[test]
fn a_user_that_anybody_else_names_is_ignored() {
    let upstream = Upstream::simple();
    let gateway = setup(&upstream, "[\"10.0.0.0/8\"]").start();
    let claims = [
        "X-User-Id: ann\r\n",
        "X-User-Id: mallory\r\n",
        "X-User-Id: bob\r\n",
        "X-User-Id: operator\r\n",
        "",
    ];
    assert_eq!(statuses(&gateway, claims), [200, 200, 429, 429, 429], "all are one address");
}

#[test]
fn a_user_header_that_is_not_configured_names_no_user() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("trusted_proxies", TRUSTED)
        .policy("api", "2/min", BY_USER)
        .start();
    let claims = ["X-User-Id: ann\r\n", "X-User-Id: bob\r\n", "X-User-Id: eve\r\n"];
    assert_eq!(statuses(&gateway, claims), [200, 200, 429]);
}

#[test]
fn a_user_header_that_is_there_twice_is_refused() {
    let upstream = Upstream::simple();
    for trusted in [TRUSTED, "[\"10.0.0.0/8\"]"] {
        let gateway = setup(&upstream, trusted).start();
        let client = Http2Client::connect(gateway.listener());
        for values in [["ann", "bob"], ["ann", "ann"], ["", "ann"], ["ann", "mallory"]] {
            let headers = values.map(|value| format!("X-User-Id: {value}\r\n")).concat();
            let answer = gateway.get("/", &headers);
            assert_eq!(answer.problem(), 400, "{headers}");
            assert!(answer.text().contains("x-user-id"), "{}", answer.text());
            let request = Request::get("http://a/").header("x-user-id", values[0]);
            let request = request.header("x-user-id", values[1]).body(frames([])).unwrap();
            assert_eq!(client.send(request).unwrap().status, 400, "{headers}");
        }
        assert_eq!(statuses(&gateway, ["X-User-Id: ann\r\n"; 3]), [200, 200, 429], "none counted");
    }
}

#[test]
fn a_client_can_neither_have_the_header_removed_nor_imitate_it() {
    let upstream = Upstream::simple();
    let gateway = setup(&upstream, TRUSTED).start();
    let named = "Connection: x-user-id, keep-alive\r\nX-User-Id: ann\r\n";
    assert_eq!(statuses(&gateway, [named; 3]), [200, 200, 429]);
    assert_eq!(upstream.last().value("x-user-id").as_deref(), Some("ann"));
    // To CGI and its successors these are one header.
    let imitated = "X-User-Id: bob\r\nX_User_Id: ann\r\n";
    assert_eq!(statuses(&gateway, [imitated; 3]), [200, 200, 429]);
    assert_eq!(upstream.last().values("x_user_id"), [""; 0]);
}

#[test]
fn forward_auth_knows_the_user_that_a_trusted_proxy_names() {
    let rules = |trusted: &str| {
        let text = format!(
            "[gateway]\ntrusted_proxies = {trusted}\nuser_header = \"x-user-id\"\n\
             [decisions]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             {LISTS}\n[[policy]]\nname = \"api\"\nquotas = \"2/min\"\n{BY_USER}\n"
        );
        Gateway::from(options().configuration(&text).start())
    };
    let ask = |wire: &mut Wire, proxy: &str, headers: &str| {
        let (path, request) = match proxy {
            "nginx" => ("/v1/auth/nginx", "X-Original-Method: GET\r\nX-Original-URI: /\r\n"),
            "envoy" => ("/v1/auth/envoy/", ""),
            _ => ("/v1/auth", "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n"),
        };
        wire.get(path, &format!("{request}X-Forwarded-For: 203.0.113.7\r\n{headers}"))
    };
    let gateway = rules(TRUSTED);
    let mut wire = Wire::connect(gateway.address("decisions"));
    let mut status = |proxy: &str, headers: &str| {
        let answer = ask(&mut wire, proxy, headers);
        let status = answer.value("x-slidegate-status");
        status.map_or(answer.status(), |status| status.parse().unwrap())
    };
    for proxy in ["caddy", "nginx", "envoy"] {
        let user = format!("X-User-Id: {proxy}-user\r\n");
        assert_eq!([(); 3].map(|()| status(proxy, &user)), [200, 200, 429], "{proxy}");
        assert_eq!(status(proxy, "X-User-Id: a\r\nX-User-Id: b\r\n"), 400, "{proxy}");
        assert_eq!(status(proxy, "X-User-Id: mallory\r\n"), 403, "{proxy}");
    }
    assert_eq!([(); 3].map(|()| status("caddy", "")), [200, 200, 429], "the address is apart");
    let gateway = rules("[\"10.0.0.0/8\"]");
    let mut wire = Wire::connect(gateway.address("decisions"));
    let claims = ["ann", "mallory", "bob"].map(|user| format!("X-User-Id: {user}\r\n"));
    let statuses = claims.map(|claim| ask(&mut wire, "caddy", &claim).status());
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn a_program_that_asks_can_vouch_for_the_header_and_its_own_word_comes_first() {
    let upstream = Upstream::simple();
    let endpoint = "[decisions]\nlisten = \"127.0.0.1:0\"";
    let gateway = setup(&upstream, TRUSTED).tables(endpoint).start();
    let mut wire = Wire::connect(gateway.address("decisions"));
    let mut identity = |question: &str| {
        wire.send(format!(
            "POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{question}",
            question.len()
        ));
        let reply: serde_json::Value = serde_json::from_str(&wire.response().text()).unwrap();
        reply["standings"][0]["identity"].as_str().unwrap().to_owned()
    };
    let header = r#""headers":{"X-User-Id":"ann"},"client":"203.0.113.7""#;
    assert_eq!(identity(&format!("{{{header}}}")), "ip:203.0.113.7");
    assert_eq!(identity(&format!("{{{header},\"trusted\":true}}")), "user:ann");
    assert_eq!(identity(&format!("{{{header},\"trusted\":true,\"user\":\"42\"}}")), "user:42");
}

#[test]
fn another_header_is_put_in_force_by_a_reload() {
    let upstream = Upstream::simple();
    let gateway = setup(&upstream, TRUSTED).start();
    assert_eq!(statuses(&gateway, ["X-User-Id: ann\r\n"; 3]), [200, 200, 429]);
    let text = setup(&upstream, TRUSTED).text().replace("X-User-Id", "x-account");
    gateway.reconfigure(&text);
    gateway.signal("HUP");
    let changed = "user header x-user-id -> x-account";
    wait_until("the reload", || gateway.output().contains(changed));
    assert_eq!(statuses(&gateway, ["X-Account: ann\r\n"]), [429], "it has spent its quota");
    assert_eq!(statuses(&gateway, ["X-Account: bob\r\nX-User-Id: ann\r\n"]), [200]);
}

#[test]
fn an_ignored_forwarding_header_is_reported_only_where_it_was_ignored() {
    let upstream = Upstream::simple();
    let setup = configure(&upstream).tables("[decisions]\nlisten = \"127.0.0.1:0\"");
    let gateway = setup.policy("api", "100/min", "").start();
    let forwarded = "X-Forwarded-For: 203.0.113.7\r\n";
    for (path, method, uri) in [
        ("/v1/auth", "X-Forwarded-Method", "X-Forwarded-Uri"),
        ("/v1/auth/nginx", "X-Original-Method", "X-Original-URI"),
    ] {
        let headers = format!("{forwarded}{method}: GET\r\n{uri}: /\r\n");
        assert_eq!(Wire::connect(gateway.address("decisions")).get(path, &headers).status(), 200);
    }
    assert_eq!(gateway.get("/", "").status(), 200);
    assert!(!gateway.output().contains("was ignored"), "{}", gateway.output());
    assert_eq!(gateway.get("/", forwarded).status(), 200);
    wait_until("the warning", || gateway.output().contains("was ignored"));
    let output = gateway.output();
    let line = output.lines().find(|line| line.contains("was ignored")).unwrap();
    assert!(line.contains("gateway.trusted_proxies"), "{line}");
}
