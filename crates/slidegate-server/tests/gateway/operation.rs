//! Metrics, health and logs.

use std::thread;
use std::time::Duration;

use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::prometheus::parse_prometheus;
use slidegate_testbed::http1::response;
use slidegate_testbed::{RedisServer, Upstream, Wire, wait_until};

use crate::{configure, options};

#[test]
fn a_third_partys_parser_reads_the_metrics() {
    let upstream = Upstream::answering(|request| match request.target() {
        "/bad" => response("500 Internal Server Error", "", ""),
        _ => response("200 OK", "", "ok"),
    });
    let gateway = configure(&upstream).policy("api", "3/min", "").start();
    let before = gateway.metrics();
    for path in ["/", "/bad", "/", "/", "/"] {
        gateway.get(path, "");
    }
    let page = gateway.admin_page("/metrics");
    let content_type = page.value("content-type").unwrap();
    assert!(content_type.starts_with("text/plain; version=0.0.4"), "{content_type}");
    for text in [&before, &page.text()] {
        parse_prometheus(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2\r\n";
    let openmetrics = Wire::connect(gateway.admin()).get("/metrics", accept);
    let content_type = openmetrics.value("content-type").unwrap();
    assert!(content_type.starts_with("application/openmetrics-text;"), "{content_type}");
    parse_openmetrics(&openmetrics.text())
        .unwrap_or_else(|error| panic!("{error}\n{}", openmetrics.text()));
    for (name, label, expected) in [
        ("rate_limit_exceeded_total", "policy=\"api\"", 2.0),
        ("rate_limit_remaining", "policy=\"api\"", 0.0),
        ("slidegate_upstream_responses_total", "class=\"2xx\"", 2.0),
        ("slidegate_upstream_responses_total", "class=\"5xx\"", 1.0),
    ] {
        assert_eq!(gateway.metric(name, label), expected, "{name}\n{}", page.text());
    }
    let reset = gateway.metric("rate_limit_reset_seconds", "policy=\"api\"");
    assert!(reset > 0.0 && reset <= 60.0, "{reset}");
    for line in page.text().lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(page.text().contains(&format!("# HELP {name} ")), "no help for {name}");
    }
}

#[test]
fn a_slow_question_is_a_slow_response_and_no_slow_decision() {
    let upstream = Upstream::simple();
    let decisions = "[decisions]\nlisten = \"127.0.0.1:0\"";
    let gateway = configure(&upstream).tables(decisions).policy("api", "3/min", "").start();
    let question = r#"{"method":"GET","path":"/","client":"203.0.113.7"}"#;
    let mut wire = Wire::connect(gateway.address("decisions"));
    wire.send(format!(
        "POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        question.len()
    ));
    thread::sleep(Duration::from_millis(500));
    wire.send(question);
    assert_eq!(wire.response().status(), 200);
    let seconds =
        |name: &str| gateway.metric(&format!("slidegate_{name}_seconds_sum"), "decisions");
    let (response, decision) = (seconds("response"), seconds("decision"));
    assert!((0.25..5.0).contains(&response), "{response}");
    assert!(decision > 0.0 && decision < 0.25, "{decision}");
}

#[test]
fn labels_do_not_grow_with_what_clients_send() {
    let upstream = Upstream::simple();
    let gateway =
        configure(&upstream).policy("api", "1000/min", "identity = [\"api-key\", \"ip\"]").start();
    gateway.get("/", "");
    let before = gateway.metrics().lines().count();
    for n in 0..50 {
        let mut wire = gateway.wire();
        wire.send(format!("M{n} /p{n} HTTP/1.1\r\nHost: h{n}\r\nX-API-Key: k{n}\r\n\r\n"));
        wire.response();
    }
    let after = gateway.metrics().lines().count();
    assert!(after <= before + 5, "from {before} to {after} lines");
}

const PLANS: &str = "[plans.free]\nquotas = \"100/min\"\n[plans.pro]\nquotas = \"600/min\"\n\
                     [decisions]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n";

#[test]
fn an_unknown_plan_is_counted_logged_and_reported() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.1\"]")
        .tables(PLANS)
        .policy("api", "", "plan = { header = \"x-plan\", default = \"free\" }")
        .policy("login", "1000/min", "match = { path = \"/login\" }")
        .start();
    let limit = |plan: &str| gateway.get("/login", plan).value("x-ratelimit-limit").unwrap();
    let unknown = || gateway.metric("slidegate_unknown_plans_total", "policy=\"api\"");
    for known in ["", "X-Plan: pro\r\n", "X-Plan: free\r\n", "X-Plan:\r\n"] {
        limit(known);
    }
    assert_eq!(unknown(), 0.0, "{}", gateway.output());
    assert_eq!(gateway.output().matches("unknown plan").count(), 0);
    for plan in ["gold", "Pro", "pro ,", "\u{fc}", &"x".repeat(5000)] {
        assert_eq!(limit(&format!("X-Plan: {plan}\r\n")), "100", "{plan}");
    }
    assert_eq!(unknown(), 5.0);
    let labels = gateway.metrics();
    assert!(!labels.contains("gold") && labels.contains("slidegate_unknown_plans_total"));

    let decide = |question: &str, query: &str| {
        let head = "Host: localhost\r\nContent-Type: application/json";
        let length = question.len();
        let mut wire = Wire::connect(gateway.address("decisions"));
        wire.send(format!(
            "POST /v1/decide{query} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{question}"
        ));
        let answer: serde_json::Value = serde_json::from_slice(&wire.response().body).unwrap();
        answer["standings"][0].clone()
    };
    let answer = decide("{\"path\":\"/\",\"user\":\"42\",\"plan\":\"gold\"}", "");
    assert_eq!(
        (&answer["plan"], &answer["plan_unknown"]),
        (&"free".into(), &true.into()),
        "{answer}"
    );
    let charge = "{\"charges\":[{\"policy\":\"api\",\"identity\":\"user:42\",\"plan\":\"gold\"}]}";
    assert_eq!(decide(charge, "")["plan_unknown"], true);
    assert_eq!(unknown(), 7.0);
    assert_eq!(decide(charge, "?peek=true")["plan_unknown"], true);
    assert_eq!(unknown(), 7.0, "a peek is not a request");
    let known = decide("{\"path\":\"/\",\"user\":\"42\",\"plan\":\"pro\"}", "");
    assert_eq!((&known["plan"], &known["plan_unknown"]), (&"pro".into(), &().into()), "{known}");

    wait_until("a line", || gateway.output().contains("unknown plan"));
    let output = gateway.output();
    let lines: Vec<&str> = output.lines().filter(|line| line.contains("unknown plan")).collect();
    assert_eq!(lines.len(), 1, "limited: {lines:?}");
    let line: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    let fields = ["level", "policy", "plan", "default"].map(|field| line[field].clone());
    assert_eq!(fields, ["WARN", "api", "gold", "free"].map(serde_json::Value::from));
}

