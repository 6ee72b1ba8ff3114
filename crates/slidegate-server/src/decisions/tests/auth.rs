//! Proxies that ask.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use slidegate::{ManualClock, MemoryStore, Timestamp};
use slidegate_tower::{Refusal, Responder};

use super::{DecisionsApi, Got, api, rules};
use crate::config::Secret;
use crate::store::AnyStore;

async fn ask(api: &DecisionsApi, peer: &str, target: &str, headers: &[(&str, &str)]) -> Got {
    let request = Request::get(target);
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    api.send(peer, request.body(Full::new(Bytes::new())).unwrap()).await
}

/// Asks as Caddy does.
async fn forwarded(api: &DecisionsApi, method: &str, uri: &str, client: &str) -> Got {
    let headers =
        [("x-forwarded-method", method), ("x-forwarded-uri", uri), ("x-forwarded-for", client)];
    ask(api, "127.0.0.1", "/v1/auth", &headers).await
}

/// Asks as nginx does.
async fn original(api: &DecisionsApi, method: &str, uri: &str, client: &str) -> Got {
    let headers =
        [("x-original-method", method), ("x-original-uri", uri), ("x-forwarded-for", client)];
    ask(api, "127.0.0.1", "/v1/auth/nginx", &headers).await
}

#[tokio::test]
async fn a_yes_is_200_with_the_standing() {
    let api = api();
    let got = forwarded(&api, "GET", "/api/x?y", "203.0.113.7").await;
    assert_eq!((got.status.as_u16(), &got.body[..]), (200, &b""[..]));
    assert_eq!(got.header("x-ratelimit-remaining"), Some("2"));
    assert_eq!(api.observed(), ["GET /api/x Some(203.0.113.7) 200 Some(true)"]);
}

#[tokio::test]
async fn a_no_is_the_whole_refusal() {
    let api = api();
    assert_eq!(forwarded(&api, "POST", "/login", "203.0.113.7").await.status, 200);
    let got = forwarded(&api, "POST", "/login", "203.0.113.7").await;
    assert_eq!(got.status, 429);
    assert_eq!(got.header("retry-after"), Some("60"));
    assert_eq!(got.header("content-type"), Some("application/problem+json"));
    assert!(got.text().contains("quota-exceeded"), "{}", got.text());
    assert_eq!(forwarded(&api, "GET", "/login", "203.0.113.7").await.status, 200);
    assert_eq!(forwarded(&api, "GET", "/", "198.51.100.9").await.status, 403);
}

#[tokio::test]
async fn a_store_in_trouble_is_503_and_never_429() {
    let api = DecisionsApi::new(rules(), AnyStore::Failing);
    let got = forwarded(&api, "POST", "/login", "203.0.113.7").await;
    assert_eq!((got.status.as_u16(), got.header("retry-after")), (503, Some("1")));
    let got = original(&api, "POST", "/login", "203.0.113.7").await;
    assert_eq!((got.status.as_u16(), got.header("x-slidegate-status")), (403, Some("503")));
}

