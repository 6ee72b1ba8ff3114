//! Every format, found and named.

use serde_json::Value;
use slidegate::Identity;

use super::{Files, ONE_A_MINUTE};

const CLIENT: &str = "ip:203.0.113.7";

/// Two requests of one client: `GET /a`, and a second later `POST /b?x=1`.
const LOGS: [(&str, &str); 9] = [
    (
        "combined",
        r#"203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 2326 "-" "Mozilla/5.0 (\"X11\")"
203.0.113.7 - - [10/Oct/2026:15:55:37 +0200] "POST /b?x=1 HTTP/2.0" 201 5 "https://a.example/?q=\x22" "-"
"#,
    ),
    (
        "common",
        r#"203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 2326
203.0.113.7 - - [10/Oct/2026:13:55:37 +0000] "POST /b?x=1 HTTP/1.1" 201 5
"#,
    ),
    (
        "traefik",
        r#"203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 2326 "-" "curl/8.5" 1 "web@docker" "http://172.18.0.3:80" 3ms
203.0.113.7 - - [10/Oct/2026:13:55:37 +0000] "POST /b?x=1 HTTP/1.1" 201 5 "-" "curl/8.5" 2 "web@docker" "http://172.18.0.3:80" 1ms
"#,
    ),
    (
        "caddy",
        r#"{"level":"info","ts":1791640500.1,"logger":"admin","msg":"admin endpoint started"}
{"level":"info","ts":1791640536.123,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"203.0.113.7","remote_port":"50412","client_ip":"203.0.113.7","proto":"HTTP/2.0","method":"GET","host":"example.com","uri":"/a","headers":{"User-Agent":["curl/8.5"],"Authorization":["REDACTED"]}},"bytes_read":0,"user_id":"","duration":0.0012,"size":10,"status":200}
{"level":"info","ts":1791640537.123,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"203.0.113.7","remote_port":"50413","proto":"HTTP/2.0","method":"POST","host":"example.com","uri":"/b?x=1","headers":{"User-Agent":["curl/8.5"]}},"bytes_read":0,"user_id":"","duration":0.0012,"size":10,"status":200}
"#,
    ),
    (
        "traefik-json",
        r#"{"ClientAddr":"203.0.113.7:50412","ClientHost":"203.0.113.7","ClientUsername":"-","DownstreamStatus":200,"RequestMethod":"GET","RequestPath":"/a","RequestProtocol":"HTTP/1.1","StartUTC":"2026-10-10T13:55:36.123456789Z","level":"info","msg":"","time":"2026-10-10T13:55:36Z"}
{"ClientAddr":"203.0.113.7:50413","ClientHost":"203.0.113.7","ClientUsername":"-","DownstreamStatus":200,"RequestMethod":"POST","RequestPath":"/b?x=1","RequestProtocol":"HTTP/1.1","StartUTC":"2026-10-10T13:55:37.123456789Z","level":"info","msg":"","time":"2026-10-10T13:55:37Z"}
"#,
    ),
    (
        "envoy",
        r#"[2026-10-10T13:55:36.123Z] "GET /a HTTP/1.1" 200 - 0 2326 3 2 "198.51.100.1,203.0.113.7" "curl/8.5" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "example.com" "10.0.0.5:80"
[2026-10-10T13:55:37.123Z] "POST /b?x=1 HTTP/2" 200 - 0 2326 3 - "203.0.113.7" "curl/8.5" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd3" "example.com" "10.0.0.5:80"
"#,
    ),
    (
        "alb",
        r#"https 2026-10-10T13:55:36.200000Z app/lb/50dc6c495c0c9188 203.0.113.7:2817 10.0.0.1:80 0.001 0.048 0.000 200 200 34 366 "GET https://www.example.com:443/a HTTP/1.1" "curl/8.5" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/t/73e2d6bc24d8a067 "Root=1-58337262-36d228ad5d99923122bbe354" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/1" 1 2026-10-10T13:55:36.150000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-"
h2 2026-10-10T13:55:37.200000Z app/lb/50dc6c495c0c9188 203.0.113.7:2818 10.0.0.1:80 0.001 0.048 0.000 200 200 34 366 "POST https://www.example.com:443/b?x=1 HTTP/2.0" "curl/8.5" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/t/73e2d6bc24d8a067 "Root=1-58337262-36d228ad5d99923122bbe355" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/1" 1 2026-10-10T13:55:37.150000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"
"#,
    ),
    (
        "slidegate",
        r#"{"timestamp":"2026-10-10T13:55:30.000000Z","level":"INFO","message":"configuration reloaded","target":"slidegate::reload"}
{"timestamp":"2026-10-10T13:55:36.123456Z","level":"INFO","listener":"gateway","method":"GET","path":"/a","status":200,"client":"203.0.113.7","duration_ms":1.2,"verdict":"allowed","policy":"api","target":"slidegate::access"}
{"timestamp":"2026-10-10T13:55:37.123456Z","level":"INFO","listener":"gateway","method":"POST","path":"/b","status":429,"client":"203.0.113.7","duration_ms":0.1,"verdict":"denied","policy":"api","target":"slidegate::access"}
"#,
    ),
    (
        "csv",
        "Timestamp,Client IP,Method,URI,note\n\
         2026-10-10 13:55:36,203.0.113.7,GET,/a,\"two, words\"\n\
         1791640537.5,203.0.113.7:99,POST,\"/b?x=1\",\n",
    ),
];

