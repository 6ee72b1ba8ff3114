//! What the dashboard is made of and asks for, without a browser.

use serde_json::{Value, json};
use slidegate_testbed::{Directory, Gateway, Message, Upstream, Wire, wait_until};

use crate::terminal::{Operator, for_many_clients, passing};
use crate::{configure, options};

const PAGE: &str = "Accept: text/html,application/xhtml+xml\r\n";

fn admin(gateway: &Gateway, path: &str, headers: &str) -> Message {
    admin_at("localhost", gateway, path, headers)
}

fn admin_at(host: &str, gateway: &Gateway, path: &str, headers: &str) -> Message {
    let mut wire = Wire::connect(gateway.admin());
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"));
    wire.response()
}

#[test]
fn browsers_get_a_page_that_needs_nothing_from_elsewhere_and_curl_gets_the_index() {
    let gateway = configure(&Upstream::simple()).start();
    assert!(admin(&gateway, "/", "Accept: */*\r\n").text().contains("GET    /v1/policies"));
    let page = admin(&gateway, "/", PAGE);
    let html = page.text();
    assert!(html.starts_with("<!doctype html>"), "{html}");
    let mut names: Vec<String> =
        html.split("dashboard/").skip(1).map(|rest| until_quote(rest).to_owned()).collect();
    let mut files = vec![("text/html; charset=utf-8", page)];
    let mut seen = 0;
    while let Some(name) = names.get(seen).cloned() {
        seen += 1;
        let file = admin(&gateway, &format!("/dashboard/{name}"), "");
        let kind = match name.rsplit_once('.').unwrap().1 {
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        };
        let text = file.text();
        let imports = text.split("from \"./").skip(1).map(|rest| until_quote(rest).to_owned());
        let new: Vec<String> = imports.filter(|name| !names.contains(name)).collect();
        names.extend(new);
        files.push((kind, file));
    }
    assert!(files.len() > 10, "{names:?}");
    for (kind, file) in &files {
        assert_eq!((file.status(), file.value("content-type").as_deref()), (200, Some(*kind)));
        let policy = file.value("content-security-policy").unwrap();
        assert_eq!(
            policy,
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        assert_eq!(file.value("x-content-type-options").as_deref(), Some("nosniff"));
        assert_eq!(file.value("referrer-policy").as_deref(), Some("no-referrer"));
        assert_eq!(file.value("cache-control").as_deref(), Some("no-store"));
        let text = file.text().replace("http://www.w3.org/2000/svg", "");
        for word in
            ["http:", "https:", "innerHTML", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }
    assert_eq!(admin(&gateway, "/dashboard/other.js", "").status(), 404);
}

fn until_quote(text: &str) -> &str {
    text.split('"').next().unwrap()
}

#[test]
fn without_a_token_the_page_is_for_this_machine_only() {
    let gateway = configure(&Upstream::simple()).start();
    let status = |gateway: &Gateway, host: &str| admin_at(host, gateway, "/", PAGE).status();
    assert_eq!(
        ["localhost:9090", "127.0.0.1", "evil.example"].map(|h| status(&gateway, h)),
        [200, 200, 403]
    );
    let guarded = options().variable("SLIDEGATE_ADMIN_TOKEN", "hunter2hunter2");
    let guarded = configure(&Upstream::simple()).start_with(guarded);
    assert_eq!(
        status(&guarded, "slidegate.example"),
        200,
        "it has no data, and asks for the token"
    );
    assert_eq!(admin(&guarded, "/v1/now", "").status(), 401);
}

#[test]
fn another_sites_page_changes_nothing() {
    let gateway = configure(&Upstream::simple()).policy("api", "10/h", "").start();
    let operator = Operator::of(&gateway);
    let own = format!("http://{}", gateway.admin());
    let body = "{\"reason\":\"x\",\"for\":\"1h\"}";
    let ban = |headers: &str| {
        operator.send(&format!(
            "POST /v1/accounts/ip:10.0.0.9/ban HTTP/1.1\r\nHost: {}\r\n{headers}\
             Content-Length: {}\r\n\r\n{body}",
            gateway.admin(),
            body.len()
        ))
    };
    let json = "Content-Type: application/json\r\n";
    for (headers, status) in [
        (format!("{json}Origin: https://evil.example\r\n"), 403),
        (format!("{json}Origin: http://127.0.0.1:1\r\n"), 403),
        (format!("{json}Origin: null\r\n"), 403),
        (format!("{json}Origin: {own}\r\nOrigin: {own}\r\n"), 403),
        (format!("{json}Sec-Fetch-Site: cross-site\r\n"), 403),
        (format!("{json}Sec-Fetch-Site: same-site\r\n"), 403),
        (format!("{json}Origin: https://evil.example\r\nSec-Fetch-Site: same-origin\r\n"), 403),
        (format!("Content-Type: text/plain\r\nOrigin: {own}\r\n"), 415),
    ] {
        let (answered, problem) = ban(&headers);
        assert_eq!(answered, status, "{headers}: {problem}");
    }
    assert_eq!(operator.overrides(), [""; 0]);
    for headers in [
        json.to_owned(),
        format!("{json}Origin: {own}\r\nSec-Fetch-Site: same-origin\r\n"),
        format!("{json}Origin: https://{}\r\n", gateway.admin()),
    ] {
        let (answered, said) = ban(&headers);
        assert_eq!(answered, 200, "{headers}: {said}");
    }
    let read = admin(&gateway, "/v1/overrides", "Origin: https://evil.example\r\n");
    assert_eq!(read.value("access-control-allow-origin"), None, "its browser does not show it");
}

#[test]
fn policies_are_listed_as_they_are_configured_with_what_they_decided() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream)
        .tables("[plans.free]\nquotas = [\"3/h\"]\n[plans.pro]\nquotas = [\"9/h\", \"99/d\"]")
        .policy("api", "", "plan = { header = \"x-plan\", default = \"free\" }")
        .policy(
            "login",
            "5/min",
            "match = { method = \"POST\", path = \"/login\" }\ncount_denied = true\n\
             on_store_error = \"deny\"\nban = { after = \"20/min\", for = \"10min\" }",
        )
        .policy("trial", "1/h", "shadow = true")
        .policy("tighter", "9/h", "candidate = { quotas = [\"4/h\"] }")
        .start();
    assert_eq!(passing(&gateway, "10.0.0.1", 5), 3);
    let (status, list) = Operator::of(&gateway).ask("GET", "/v1/policies", "");
    assert_eq!(status, 200, "{list}");
    let [api, login, trial, tighter] = &list["policies"].as_array().unwrap()[..] else {
        panic!("{list}")
    };
    assert_eq!(api["plans"], json!({"default": "free", "header": "x-plan"}));
    assert_eq!((&api["quotas"], &api["identity"]), (&json!([]), &json!(["ip"])));
    let decided = |allowed, refused, shadow| json!({"allowed": allowed, "refused": refused, "shadow": shadow, "failed": 0});
    assert_eq!((&api["decided"], &trial["decided"]), (&decided(3, 2, 0), &decided(1, 0, 4)));
    assert_eq!((&login["methods"], &login["paths"]), (&json!(["POST"]), &json!(["/login"])));
    assert_eq!(login["ban"], json!({"after": "20/min", "for": "10min"}));
    assert_eq!((&login["on_store_error"], &login["count_denied"]), (&json!("deny"), &json!(true)));
    assert_eq!((&login["scope"], &trial["shadow"]), (&json!("shared"), &json!(true)));
    assert_eq!(tighter["candidate"], json!(["4/h"]));
    assert_eq!(tighter["decided"]["candidate"], 0, "two of the five were refused and took nothing");
    assert_eq!(list["plans"][1], json!({"plan": "pro", "quotas": ["9/h", "99/day"]}));
}