#[tokio::test]
async fn nginx_gets_the_refusal_in_headers() {
    let api = api();
    let got = original(&api, "POST", "/login?next=/", "203.0.113.7").await;
    assert_eq!((got.status.as_u16(), got.header("x-slidegate-status")), (200, None));
    let got = original(&api, "POST", "/login?next=/", "203.0.113.7").await;
    assert_eq!((got.status.as_u16(), got.header("x-slidegate-status")), (403, Some("429")));
    assert_eq!(got.header("retry-after"), Some("60"));
    assert_eq!(got.header("x-slidegate-content-type"), Some("application/problem+json"));
    assert!(got.header("x-slidegate-body").unwrap().contains("quota-exceeded"));
    assert_eq!(got.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(&got.body[..], b"");
}

#[tokio::test]
async fn nginx_fetches_a_refusal_of_several_lines() {
    let two_lines = Refusal::template("text/plain", "slow\ndown\n").unwrap();
    let limiter =
        crate::config::LimiterConfig { responder: Responder::new().refusal(two_lines), ..rules() };
    let clock = ManualClock::new(Timestamp::from_millis(1_794_787_200_000));
    let api = DecisionsApi::new(limiter, MemoryStore::builder().clock(clock).build());
    original(&api, "POST", "/login", "203.0.113.7").await;
    let got = original(&api, "POST", "/login", "203.0.113.7").await;
    assert_eq!(got.header("x-slidegate-status"), Some("429"));
    assert_eq!(got.header("x-slidegate-body"), Some("slow down"));
    let carried = [("x-slidegate-refusal", got.header("x-slidegate-refusal").unwrap())];
    let fetched = ask(&api, "127.0.0.1", "/v1/auth/nginx/refusal", &carried).await;
    assert_eq!(fetched.status.as_u16(), 429);
    assert_eq!(fetched.header("content-type"), Some("text/plain"));
    assert_eq!(fetched.header("retry-after"), Some("60"));
    assert_eq!(&fetched.body[..], b"slow\ndown\n");
    assert_eq!(api.observed().len(), 2, "it is no decision");
    let (allowed, switching, two_headers) = (
        "eyJzdGF0dXMiOjIwMCwiaGVhZGVycyI6W10sImJvZHkiOiIifQ",
        "eyJzdGF0dXMiOjEwMSwiaGVhZGVycyI6W10sImJvZHkiOiIifQ",
        "eyJzdGF0dXMiOjQyOSwiaGVhZGVycyI6W1siYSIsImJcclxuYzogZCJdXSwiYm9keSI6IiJ9",
    );
    for bad in ["", "x", "bnVsbA", "eyJzdGF0dXMiOjQyOX0", allowed, switching, two_headers] {
        let carried = [("x-slidegate-refusal", bad)];
        let got = ask(&api, "127.0.0.1", "/v1/auth/nginx/refusal", &carried).await;
        assert_eq!(got.status.as_u16(), 400, "{bad}");
    }
}

#[tokio::test]
async fn envoy_puts_the_path_after_the_prefix() {
    let api = api();
    let client = [("x-forwarded-for", "203.0.113.7")];
    let got = ask(&api, "127.0.0.1", "/v1/auth/envoy/api/x?y=z", &client).await;
    assert_eq!(got.header("x-ratelimit-remaining"), Some("2"));
    ask(&api, "127.0.0.1", "/v1/auth/envoy", &client).await;
    let [first, second] = api.observed().try_into().unwrap();
    assert_eq!(first, "GET /api/x Some(203.0.113.7) 200 Some(true)");
    assert_eq!(second, "GET / Some(203.0.113.7) 200 Some(true)");
}

#[tokio::test]
async fn a_proxy_that_does_not_send_enough_gets_an_error() {
    let api = api();
    for (target, headers, members) in [
        ("/v1/auth", vec![], vec!["x-forwarded-method", "x-forwarded-uri"]),
        ("/v1/auth", vec![("x-forwarded-method", "GET")], vec!["x-forwarded-uri"]),
        (
            "/v1/auth",
            vec![("x-forwarded-method", "G T"), ("x-forwarded-uri", "/")],
            vec!["x-forwarded-method"],
        ),
        (
            "/v1/auth",
            vec![
                ("x-forwarded-method", "GET"),
                ("x-forwarded-uri", "/"),
                ("x-forwarded-uri", "/a"),
            ],
            vec!["x-forwarded-uri"],
        ),
        (
            "/v1/auth/nginx",
            vec![("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")],
            vec!["x-original-method", "x-original-uri"],
        ),
    ] {
        let got = ask(&api, "127.0.0.1", target, &headers).await;
        assert_eq!(got.status, 400, "{headers:?}");
        let problems = got.json()["problems"].as_array().unwrap().clone();
        let named: Vec<_> = problems.iter().map(|p| p["member"].as_str().unwrap()).collect();
        assert_eq!(named, members);
    }
}

/// A client's headers come along with the proxy's, and must not count for anything.
#[tokio::test]
async fn a_client_cannot_speak_for_the_proxy() {
    let api = api();
    let forged = [
        ("x-original-method", "POST"),
        ("x-original-uri", "/login"),
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/healthz"),
        ("x-forwarded-for", "203.0.113.7"),
        ("content-type", "application/grpc"),
    ];
    ask(&api, "127.0.0.1", "/v1/auth/nginx", &forged).await;
    let got = ask(&api, "127.0.0.1", "/v1/auth/nginx", &forged).await;
    assert_eq!((got.status.as_u16(), got.header("x-slidegate-status")), (403, Some("429")));

    let grpc = [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/login"),
        ("x-forwarded-for", "203.0.113.7"),
        ("content-type", "application/grpc"),
    ];
    assert_eq!(ask(&api, "127.0.0.1", "/v1/auth", &grpc).await.status, 429);
}

#[tokio::test]
async fn an_absolute_target_has_a_path_too() {
    let api = api();
    forwarded(&api, "POST", "http://example.com/login?x", "203.0.113.7").await;
    assert_eq!(api.observed(), ["POST /login Some(203.0.113.7) 200 Some(true)"]);
}

/// Peer, `X-Forwarded-For`, and who the client is. `10.0.0.0/8` is trusted.
#[tokio::test]
async fn a_client_address_is_what_the_asking_proxy_adds_and_then_as_configured() {
    let api = api();
    for (peer, lines, client) in [
        ("127.0.0.1", vec!["203.0.113.7"], "Some(203.0.113.7)"),
        ("127.0.0.1", vec!["1.1.1.1, 203.0.113.7"], "Some(203.0.113.7)"),
        ("127.0.0.1", vec!["1.1.1.1", "203.0.113.7"], "Some(203.0.113.7)"),
        ("127.0.0.1", vec!["1.1.1.1, 203.0.113.7, 10.0.0.2"], "Some(203.0.113.7)"),
        ("127.0.0.1", vec!["1.1.1.1, 127.0.0.1"], "Some(127.0.0.1)"),
        ("127.0.0.1", vec!["203.0.113.7, unknown"], "Some(127.0.0.1)"),
        ("127.0.0.1", vec![], "Some(127.0.0.1)"),
        ("::ffff:127.0.0.1", vec![], "Some(127.0.0.1)"),
        ("", vec!["203.0.113.7"], "Some(203.0.113.7)"),
        ("", vec![], "None"),
    ] {
        let mut headers = vec![("x-forwarded-method", "GET"), ("x-forwarded-uri", "/")];
        headers.extend(lines.iter().map(|line| ("x-forwarded-for", *line)));
        ask(&api, peer, "/v1/auth", &headers).await;
        assert_eq!(api.observed(), [format!("GET / {client} 200 Some(true)")], "{peer} {lines:?}");
    }
}

#[tokio::test]
async fn named_headers_are_believed_of_trusted_proxies_only() {
    let api = api();
    let headers = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/api/x"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-plan", "pro"),
    ];
    let got = ask(&api, "127.0.0.1", "/v1/auth", &headers).await;
    assert_eq!(got.header("x-ratelimit-limit"), Some("3"));
    let got = ask(&api, "10.0.0.1", "/v1/auth", &headers).await;
    assert_eq!(got.header("x-ratelimit-limit"), Some("30"));
}