#[test]
fn every_format_that_has_a_status_tells_it() {
    let counted = "count = { status = [500] }\n";
    let files = Files::with_config(&format!("{ONE_A_MINUTE}{counted}"));
    for (name, log) in LOGS.iter().filter(|(name, _)| *name != "csv") {
        files.write("access.log", log);
        let report = files.json(&["access.log"]);
        assert_eq!((&report["refused"], &report["requests"]), (&0.into(), &2.into()), "{name}");
        assert_eq!(report["policies"][0]["requests_without_status"], 0, "{name}: {report}");
    }
    files.write("requests.csv", LOGS[8].1);
    let report = files.json(&["requests.csv"]);
    assert_eq!(report["policies"][0]["requests_without_status"], 2, "{report}");
    files.write("requests.csv", LOGS[8].1.replace("note", "Status").replace(",\n", ",500\n"));
    let report = files.json(&["requests.csv"]);
    assert_eq!(report["policies"][0]["requests_without_status"], 1, "{report}");
}

#[track_caller]
fn check(report: &Value, identity: &str) {
    assert_eq!(report["requests"], 2, "{report}");
    assert_eq!(report["bad_lines"], 0, "{report}");
    let api = &report["policies"][0];
    assert_eq!(api["refused"], 1, "{report}");
    assert_eq!(api["most_refused"][0]["identity"], identity);
}

#[test]
fn every_format_is_found_and_can_be_named() {
    let files = Files::with_config(ONE_A_MINUTE);
    for (format, log) in LOGS {
        files.write("access.log", log);
        let found = files.json(&["access.log"]);
        check(&found, CLIENT);
        assert_eq!(found["first"].as_str().unwrap()[..19], *"2026-10-10T13:55:36", "{format}");
        assert_eq!(found["last"].as_str().unwrap()[..19], *"2026-10-10T13:55:37", "{format}");
        let named = files.json(&["--format", format, "access.log"]);
        assert_eq!(named, found, "{format}");
    }
}

/// Policies see the method and the path, as if the request came.
#[test]
fn methods_and_paths_are_those_of_the_log() {
    let files = Files::with_config(
        "[[policy]]\nname = \"b\"\nmatch = { method = \"POST\", path = \"/b\" }\nquotas = [\"9/min\"]\n",
    );
    for (format, log) in LOGS {
        files.write("access.log", log);
        let report = files.json(&["access.log"]);
        assert_eq!(report["policies"][0]["requests"], 1, "{format}: {report}");
        assert_eq!(report["requests"], 2);
    }
}

const PLANS: &str = r#"
[plans.free]
quotas = ["1/min"]
[plans.pro]
quotas = ["100/min"]

[[policy]]
name = "api"
identity = ["api-key", "user", "header:x-tenant", "ip"]
plan = { header = "x-plan", default = "free" }
"#;