#[test]
fn admin_pages_are_on_the_admin_listener_only() {
    let upstream = Upstream::answering(|_| response("200 OK", "", "upstream's own"));
    let gateway = configure(&upstream).start();
    for path in ["/metrics", "/healthz", "/readyz", "/"] {
        assert_eq!(gateway.get(path, "").text(), "upstream's own", "{path}");
    }
    for path in ["/metrics", "/healthz", "/readyz"] {
        let page = gateway.admin_page(path);
        assert_eq!(page.status(), 200, "{path}");
        assert!(!page.text().contains("upstream's own"), "{path}");
        assert!(page.values("ratelimit").is_empty(), "{path} is not limited");
    }
    assert_eq!(gateway.admin_page("/nothing").status(), 404);
    assert_eq!(upstream.received().len(), 4);
}

#[test]
fn metrics_need_the_token_if_there_is_one() {
    let options = options().variable("SLIDEGATE_ADMIN_TOKEN", "hunter2");
    let gateway = configure(&Upstream::simple()).start_with(options);
    let refused = gateway.admin_page("/metrics");
    assert_eq!(refused.problem(), 401);
    assert_eq!(refused.value("www-authenticate").as_deref(), Some("Bearer"));
    let mut wire = Wire::connect(gateway.admin());
    assert_eq!(wire.get("/metrics", "Authorization: Bearer hunter\r\n").problem(), 401);
    let page = wire.get("/metrics", "Authorization: Bearer hunter2\r\n");
    assert_eq!(page.status(), 200);
    assert!(page.text().contains("slidegate_requests_total"));
    for path in ["/", "/healthz", "/readyz"] {
        assert_eq!(gateway.admin_page(path).status(), 200, "{path}");
    }
    assert!(!gateway.output().contains("hunter2"));
}

#[test]
fn denials_are_logged_but_an_attacker_cannot_flood_the_log() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"127.0.0.1\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .policy("api", "1/min", "")
        .tables("[log]\nformat = \"json\"")
        .start();
    let mut wire = gateway.wire();
    for n in 0..1000 {
        let client = format!("X-Forwarded-For: 203.0.{}.{}\r\n", n % 4, n % 50);
        wire.get("/secret-path?token=hunter2", &client);
    }
    let lines = || -> Vec<serde_json::Value> {
        let output = gateway.output();
        let lines = output.lines().filter(|line| line.contains("limit exceeded"));
        lines.map(|line| serde_json::from_str(line).expect("a line is one JSON object")).collect()
    };
    wait_until("a line about it", || !lines().is_empty());
    let lines = lines();
    assert!(lines.len() <= 100, "{} lines for 900 denials", lines.len());
    let text = lines[0].to_string();
    for part in ["\"api\"", "203.0.", "\"units\":1", "window_s"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(gateway.metric("slidegate_denial_log_left_out_total", "") > 0.0);
    assert!(!gateway.output().contains("hunter2"), "a query may have secrets");
}