#[tokio::test]
async fn no_detour_gets_around_a_policy() {
    let api = api();
    assert_eq!(forwarded(&api, "POST", "/login", "203.0.113.7").await.status, 200);
    assert_eq!(forwarded(&api, "POST", "//login", "203.0.113.7").await.status, 429);
    assert_eq!(original(&api, "POST", "/%6cogin", "203.0.113.7").await.status, 403);
}

#[tokio::test]
async fn a_method_in_another_case_is_refused_as_each_proxy_takes_it() {
    let api = api();
    for method in ["post", "Post", "pOST"] {
        let got = forwarded(&api, method, "/login", "203.0.113.7").await;
        assert_eq!(got.status, 400, "{method}");
        assert_eq!(got.header("content-type"), Some("application/problem+json"));
        assert!(got.text().contains("only in case"), "{}", got.text());
        let got = original(&api, method, "/login", "203.0.113.7").await;
        assert_eq!((got.status.as_u16(), got.header("x-slidegate-status")), (403, Some("400")));
        assert!(got.header("x-slidegate-body").unwrap().contains("only in case"));
        let request = Request::builder().method(method).uri("/v1/auth/envoy/login");
        let got = api.send("127.0.0.1", request.body(Full::new(Bytes::new())).unwrap()).await;
        assert_eq!(got.status, 400, "{method}");
    }
    assert_eq!(forwarded(&api, "POST", "/login", "203.0.113.7").await.status, 200);
}