/// The identities that are refused, and the plans that there are.
fn seen(report: &Value) -> (Vec<&str>, Vec<&str>) {
    let api = &report["policies"][0];
    let refused = api["most_refused"].as_array().unwrap().iter();
    let plans = api["quotas"].as_array().unwrap().iter();
    (
        refused.map(|own| own["identity"].as_str().unwrap()).collect(),
        plans.map(|quota| quota["plan"].as_str().unwrap()).collect(),
    )
}

#[test]
fn a_log_format_of_nginx_names_users_plans_and_keys() {
    let files = Files::with_config(PLANS);
    let format = r#"$remote_addr $request_time [$time_iso8601] "$request_method ${request_uri}" $remote_user "$http_x_plan" "$http_x_api_key" k=$tenant"#;
    let line = |client: &str, user: &str, plan: &str, key: &str, tenant: &str| {
        format!(
            "{client} 0.001 [2026-10-10T13:55:36+00:00] \"GET /\" {user} \"{plan}\" \"{key}\" k={tenant}\n"
        )
    };
    let lines = [
        line("203.0.113.1", "-", "-", "k-secret", "-"),
        line("203.0.113.2", "-", "-", "k-secret", "-"),
        line("203.0.113.3", "ada", "-", "-", "-"),
        line("203.0.113.4", "ada", "-", "-", "-"),
        line("203.0.113.5", "grace", "pro", "-", "-"),
        line("203.0.113.5", "grace", "pro", "-", "-"),
        line("203.0.113.6", "-", "-", "-", "acme"),
        line("203.0.113.7", "-", "-", "-", "acme"),
    ];
    files.write("access.log", lines.concat());
    let arguments = ["--log-format", format, "--map", "header:x-tenant=$tenant", "access.log"];
    let report = files.json(&arguments);
    let key = Identity::api_key(b"k-secret").to_string();
    let (mut refused, plans) = seen(&report);
    refused.sort_unstable();
    assert_eq!(refused, [key.as_str(), "user:ada", "x-tenant:acme"]);
    assert_eq!(plans, ["free", "pro"]);
}

#[test]
fn fields_of_csv_and_json_are_mapped() {
    let files = Files::with_config(PLANS);
    files.write("log.csv", "when,who,tier,p\n1791640536,ada,free,/a\n1791640537,ada,free,/b\n");
    let maps = ["--map", "time=when", "--map", "user=who", "--map", "plan=tier", "--map", "path=p"];
    let report = files.json(&[&maps[..], &["log.csv"]].concat());
    assert_eq!(seen(&report), (vec!["user:ada"], vec!["free"]));

    let json = |second: u32| {
        format!(
            "{{\"at\":\"2026-10-10T13:55:{second}Z\",\"req\":{{\"line\":\"GET / HTTP/1.1\",\"user\":{{\"id\":42}}}}}}\n"
        )
    };
    files.write("log.json", [json(36), json(37)].concat());
    let maps = ["--map", "time=at", "--map", "request=req.line", "--map", "user=req.user.id"];
    let report = files.json(&[&maps[..], &["log.json"]].concat());
    assert_eq!(seen(&report), (vec!["user:42"], vec!["free"]));
    assert!(
        files.failure(1, &["log.json"]).contains("needs its fields named, such as --map time=ts")
    );
    let error = files.failure(1, &["--map", "user=nobody", "log.csv"]);
    assert!(error.contains("there is no such column; there are when, who, tier, p"), "{error}");
}

#[test]
fn headers_of_caddy_and_traefik_are_read_where_a_policy_needs_them() {
    let files = Files::with_config(PLANS);
    let (_, caddy) = LOGS[3];
    files.write(
        "caddy.log",
        caddy.replace("\"User-Agent\":[", "\"X-Api-Key\":[\"k-1\"],\"X-Plan\":["),
    );
    let key = Identity::api_key(b"k-1").to_string();
    assert_eq!(seen(&files.json(&["caddy.log"])), (vec![key.as_str()], vec!["free"]));
    let (_, traefik) = LOGS[4];
    files.write(
        "traefik.log",
        traefik.replace("\"level\"", "\"request_X-Api-Key\":\"k-1\",\"level\""),
    );
    assert_eq!(seen(&files.json(&["traefik.log"])), (vec![key.as_str()], vec!["free"]));
}

