//! The path at which callers see where they stand.

use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use http::Request;
use jsonschema::Validator;
use serde_json::Value;
use slidegate_testbed::http2::frames;
use slidegate_testbed::{
    Gateway, GatewayOptions, Http2Client, Message, RedisServer, Upstream, wait_until,
};

use crate::redis::on_redis;
use crate::{configure, options};

/// Made by `slidegate digest` of `k-123`.
const DIGEST: &str = "a2e3ac06bb3a3d74863f2e5db2e3fcbe";
const KEY: &str = "X-API-Key: k-123\r\n";
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";

/// A gateway with plans that believes X-Forwarded-For, so that a test can be many clients.
fn selling(upstream: &Upstream, standing: &str) -> GatewayOptions {
    configure(upstream)
        .key("trusted_proxies", "[\"127.0.0.1\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .key("user_header", "\"x-user-id\"")
        .tables(&format!("[standing]\n{standing}"))
        .tables("[plans.free]\nquotas = [\"5/h\"]\n[plans.pro]\nquotas = [\"20/h\", \"50/day\"]")
        .tables(&format!("[[api_key]]\nname = \"acme\"\ndigest = {DIGEST:?}\nplan = \"pro\""))
        .policy("api", "", "identity = [\"api-key\", \"user\", \"ip\"]\nplan = \"free\"")
}

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let description = include_str!("../../../../docs/rate-limits.openapi.json");
    let mut root: Value = serde_json::from_str(description).unwrap();
    root["$ref"] = "#/components/schemas/CallerStanding".into();
    jsonschema::validator_for(&root).unwrap()
});

/// The answer, which is as the description says.
fn ask(gateway: &Gateway, query: &str, headers: &str) -> Value {
    let answer = gateway.get(&format!("/rate-limits{query}"), headers);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(answer.value("content-type").as_deref(), Some("application/json"));
    assert_eq!(answer.value("cache-control").as_deref(), Some("no-store"));
    let answer: Value = serde_json::from_str(&answer.text()).unwrap();
    let errors: Vec<String> = SCHEMA.iter_errors(&answer).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?} in {answer}");
    answer
}

fn identities(answer: &Value) -> Vec<&str> {
    let standings = answer["standings"].as_array().unwrap();
    standings.iter().map(|own| own["identity"].as_str().unwrap()).collect()
}