#[tokio::test]
async fn a_key_that_is_there_twice_is_refused() {
    let api = api();
    let headers = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/api/x"),
        ("x-api-key", "k"),
        ("x-api-key", "l"),
    ];
    let got = ask(&api, "127.0.0.1", "/v1/auth", &headers).await;
    assert_eq!(got.status, 400);
    assert!(got.text().contains("x-api-key"), "{}", got.text());
}

#[tokio::test]
async fn a_token_is_asked_for_in_a_header_that_is_not_the_clients() {
    let secret = "hunter2".parse().unwrap();
    let api = DecisionsApi::with_token(rules(), MemoryStore::new(), Some(&secret));
    let forwarded = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/login")];
    let original = [("x-original-method", "GET"), ("x-original-uri", "/login")];
    let bearer = ("authorization", "Bearer hunter2");
    let own = ("x-slidegate-token", "hunter2");
    for (target, facts, presented, status) in [
        ("/v1/auth", &forwarded, &[][..], 401),
        ("/v1/auth", &forwarded, &[bearer], 401),
        ("/v1/auth", &forwarded, &[("x-slidegate-token", "hunter3")], 401),
        ("/v1/auth", &forwarded, &[own, own], 401),
        ("/v1/auth", &forwarded, &[own], 200),
        ("/v1/auth", &forwarded, &[own, ("authorization", "Bearer of-the-client")], 200),
        ("/v1/auth/nginx", &original, &[bearer], 401),
        ("/v1/auth/nginx", &original, &[own], 200),
        ("/v1/auth/envoy/login", &original, &[bearer], 401),
        ("/v1/auth/envoy/login", &original, &[own], 200),
        ("/v1/nothing", &original, &[], 401),
        ("/v1/openapi.json", &original, &[], 200),
        ("/v1/decide", &original, &[], 401),
        ("/v1/decide", &original, &[bearer, ("x-slidegate-token", "hunter3")], 401),
        ("/v1/decide", &original, &[bearer], 405),
        ("/v1/decide", &original, &[own], 405),
        ("/v1/refund", &original, &[], 401),
        ("/v1/settle", &original, &[], 401),
        ("/v1/settle", &original, &[bearer], 405),
        ("/v1/record", &original, &[], 401),
        ("/v1/record", &original, &[bearer], 405),
        ("/v1/refund", &original, &[bearer], 405),
        ("/v1/refund", &original, &[own], 405),
    ] {
        let headers: Vec<_> = facts.iter().chain(presented).copied().collect();
        let got = ask(&api, "127.0.0.1", target, &headers).await;
        assert_eq!(got.status.as_u16(), status, "{target} {presented:?}");
        assert!(!got.text().contains("hunter"), "{}", got.text());
        if status == 401 {
            assert_eq!(got.header("www-authenticate"), Some("Bearer"));
        }
    }
}

