//! Requests that are wrong, come from the wrong people or to the wrong endpoint.

use serde_json::Value;
use slidegate_testbed::{Gateway, Upstream, Wire};

use crate::terminal::Operator;
use crate::{configure, options};

const BAN: &str = "/v1/accounts/ip:10.0.0.1/ban";

fn start() -> Gateway {
    configure(&Upstream::simple()).policy("api", "10/h", "").start()
}

#[test]
fn what_is_wrong_with_a_request_is_named_with_its_value() {
    let gateway = start();
    let operator = Operator::of(&gateway);
    let long = format!("{{\"for\":\"1h\",\"reason\":\"{}\"}}", "x".repeat(201));
    let grant = "/v1/accounts/ip:10.0.0.1/grant";
    for (method, path, body, status, expected) in [
        ("POST", BAN, "", 400, "incomplete JSON"),
        ("POST", BAN, "[]", 400, "expected an object, not a list"),
        (
            "POST",
            BAN,
            "[\"api\", null, \"1h\", null, \"x\"]",
            400,
            "expected an object, not a list",
        ),
        ("POST", BAN, "7", 400, "invalid type: integer `7`, expected an object"),
        ("POST", BAN, "{}", 400, "missing field `reason`"),
        ("POST", BAN, "{\"reason\":\"x\"}", 400, "for: expected one of for"),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"for\":\"1h\",\"until\":\"2030-01-01T00:00:00Z\"}",
            400,
            "for: expected one of for",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"for\":\"1 parsec\"}",
            400,
            "for: expected a length of time such as 50ms, 10s, 5min, 1h or 7d, at most 366 days, \
             not \"1 parsec\"",
        ),
        ("POST", BAN, "{\"reason\":\"x\",\"for\":\"400d\"}", 400, "at most 366 days, not \"400d\""),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"for\":60}",
            400,
            "for: invalid type: integer `60`, expected a string",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"until\":\"noon\"}",
            400,
            "until: expected an instant such as 2026-01-01T12:00:00Z, not \"noon\"",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"until\":\"2001-01-01T00:00:00Z\"}",
            400,
            "that time is over",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"until\":\"9001-01-01T00:00:00Z\"}",
            400,
            "within 366 days",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"\",\"for\":\"1h\"}",
            400,
            "reason: expected 1 to 200 characters",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"a\\nb\",\"for\":\"1h\"}",
            400,
            "reason: expected 1 to 200 characters",
        ),
        ("POST", BAN, &long, 400, "reason: expected 1 to 200 characters"),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"for\":\"1h\",\"units\":1}",
            400,
            "units: only a grant has units",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"for\":\"1h\",\"for\":\"2h\"}",
            400,
            "duplicate field `for`",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"for\":\"1h\",\"policy\":\"a b\"}",
            400,
            "policy: \"a b\" is not a name",
        ),
        (
            "POST",
            BAN,
            "{\"reason\":\"x\",\"for\":\"1h\",\"policy\":\"web\"}",
            404,
            "there is no policy \"web\"; there is api",
        ),
        ("POST", grant, "{\"reason\":\"x\",\"for\":\"1h\"}", 400, "units: missing from a grant"),
        (
            "POST",
            grant,
            "{\"reason\":\"x\",\"for\":\"1h\",\"units\":0}",
            400,
            "units: invalid value: integer `0`, expected a nonzero u32",
        ),
        (
            "POST",
            grant,
            "{\"reason\":\"x\",\"for\":\"1h\",\"units\":\"5\"}",
            400,
            "units: invalid type: string \"5\", expected a nonzero u32",
        ),
        (
            "POST",
            "/v1/accounts/ip:10.0.0.1/reset",
            "{\"reason\":\"x\",\"for\":\"1h\"}",
            400,
            "for: unknown field `for`, expected `policy` or `reason`",
        ),
        (
            "POST",
            "/v1/accounts/ip:10.0.0.1/hang",
            "{}",
            404,
            "there is reset, grant, exempt and ban",
        ),
        ("POST", "/v1/accounts/nobody/ban", "{}", 400, "identity: expected kind:value"),
        ("POST", "/v1/accounts/ip:nowhere/ban", "{}", 400, "identity: expected an IP address"),
        (
            "POST",
            "/v1/accounts/api-key:hunter2/ban",
            "{}",
            400,
            "identity: expected the name of an API key, or the digest",
        ),
        ("POST", "/v1/accounts/%FF/ban", "{}", 400, "Invalid UTF-8"),
        (
            "GET",
            "/v1/accounts?sort=best",
            "",
            400,
            "sort: unknown variant `best`, expected one of `nearest`, `denied`, `candidate`",
        ),
        (
            "GET",
            "/v1/accounts?limit=0",
            "",
            400,
            "limit: expected a whole number from 1 to 100, not 0",
        ),
        ("GET", "/v1/accounts?limit=101", "", 400, "limit: expected a whole number"),
        ("GET", "/v1/accounts?limit=x", "", 400, "limit: invalid digit"),
        ("GET", "/v1/accounts?max_age_ms=10001", "", 400, "max_age_ms: expected at most 10000"),
        (
            "GET",
            "/v1/accounts?page=2",
            "",
            400,
            "page: unknown field `page`, expected one of `sort`, `limit`, `max_age_ms`",
        ),
        ("GET", "/v1/accounts?sort=denied&sort=nearest", "", 400, "duplicate field `sort`"),
        ("GET", "/v1/accounts/ip:10.0.0.1?policy=web", "", 404, "there is no policy \"web\""),
        ("GET", "/v1/accounts/ip:10.0.0.1?plan=gold", "", 404, "there is no plan \"gold\""),
        ("GET", "/v1/overrides?x=1", "", 400, "x: unknown field `x`"),
        (
            "DELETE",
            "/v1/overrides/1",
            "{\"reason\":\"x\"}",
            404,
            "there is no override \"1\" in force",
        ),
        ("DELETE", "/v1/overrides/1", "{}", 400, "missing field `reason`"),
        (
            "DELETE",
            "/v1/overrides/1",
            "{\"reason\":\"x\",\"policy\":\"api\"}",
            400,
            "policy: unknown field `policy`, expected `reason`",
        ),
        ("DELETE", "/v1/overrides/1?x=1", "{\"reason\":\"x\"}", 400, "x: unknown field `x`"),
        ("POST", &format!("{BAN}?for=1h"), "{}", 400, "for: unknown field `for`"),
        ("PUT", "/v1/overrides", "", 405, "GET / tells what can"),
        ("GET", "/v1/accounts/ip:10.0.0.1/ban", "", 405, "GET / tells what can"),
    ] {
        let (answered, problem) = operator.ask(method, path, body);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!(answered, status, "{method} {path} {body}: {problem}");
        assert!(detail.contains(expected), "{method} {path} {body}: {detail}");
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
        assert_eq!(problem["status"], status);
    }
    assert_eq!(operator.overrides(), [""; 0], "nothing of it was done");
    for (method, path, body) in [("GET", "/v1/overrides?x=1", ""), ("POST", BAN, "{\"x\":1}")] {
        let (_, problem) = operator.ask(method, path, body);
        assert_eq!(problem["problems"][0]["member"], "x", "{problem}");
    }
    let long = format!("/v1/overrides?{}=1", "x".repeat(5000));
    assert!(operator.ask("GET", &long, "").1.to_string().len() < 1000);
}