/// The rest of the tightest quota, by the headers of a response.
fn remaining(response: &Message) -> u64 {
    let fields = response.value("ratelimit").unwrap();
    let rest = fields.split("r=").nth(1).unwrap();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn it_says_what_the_headers_of_the_next_request_say_and_spends_nothing() {
    let upstream = Upstream::simple();
    let gateway = selling(&upstream, "").start();
    for spent in 0..3 {
        for _ in 0..7 {
            ask(&gateway, "", KEY);
        }
        let answer = ask(&gateway, "", KEY);
        let left: Vec<u64> =
            (0..2).map(|i| answer["standings"][i]["remaining"].as_u64().unwrap()).collect();
        assert_eq!(left, [20 - spent, 50 - spent]);
        assert_eq!(remaining(&gateway.get("/", KEY)), left[0] - 1);
    }
    assert_eq!(upstream.received().len(), 3, "only the others went upstream");
    let answer = ask(&gateway, "", KEY);
    let own = &answer["standings"][1];
    assert_eq!(own["policy"], "api");
    assert_eq!((&own["units"], &own["window_ms"]), (&50.into(), &86_400_000.into()));
    assert_eq!((&own["identity"], &own["plan"]), (&"api-key:acme".into(), &"pro".into()));
    assert_eq!(own["reset_after_ms"], own["next_unit_after_ms"]);
    assert!(!answer.to_string().contains(DIGEST) && !answer.to_string().contains("k-123"));
    let verdicts = |verdict: &str| gateway.metric("slidegate_requests_total", verdict);
    assert_eq!((verdicts("\"allow\""), verdicts("\"none\"")), (3.0, 25.0), "no decision");
}

#[test]
fn a_caller_sees_itself_and_nobody_else() {
    let upstream = Upstream::simple();
    let gateway = selling(&upstream, "quotas = \"1000/min\"").start();
    let from = |client: &str| format!("X-Forwarded-For: {client}\r\n");
    assert_eq!(identities(&ask(&gateway, "", &from("203.0.113.7"))), ["ip:203.0.113.7"]);
    assert_eq!(ask(&gateway, "", "")["standings"][0]["plan"], "free");
    assert_eq!(identities(&ask(&gateway, "", "X-User-Id: ann\r\n")), ["user:ann"]);
    assert_eq!(identities(&ask(&gateway, "", KEY)), ["api-key:acme"; 2]);
    let others = ["?identity=api-key:acme", "?user=ann&units=1", "?policy=api&identity=user:ann"];
    for query in others {
        assert_eq!(identities(&ask(&gateway, query, "")), ["ip:127.0.0.1"], "{query}");
    }
    let untrusting = configure(&upstream)
        .key("trusted_proxies", "[\"10.0.0.0/8\"]")
        .key("user_header", "\"x-user-id\"")
        .tables("[standing]")
        .policy("api", "5/h", "identity = [\"user\", \"ip\"]")
        .start();
    let claims = "X-User-Id: ann\r\nX-Forwarded-For: 203.0.113.7\r\n";
    assert_eq!(identities(&ask(&untrusting, "", claims)), ["ip:127.0.0.1"]);
}

#[test]
fn a_hidden_policy_counts_in_the_instant_without_being_shown() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .tables("[standing]\nquotas = \"1000/min\"")
        .policy("api", "9/h", "")
        .policy("quiet", "2/h", "headers = false")
        .policy("flood", "3/h", "scope = \"local\"")
        .policy("upload", "1/h", "match = { path = \"/upload\" }\nheaders = false")
        .start();
    let of = |units: u32| {
        let answer = ask(&gateway, &format!("?units={units}"), "");
        assert_eq!(identities(&answer), ["ip:127.0.0.1"]);
        assert_eq!(answer["standings"][0]["passes_after_ms"], 0, "{answer}");
        for hidden in ["quiet", "flood", "upload"] {
            assert!(!answer.to_string().contains(hidden), "{answer}");
        }
        answer
    };
    let passes = |units| of(units)["passes_after_ms"].as_u64().unwrap();
    assert_eq!((passes(1), passes(2)), (0, 0));
    assert_eq!(of(3)["reason"], "cost-above-units", "the hidden policy never admits so many");
    assert_eq!(gateway.status("/upload"), 200);
    assert_eq!(passes(1), 0, "only /upload is used up");
    let hour_ms = 3_500_000..=3_601_000;
    assert!(hour_ms.contains(&passes(2)), "{}", passes(2));
    assert_eq!(gateway.status("/"), 200);
    assert!(hour_ms.contains(&passes(1)), "{}", passes(1));
    assert_eq!(gateway.status("/"), 429);
}