#[test]
fn every_request_has_a_line_in_the_access_log_if_wanted() {
    let upstream = Upstream::simple();
    for (access, lines) in [("true", 5), ("false", 0)] {
        let gateway = configure(&upstream)
            .tables(&format!("[log]\nformat = \"json\"\naccess = {access}"))
            .policy("api", "3/min", "")
            .start();
        (0..5).for_each(|_| drop(gateway.get("/some/path?token=hunter2", "")));
        let logged = || {
            gateway
                .output()
                .lines()
                .filter(|line| line.contains("/some/path\"") && line.contains("slidegate::access"))
                .count()
        };
        if lines > 0 {
            wait_until("the lines", || logged() == lines);
        }
        assert_eq!(logged(), lines);
        assert!(!gateway.output().contains("hunter2"));
    }
}

#[test]
fn figures_in_the_log_have_three_decimals_at_most() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .tables("[log]\nformat = \"json\"\naccess = true")
        .policy("api", "1/61333ms", "")
        .start();
    (0..50).for_each(|_| drop(gateway.get("/", "")));
    let figures = || -> Vec<(String, f64)> {
        let output = gateway.output();
        let lines = output.lines().filter_map(|line| serde_json::from_str(line).ok());
        let of = |line: serde_json::Value| {
            ["duration_ms", "window_s", "retry_after_s"]
                .into_iter()
                .filter_map(move |name| Some((name.to_owned(), line[name].as_f64()?)))
        };
        lines.flat_map(of).collect()
    };
    wait_until("the lines", || figures().len() == 52);
    for (name, figure) in figures() {
        let decimals = figure.to_string().split_once('.').map_or(0, |(_, decimals)| decimals.len());
        assert!(decimals <= 3, "{name}: {figure}");
    }
    assert!(figures().contains(&("window_s".to_owned(), 61.333)), "{:?}", figures());
}

#[test]
fn no_secret_is_in_logs_metrics_or_responses() {
    let redis = RedisServer::options().password("hunter2hunter2").start();
    let upstream = Upstream::simple();
    let setup = configure(&upstream)
        .tables("[log]\nformat = \"json\"\nlevel = \"trace\"\naccess = true")
        .tables("[plans.pro]\nquotas = [\"2/min\"]\n[[api_key]]\nkey = \"sk-secret-one\"\nplan = \"pro\"")
        .policy("api", "", "identity = [\"api-key\", \"authorization\", \"ip\"]\nplan = { default = \"pro\" }")
        .tables(&format!("[store]\nkind = \"redis\"\nurl = {:?}", redis.url()));
    let gateway = setup.start();
    let headers = [
        "X-API-Key: sk-secret-one\r\n",
        "X-API-Key: sk-secret-two\r\n",
        "Authorization: Bearer sk-secret-three\r\n",
    ];
    let mut texts = String::new();
    for header in headers {
        for _ in 0..4 {
            let answer = gateway.get("/?key=sk-secret-four", header);
            texts += &format!("{}{}", answer.head, answer.text());
        }
    }
    redis.kill();
    for header in headers {
        let answer = gateway.get("/", header);
        texts += &format!("{}{}", answer.head, answer.text());
    }
    gateway.reconfigure("[store]\nkind = \"redis\"\nurl = \"redis://:hunter2hunter2@\"\n[[api_key]]\nkey = [\"sk-secret-one\"]\nplan = 3\n");
    gateway.signal("HUP");
    wait_until("the failure", || gateway.metric("slidegate_config_reloads_total", "failed") >= 1.0);
    for path in ["/metrics", "/healthz", "/readyz", "/"] {
        texts += &gateway.admin_page(path).text();
    }
    gateway.signal("TERM");
    let _ = gateway.wait();
    texts += &gateway.output();
    for secret in ["hunter2", "sk-secret"] {
        let line = texts.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
    let failed = options()
        .configuration("[store]\nkind = \"redis\"\nurl = \"redis://:hunter2hunter2@\"\n")
        .spawn();
    let code = failed.wait();
    assert!(code.is_some_and(|code| code != 0), "{code:?}: {}", failed.output());
    assert!(!failed.output().contains("hunter2"), "{}", failed.output());
}

#[test]
fn readiness_fails_while_a_server_drains() {
    let upstream = Upstream::raw(|wire| {
        let _ = wire.rest();
    });
    let gateway = configure(&upstream).timeouts("drain = \"10s\"").start();
    assert_eq!(gateway.admin_page("/readyz").status(), 200);
    let mut busy = gateway.wire();
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it to be in flight", || upstream.connections() == 1);
    gateway.signal("TERM");
    wait_until("it to say so", || {
        let wire = Wire::try_connect(gateway.admin());
        wire.is_ok_and(|mut wire| {
            let _ = wire.try_send("GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            wire.response_to("GET").is_ok_and(|answer| answer.status() == 503)
        })
    });
}