#[test]
fn an_index_page_lists_every_route() {
    let page = start().admin_page("/").text();
    for route in [
        "/v1/accounts?sort=",
        "/v1/accounts/IDENTITY/ban",
        "/v1/accounts/IDENTITY/audit",
        "GET    /v1/policies",
        "POST   /v1/explain",
        "GET    /v1/overrides",
        "DELETE /v1/overrides/ID",
    ] {
        assert!(page.contains(route), "{page}");
    }
}

#[test]
fn a_body_is_json_and_not_too_long() {
    let gateway = start();
    let operator = Operator::of(&gateway);
    let plain = format!("POST {BAN} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}");
    let (status, problem) = operator.send(&plain);
    assert_eq!(status, 415, "{problem}");
    let head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999";
    let (status, problem) = operator.send(&format!("POST {BAN} HTTP/1.1\r\n{head}\r\n\r\n"));
    assert_eq!(status, 413, "{problem}");
}

#[test]
fn without_the_token_nothing_is_shown_or_done() {
    // A server for every few of them: after ten wrong tokens it does not look at more.
    for requests in GUARDED.chunks(3) {
        check_token(requests);
    }
}

const GUARDED: [(&str, &str); 12] = [
    ("GET", "/v1/accounts"),
    ("GET", "/v1/accounts/ip:127.0.0.1"),
    ("GET", "/v1/accounts/ip:127.0.0.1/density"),
    ("GET", "/v1/accounts/ip:127.0.0.1/audit"),
    ("GET", "/v1/policies"),
    ("POST", "/v1/explain"),
    ("POST", "/v1/accounts/ip:127.0.0.1/ban"),
    ("POST", "/v1/accounts/ip:127.0.0.1/exempt"),
    ("POST", "/v1/accounts/ip:127.0.0.1/grant"),
    ("POST", "/v1/accounts/ip:127.0.0.1/reset"),
    ("GET", "/v1/overrides"),
    ("DELETE", "/v1/overrides/1"),
];