#[test]
fn the_guard_counts_addresses_and_refuses_as_elsewhere() {
    let upstream = Upstream::simple();
    let gateway =
        selling(&upstream, "path = \"/me/limits\"\nquotas = [\"3/min\", \"9/h\"]").start();
    let status = |headers: &str| gateway.get("/me/limits", headers).status();
    assert_eq!([(); 4].map(|()| status(KEY)), [200, 200, 200, 429]);
    let refused = gateway.get("/me/limits", "");
    assert_eq!(refused.problem(), 429, "another identity of the same address");
    let after: u64 = refused.value("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!(status("X-Forwarded-For: 203.0.113.8\r\n"), 200);
    assert_eq!(gateway.get("/", KEY).status(), 200, "the caller's own quotas are apart");
    assert_eq!(remaining(&gateway.get("/", KEY)), 18);
    assert_eq!(gateway.metric("slidegate_responses_total", "\"4xx\""), 2.0);
}

#[test]
fn other_methods_and_malformed_questions_are_refused() {
    let upstream = Upstream::simple();
    let gateway = selling(&upstream, "quotas = \"1000/min\"").start();
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let mut wire = gateway.wire();
        wire.send(format!(
            "{method} /rate-limits HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
        ));
        let refused = wire.response();
        assert_eq!(refused.problem(), 405, "{method}");
        assert_eq!(refused.value("allow").as_deref(), Some("GET, HEAD"));
    }
    for bad in ["0", "-1", "+5", "1.5", "", "five", "2147483649", "99999999999999", "5&units=6"] {
        let refused = gateway.get(&format!("/rate-limits?units={bad}"), "");
        assert_eq!(refused.problem(), 400, "{bad}");
        assert!(refused.text().contains("from 1 to 2147483648"), "{}", refused.text());
    }
    assert_eq!(gateway.get("/rate-limits", "X-API-Key: a\r\nX-API-Key: b\r\n").problem(), 400);
    let mut wire = gateway.wire();
    wire.send("HEAD /rate-limits HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = wire.response_to("HEAD").unwrap();
    assert_eq!(head.status(), 200);
    assert!(head.value("content-length").unwrap().parse::<u64>().unwrap() > 100);
    assert_eq!(wire.get("/rate-limits", "").status(), 200, "the connection goes on");
    let client = Http2Client::connect(gateway.listener());
    for method in ["GET", "HEAD"] {
        let request = Request::builder().method(method).uri("http://a/rate-limits?units=2");
        let answer = client.send(request.body(frames([])).unwrap()).unwrap();
        assert_eq!(answer.status, 200, "{method}");
        assert_eq!(answer.body.is_empty(), method == "HEAD", "{method}");
    }
    assert_eq!(upstream.received().len(), 0);
    for other in ["/rate-limits/", "/Rate-Limits", "/rate%2Dlimits", "/rate-limits/x"] {
        assert_eq!(gateway.get(other, KEY).status(), 200, "{other}");
    }
    assert_eq!(upstream.received().len(), 4, "other paths go upstream");
}

#[test]
fn browsers_get_a_page_and_programs_json() {
    let upstream = Upstream::simple();
    let gateway = selling(&upstream, "").start();
    assert_eq!(gateway.get("/", KEY).status(), 200);
    let page = gateway.get("/rate-limits?units=20", &format!("{KEY}{BROWSER}"));
    assert_eq!(page.status(), 200);
    assert_eq!(page.value("content-type").as_deref(), Some("text/html; charset=utf-8"));
    assert_eq!(page.value("cache-control").as_deref(), Some("no-store"));
    let policy = page.value("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let text = page.text();
    for part in ["api-key:acme", "19", "per hour", "of 50 units used", "20 more units", "Next unit"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    for foreign in ["<script", "http://", "https://", "style=", DIGEST] {
        assert!(!text.contains(foreign), "{foreign} in {text}");
    }
    let text = gateway.get("/rate-limits", &format!("X-User-Id: <i>ann\r\n{BROWSER}")).text();
    assert!(text.contains("user:&lt;i&gt;ann") && !text.contains("<i>"), "{text}");
    for accept in ["", "Accept: */*\r\n", "Accept: application/json, text/html;q=0.5\r\n"] {
        let headers = format!("{KEY}{accept}");
        let answer = gateway.get("/rate-limits", &headers);
        assert_eq!(answer.value("content-type").as_deref(), Some("application/json"), "{accept}");
        assert_eq!(answer.value("vary").as_deref(), Some("accept"));
    }
}

#[test]
fn blocked_banned_exempt_and_unknown_callers_see_what_holds_for_them() {
    let upstream = Upstream::simple();
    let setup = selling(&upstream, "quotas = \"1000/min\"")
        .tables("[exempt]\nusers = [\"monitor\"]\npaths = [\"/health\"]")
        .tables("[blocked]\nusers = [\"mallory\"]")
        .policy(
            "login",
            "1/h",
            "match = { path = \"/login\" }\nban = { after = \"1/h\", for = \"2h\" }",
        );
    let top = format!("unknown_keys = \"refuse\"\n{}", setup.text());
    let gateway = Gateway::from(options().configuration(&top).start());
    let blocked = gateway.get("/rate-limits", "X-User-Id: mallory\r\n");
    assert_eq!((blocked.status(), gateway.get("/", "X-User-Id: mallory\r\n").status()), (403, 403));
    let exempt = ask(&gateway, "?units=7", "X-User-Id: monitor\r\n");
    assert_eq!((&exempt["exempt"], &exempt["passes_after_ms"]), (&true.into(), &0.into()));
    assert_eq!(identities(&exempt), [""; 0]);
    let unknown = gateway.get("/rate-limits", "X-API-Key: stolen\r\n");
    assert_eq!(unknown.status(), 401);
    assert_eq!(unknown.value("www-authenticate").as_deref(), Some("ApiKey"));
    assert_eq!([(); 2].map(|()| gateway.get("/login", KEY).status()), [200, 429]);
    let banned = ask(&gateway, "", KEY);
    assert_eq!(banned["bans"][0]["policy"], "login");
    let wait_ms = banned["bans"][0]["retry_after_ms"].as_u64().unwrap();
    assert!((7_100_000..=7_200_000).contains(&wait_ms), "{wait_ms}");
}

#[test]
fn who_waits_for_the_instant_passes_and_who_comes_earlier_does_not() {
    let upstream = Upstream::simple();
    let redis = RedisServer::start();
    let setup = configure(&upstream).tables("[standing]\nquotas = \"10000/min\"");
    for setup in [setup.clone(), on_redis(setup, &redis.url())] {
        let gateway = setup.policy("api", "3/2s", "").start();
        let spent: Vec<u16> = (0..3).map(|_| gateway.get("/", "").status()).collect();
        assert_eq!(spent, [200; 3]);
        let never = ask(&gateway, "?units=4", "");
        assert_eq!(
            (&never["passes_at_ms"], &never["reason"]),
            (&Value::Null, &"cost-above-units".into())
        );
        let answer = ask(&gateway, "?units=1", "");
        let number = |name: &str| answer[name].as_u64().unwrap();
        assert_eq!(number("passes_at_ms") - number("now_ms"), number("passes_after_ms"));
        assert_eq!(number("passes_after_ms"), answer["standings"][0]["next_unit_after_ms"]);
        // Until the store's clock has come so far, every request is denied; then the first one passes.
        let mut wire = gateway.wire();
        loop {
            let before = ask(&gateway, "?units=1", "");
            let status = wire.get("/", "").status();
            let after = ask(&gateway, "?units=1", "");
            let is_early =
                |asked: &Value| asked["now_ms"].as_u64().unwrap() < number("passes_at_ms");
            if is_early(&after) {
                assert_eq!(status, 429, "{after}");
            }
            if !is_early(&before) {
                assert_eq!(status, 200, "{before}");
                break;
            }
            if status == 200 {
                assert!(!is_early(&after), "{after}");
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn without_the_store_there_are_no_numbers() {
    let upstream = Upstream::simple();
    let redis = RedisServer::start();
    let setup = on_redis(configure(&upstream), &redis.url());
    let gateway =
        setup.tables("[standing]\nquotas = \"1000/min\"").policy("api", "5/h", "").start();
    assert_eq!(ask(&gateway, "", "")["standings"][0]["remaining"], 5);
    drop(redis);
    let away = gateway.get("/rate-limits", "");
    assert_eq!(away.problem(), 503, "{}", away.text());
    assert!(!away.text().contains("remaining"), "{}", away.text());
    assert_eq!(gateway.get("/", "").status(), 200, "the gateway goes on by its own ledgers");
}

#[test]
fn a_reload_moves_it() {
    let upstream = Upstream::simple();
    let setup = |standing: &str| configure(&upstream).tables(standing).policy("api", "5/h", "");
    let gateway = setup("[standing]\nquotas = \"2/h\"").start();
    assert_eq!(gateway.status("/rate-limits"), 200);
    gateway.reconfigure(&setup("[standing]\npath = \"/mine\"\nquotas = \"2/h\"").text());
    gateway.signal("HUP");
    wait_until("the reload", || gateway.output().contains("standing: told at /mine"));
    assert_eq!([(); 3].map(|()| gateway.status("/mine")), [200, 200, 429]);
    assert_eq!(upstream.received().len(), 0);
    assert_eq!(gateway.status("/rate-limits"), 200);
    assert_eq!(upstream.received().len(), 1, "now it is upstream's");
}