#[test]
fn a_described_request_is_explained_and_spends_nothing() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream)
        .policy("api", "2/h", "")
        .policy("login", "5/min", "match = { method = \"POST\" }")
        .start();
    let operator = Operator::of(&gateway);
    let explain = |body: Value| operator.ask("POST", "/v1/explain", &body.to_string());
    let request = json!({"path": "/x?y", "client": "10.0.0.1"});
    for _ in 0..9 {
        let (status, said) = explain(request.clone());
        assert_eq!((status, &said["decision"]["verdict"]), (200, &json!("allow")), "{said}");
    }
    assert_eq!(passing(&gateway, "10.0.0.1", 3), 2, "nothing was spent");
    let (_, said) = explain(request);
    let decision = &said["decision"];
    assert_eq!((&decision["verdict"], &decision["status"]), (&json!("deny"), &json!(429)));
    assert_eq!(decision["standings"][0]["remaining"], 0);
    assert_eq!(said["client"], "10.0.0.1, as given");
    assert_eq!(said["policies"][0]["identity"], "ip:10.0.0.1");
    assert_eq!(
        said["policies"][1],
        json!({"policy": "login", "effect": "not for this method, only POST"})
    );
    let headers = json!({"x-forwarded-for": "10.0.0.7"});
    let (_, said) = explain(json!({"peer": "127.0.0.1", "headers": headers}));
    assert_eq!(said["client"], "10.0.0.7, by x-forwarded-for of the trusted proxy 127.0.0.1");
    let (_, said) = explain(json!({"method": "post", "path": "/"}));
    assert_eq!(said["decision"]["reason"], "bad-request", "{said}");
    let (_, said) = explain(json!({"path": "x"}));
    assert_eq!(said["decision"]["reason"], "bad-request", "{said}");
    for (body, expected) in [
        (json!({"client": "nowhere"}), "client: invalid IP address syntax"),
        (json!({"cost": 0}), "cost: invalid value: integer `0`, expected a nonzero u32"),
        (json!([]), "expected an object, not a list"),
        (json!({"x": 1}), "x: unknown field `x`"),
    ] {
        let (status, problem) = explain(body);
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == 400 && detail.contains(expected), "{status}: {detail}");
    }
}