fn check_token(requests: &[(&str, &str)]) {
    let options = options().variable("SLIDEGATE_ADMIN_TOKEN", "hunter2hunter2");
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("api", "10/h", "").start_with(options);
    let operator = Operator::of(&gateway);
    let body = "{\"reason\":\"x\",\"for\":\"1h\"}";
    let show = |token: &str, method: &str, path: &str| {
        let headers = "Host: slidegate.example\r\nContent-Type: application/json";
        let length = format!("Content-Length: {}", body.len());
        operator.send(&format!(
            "{method} {path} HTTP/1.1\r\n{headers}\r\n{length}\r\n{token}\r\n{body}"
        ))
    };
    for (method, path) in requests {
        for token in [
            "",
            "Authorization: Bearer hunter2hunter\r\n",
            "Authorization: Bearer hunter2hunter2x\r\n",
            "Authorization: Bearer \r\n",
            "Authorization: Basic hunter2hunter2\r\n",
        ] {
            let (status, problem) = show(token, method, path);
            assert_eq!(
                (status, &problem["status"]),
                (401, &Value::from(401)),
                "{method} {path} {token}"
            );
        }
    }
    assert_eq!(gateway.status("/"), 200, "no identity was banned");
    let (status, list) = show("Authorization: Bearer hunter2hunter2\r\n", "GET", "/v1/overrides");
    assert_eq!((status, list["overrides"].as_array().unwrap().len()), (200, 0));
    let (status, taken) =
        show("Authorization: Bearer hunter2hunter2\r\n", "POST", "/v1/accounts/ip:127.0.0.1/ban");
    assert_eq!(status, 200, "{taken}");
    assert_eq!(gateway.status("/"), 403);
}

#[test]
fn an_endpoint_that_others_can_reach_needs_a_token() {
    let text = |listen: &str| {
        format!("[decisions]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = {listen:?}\n")
    };
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let refused = options().configuration(&text(listen)).spawn();
        assert_eq!(refused.wait(), Some(1), "{}", refused.output());
        let said = refused.output();
        assert!(
            said.contains(&format!("admin.listen = \"{listen}\": reachable from other hosts")),
            "{said}"
        );
        assert!(said.contains("SLIDEGATE_ADMIN_TOKEN"), "{said}");
    }
    let with = options()
        .variable("SLIDEGATE_ADMIN_TOKEN", "hunter2hunter2hunter2")
        .configuration(&text("0.0.0.0:0"));
    let gateway = Gateway::from(with.start());
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], gateway.admin().port()));
    let mut wire = Wire::connect(local);
    assert_eq!(wire.get("/v1/overrides", "").status(), 401);
    assert_eq!(
        wire.get("/v1/overrides", "Authorization: Bearer hunter2hunter2hunter2\r\n").status(),
        200
    );
}

#[test]
fn without_a_token_a_web_page_with_another_host_name_is_refused() {
    let gateway = start();
    let operator = Operator::of(&gateway);
    for (host, status) in [
        ("evil.example", 403),
        ("evil.example:9090", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("a b", 403),
        ("127.0.0.1", 200),
        ("127.0.0.1:9090", 200),
        ("[::1]:9090", 200),
        ("localhost:9090", 200),
        ("LocalHost", 200),
    ] {
        let (answered, said) =
            operator.send(&format!("GET /v1/overrides HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answered, status, "{host}: {said}");
    }
}

#[test]
fn no_listener_for_clients_has_the_operators_pages() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).tables("[decisions]\nlisten = \"127.0.0.1:0\"").start();
    for path in ["/v1/accounts", "/v1/accounts/ip:127.0.0.1", "/v1/overrides"] {
        assert_eq!(gateway.get(path, "").text(), "ok", "that is upstream's");
        let decisions = gateway.address("decisions");
        let mut wire = Wire::connect(decisions);
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(wire.response().status(), 404);
    }
    assert_eq!(upstream.received().len(), 3);
}