#[tokio::test]
async fn a_web_page_spends_nothing_and_a_proxy_keeps_its_clients_headers() {
    let described = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/api/x")];
    let cross = [("sec-fetch-site", "cross-site")];
    let origin = [("origin", "https://evil.example")];
    for (target, host, headers, expected) in [
        // A page of another site, with or without a name of its own for this machine.
        ("/v1/auth/envoy/api/x", "127.0.0.1:8081", &cross[..], 403),
        ("/v1/auth/envoy/api/x", "localhost:8081", &origin[..], 403),
        ("/v1/auth/envoy/api/x", "evil.example:8081", &[], 403),
        ("/v1/auth", "evil.example:8081", &described[..], 403),
        ("/v1/openapi.json", "evil.example:8081", &[], 403),
        ("/v1/openapi.json", "127.0.0.1:8081", &cross[..], 403),
        // Proxies, which pass on what the client sent.
        ("/v1/auth/envoy/api/x", "shop.example", &[], 200),
        (
            "/v1/auth/envoy/api/x",
            "shop.example:8443",
            &[("x-forwarded-for", "203.0.113.7"), cross[0]],
            200,
        ),
        ("/v1/auth", "shop.example", &[described[0], described[1], cross[0], origin[0]], 200),
        ("/v1/auth", "127.0.0.1:8081", &[described[0], described[1], cross[0]], 200),
        ("/v1/openapi.json", "[::1]:8081", &[], 200),
    ] {
        let headers: Vec<_> = [("host", host)].into_iter().chain(headers.iter().copied()).collect();
        let api = api();
        let got = ask(&api, "127.0.0.1", target, &headers).await;
        assert_eq!(got.status, expected, "{target} {headers:?} {}", got.text());
        assert!(expected == 200 || api.observed().is_empty(), "nothing is spent");
    }
    let api = api();
    let question = |host: &str| {
        let request = Request::post("/v1/decide").header("host", host);
        let request = request.header("content-type", "application/json");
        request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    };
    assert_eq!(api.send("127.0.0.1", question("evil.example:8081")).await.status, 403);
    assert_eq!(api.send("127.0.0.1", question("evil.example")).await.status, 403);
    assert_eq!(api.send("127.0.0.1", question("localhost:8081")).await.status, 200);
}

#[tokio::test]
async fn an_address_that_guesses_tokens_is_not_listened_to_and_others_are() {
    let secret = Secret::new("a token of the test");
    let api = DecisionsApi::with_token(rules(), MemoryStore::new(), Some(&secret));
    let present = async |peer: &str, token: &str| {
        ask(&api, peer, "/v1/auth/envoy/x", &[("x-slidegate-token", token)]).await
    };
    for n in 0..10 {
        assert_eq!(present("203.0.113.7", &format!("guess {n}")).await.status, 401);
    }
    let late = present("203.0.113.7", "a token of the test").await;
    assert_eq!(late.status, 429, "it is not even compared");
    let wait: u64 = late.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=61).contains(&wait));
    assert_eq!(present("203.0.113.8", "a token of the test").await.status, 200);
    // A request without a token, or with a client's beside the proxy's, is no guess.
    for _ in 0..20 {
        let both = [("x-slidegate-token", "x"), ("x-slidegate-token", "a token of the test")];
        assert_eq!(ask(&api, "203.0.113.9", "/v1/auth/envoy/x", &both).await.status, 401);
        assert_eq!(ask(&api, "203.0.113.9", "/v1/auth/envoy/x", &[]).await.status, 401);
    }
    assert_eq!(present("203.0.113.9", "a token of the test").await.status, 200);
}

/// Proxies pass on what clients send, and a fragment is no part of it to a server.
#[tokio::test]
async fn no_spelling_evades_a_policy() {
    for path in
        ["/login#x", "/LOGIN", "/x%2F..%2Flogin", "/x\\..\\login", "/login/#/../x", "//login/"]
    {
        let api = api();
        assert_eq!(forwarded(&api, "POST", path, "203.0.113.7").await.status, 200, "{path}");
        assert_eq!(forwarded(&api, "POST", "/login", "203.0.113.7").await.status, 429, "{path}");
        let got = original(&api, "POST", path, "203.0.113.7").await;
        assert_eq!(got.header("x-slidegate-status"), Some("429"), "{path}");
    }
}

/// As `/v1/decide` does.
#[tokio::test]
async fn what_is_no_path_is_refused() {
    let api = api();
    for path in ["api/login", "", "#x"] {
        assert_eq!(forwarded(&api, "POST", path, "203.0.113.7").await.status, 400, "{path:?}");
        let got = original(&api, "POST", path, "203.0.113.7").await;
        let status = got.header("x-slidegate-status");
        assert_eq!((got.status.as_u16(), status), (403, Some("400")), "{path:?}");
        let question = serde_json::json!({"method": "POST", "path": path}).to_string();
        let request = Request::post("/v1/decide").header("content-type", "application/json");
        let got = api.send("127.0.0.1", request.body(Full::from(question)).unwrap()).await;
        assert_eq!(got.status, 400, "{path:?}");
        assert!(got.text().contains("bad-request"), "{}", got.text());
    }
    assert_eq!(forwarded(&api, "OPTIONS", "*", "203.0.113.7").await.status, 200);
}