#[test]
fn an_audit_trail_has_identities_and_plans() {
    let files = Files::with_config(&format!(
        "{PLANS}\n[[api_key]]\nkey = \"k-1\"\nname = \"ada\"\nplan = \"pro\"\n"
    ));
    let unknown = Identity::api_key(b"k-2");
    let line = |second: u32, identity: &str, plan: &str| {
        format!(
            "{{\"time\":\"2026-10-10T13:55:{second}.000Z\",\"event\":\"decision\",\"listener\":\"gateway\",\
             \"method\":\"GET\",\"path\":\"/\",\"client\":\"203.0.113.7\",\"status\":200,\
             \"verdict\":\"allowed\",\"policies\":[{{\"policy\":\"api\",\"identity\":\"{identity}\",\
             \"plan\":\"{plan}\",\"shadow\":false,\"quotas\":[]}}]}}\n"
        )
    };
    let start = "{\"time\":\"2026-10-10T13:55:01.000Z\",\"event\":\"start\",\"version\":\"1\",\"in_force\":[]}\n";
    let lines = [
        start.to_owned(),
        line(10, "api-key:ada", "pro"),
        line(11, "user:42", "free"),
        line(12, "user:42", "free"),
        line(13, "x-tenant:acme", "free"),
        line(14, "x-tenant:acme", "free"),
        line(15, "api-key:ada", "pro"),
    ];
    files.write("audit.log", lines.concat());
    let report = files.json(&["audit.log"]);
    assert_eq!((report["requests"].as_u64(), report["other_lines"].as_u64()), (Some(6), Some(1)));
    let (mut refused, plans) = seen(&report);
    refused.sort_unstable();
    assert_eq!((refused, plans), (vec!["user:42", "x-tenant:acme"], vec!["free", "pro"]));
    assert_eq!(report["policies"][0]["quotas"][1]["busiest"]["identity"], "api-key:ada");

    // A key that was not issued is shown by its digest.
    files.write("candidate.toml", PLANS);
    let key = unknown.to_string();
    files.write("audit.log", [line(10, &key, "free"), line(11, &key, "free")].concat());
    assert_eq!(seen(&files.json(&["--format", "audit", "audit.log"])).0, [key.as_str()]);
}

#[test]
fn a_log_behind_proxies_has_its_clients_found_as_in_production() {
    let files = Files::with_config(&format!(
        "[gateway]\nupstream = \"http://127.0.0.1:3000\"\ntrusted_proxies = [\"10.0.0.0/8\"]\n\
         client_address = \"x-forwarded-for\"\n{ONE_A_MINUTE}"
    ));
    let line = |peer: &str, forwarded: &str| {
        format!("{peer} [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" \"{forwarded}\"\n")
    };
    let lines = [
        line("10.0.0.1", "198.51.100.1, 203.0.113.7"),
        line("10.0.0.2", "203.0.113.7, 10.0.0.3"),
        // Not from a trusted proxy.
        line("192.0.2.1", "203.0.113.7"),
    ];
    files.write("access.log", lines.concat());
    let format = r#"$remote_addr [$time_local] "$request" "$http_x_forwarded_for""#;
    let report = files.json(&["--log-format", format, "access.log"]);
    let api = &report["policies"][0];
    assert_eq!((api["identities"].as_u64(), api["refused"].as_u64()), (Some(2), Some(1)));
    assert_eq!(api["most_refused"][0]["identity"], CLIENT);
}

#[test]
fn what_is_of_no_format_says_how_to_name_it() {
    let files = Files::with_config(ONE_A_MINUTE);
    files.write("notes.txt", "once upon a time\nthere was a log\n");
    let error = files.failure(1, &["notes.txt"]);
    assert!(error.contains("notes.txt: the first lines are of no format that is known"), "{error}");
    for (format, problem) in [
        ("$remote_addr $status", "expected a time"),
        ("[$time_local]", "expected $request"),
        ("$time_local$request", "expected some text between $time_local and the next variable"),
        ("$time_local ${request", "expected a } after ${"),
    ] {
        let error = files.failure(1, &["--log-format", format, "notes.txt"]);
        assert!(error.contains(problem), "{format}: {error}");
    }
    let error = files.failure(2, &["--map", "colour=red", "notes.txt"]);
    assert!(error.contains("USE is time, client, request"), "{error}");
}