#[test]
fn an_identitys_records_are_read_from_the_audit_trail() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("audit.jsonl");
    let gateway = for_many_clients(&upstream)
        .policy("api", "2/h", "")
        .tables(&format!("[audit]\nfile = {file:?}\nrotate_bytes = 4096\nkeep = 2"))
        .start();
    let operator = Operator::of(&gateway);
    let audit = |identity: &str| {
        let (status, said) = operator.ask("GET", &format!("/v1/accounts/{identity}/audit"), "");
        assert_eq!((status, &said["audited"]), (200, &json!(true)), "{said}");
        said["lines"].as_array().unwrap().clone()
    };
    passing(&gateway, "10.0.0.1", 3);
    passing(&gateway, "10.0.0.11", 20);
    operator.run(&["ban", "10.0.0.1", "--for", "1h", "--reason", "a \"test\""]);
    passing(&gateway, "10.0.0.1", 1);
    wait_until("the lines", || audit("ip:10.0.0.1").len() == 3);
    let lines = audit("ip:10.0.0.1");
    let values =
        |field: &str| -> Vec<Value> { lines.iter().map(|line| line[field].clone()).collect() };
    assert_eq!(values("event"), [json!("decision"), json!("operator"), json!("decision")]);
    assert_eq!(values("verdict"), [json!("block"), Value::Null, json!("deny")]);
    assert_eq!(lines[1]["reason"], "a \"test\"");
    assert!(directory.file("audit.jsonl.1").exists(), "the denial is in the file that was full");
    assert_eq!(audit("ip:10.0.0.11").len(), 18);
    assert_eq!(audit("ip:10.0.0.12").len(), 0);

    let without = configure(&upstream).start();
    let (_, said) = Operator::of(&without).ask("GET", "/v1/accounts/ip:10.0.0.1/audit", "");
    assert_eq!(said, json!({"identity": "ip:10.0.0.1", "audited": false, "lines": []}));
}

#[test]
fn pages_that_poll_share_a_list() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream).policy("api", "2/h", "").start();
    let operator = Operator::of(&gateway);
    let accounts = |query: &str| {
        let (_, list) = operator.ask("GET", &format!("/v1/accounts?limit=9{query}"), "");
        list["accounts"].as_array().unwrap().len()
    };
    passing(&gateway, "10.0.0.1", 2);
    assert_eq!(accounts("&max_age_ms=10000"), 1);
    passing(&gateway, "10.0.0.2", 2);
    assert_eq!(accounts("&max_age_ms=10000"), 1, "the same");
    assert_eq!(accounts(""), 2, "a new one");
    assert_eq!(accounts("&max_age_ms=0"), 2, "a new one");
}
