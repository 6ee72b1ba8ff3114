//! Customers: keys from a file, a real PostgreSQL and a service; tokens of an issuer.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slidegate_testbed::{
    Directory, Gateway, Message, PostgresServer, TokenIssuer, Upstream, Wire, wait_until,
};

use slidegate_testbed::http1::response;

use crate::{configure, options};

const ISSUER: &str = "https://auth.example.com/";
/// In the year 2100.
const LATE: u64 = 4_102_444_800;

const BY_KEY: &str = "[plans.free]\nquotas = \"2/min\"\n[plans.pro]\nquotas = \"5/min\"\n\
                      [[policy]]\nname = \"api\"\nidentity = [\"api-key\", \"ip\"]\nplan = \"free\"\n";

/// A gateway with these keys at the top of its file, and these tables.
fn start(upstream: &Upstream, top: &str, tables: &str) -> Gateway {
    let text = format!("{top}\n{}", configure(upstream).tables(tables).text());
    Gateway::from(options().configuration(&text).start())
}

fn with_key(gateway: &Gateway, key: &str) -> Message {
    gateway.get("/", &format!("X-API-Key: {key}\r\n"))
}

fn status(gateway: &Gateway, key: &str) -> u16 {
    with_key(gateway, key).status()
}

fn statuses<const N: usize>(gateway: &Gateway, keys: [&str; N]) -> [u16; N] {
    keys.map(|key| status(gateway, key))
}

fn readiness(gateway: &Gateway) -> (u16, Value) {
    let page = gateway.admin_page("/readyz");
    (page.status(), serde_json::from_str(&page.text()).unwrap())
}

/// What the operator's API says of an identity.
pub(crate) fn accounts(gateway: &Gateway, path: &str) -> Value {
    let mut wire = Wire::connect(gateway.address("admin"));
    // Without a token, it answers requests to localhost only.
    wire.send(format!("GET /v1/accounts/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    serde_json::from_str(&wire.response().text()).unwrap()
}

#[test]
fn keys_of_one_customer_share_a_budget_that_outlives_them() {
    let (directory, upstream) = (Directory::new(), Upstream::simple());
    let keys = "customer,key,plan,expires\nacme,k1,pro,\nacme,k2,pro,2000-01-01T00:00:00Z\n\
                acme,k3,pro,2099-01-01T00:00:00Z\n";
    let file = directory.write("keys.csv", keys);
    let top = format!("keys_file = {file:?}\nunknown_keys = \"refuse\"");
    let gateway = start(&upstream, &top, BY_KEY);
    assert_eq!(statuses(&gateway, ["k1", "k2", "k3", "k4"]), [200, 401, 200, 401]);
    assert_eq!(statuses(&gateway, ["k1", "k3", "k1", "k3"]), [200, 200, 200, 429], "5 together");
    // A rotated key is the same customer.
    fs::write(&file, "customer,key,plan\nacme,k9,pro\n").unwrap();
    wait_until("the new key is in force", || status(&gateway, "k1") == 401);
    assert_eq!(status(&gateway, "k9"), 429);
    let seen = explain(&gateway, &json!({"headers": {"x-api-key": "k9"}}));
    assert_eq!(seen["policies"][0]["identity"], "customer:acme", "{seen}");
}

/// A table as applications have it, with the digests of `k0` to `k9`, and the configuration for it.
fn table(server: &PostgresServer) -> (slidegate_testbed::Database<'_>, String) {
    let database = server.database();
    database.sql(
        "create table api_keys (digest text primary key, customer text, plan text, quotas text,
                                expires_at timestamptz, changed_at timestamptz default now());
         insert into api_keys (digest, customer, plan)
         select encode(sha256(('k' || n)::bytea), 'hex'), 'customer-' || n / 2, 'pro'
         from generate_series(0, 9) n;",
    );
    let source = format!(
        "[key_source]\nurl = {:?}\npoll = \"200ms\"\nfull = \"1s\"\nhash = \"sha256\"\n\
         query = \"select digest, customer, plan, quotas, expires_at, changed_at from api_keys\"\n",
        database.url()
    );
    (database, source)
}

fn loaded(gateway: &Gateway) {
    wait_until("the keys are loaded", || {
        gateway.metrics().contains("slidegate_source_age_seconds")
    });
}

#[test]
fn customers_of_a_database_are_known_and_revoked_keys_refused() {
    let (server, upstream) = (PostgresServer::start(), Upstream::simple());
    let (database, source) = table(&server);
    // Only a poll can see in time that a key is revoked, and only another full reading what was deleted.
    let polling = source.replace("full = \"1s\"", "full = \"1h\"");
    let tables = [polling, source].map(|source| format!("{BY_KEY}{source}"));
    let [gateway, reading_all] =
        tables.map(|tables| start(&upstream, "unknown_keys = \"refuse\"", &tables));
    loaded(&gateway);
    loaded(&reading_all);
    assert_eq!(gateway.metric("slidegate_source_keys", "key_source"), 10.0);
    // k0 and k1 are of one customer.
    assert_eq!(
        statuses(&gateway, ["k0", "k1", "k0", "k1", "k0", "k1"]),
        [200, 200, 200, 200, 200, 429]
    );
    assert_eq!(statuses(&gateway, ["k2", "k99"]), [200, 401]);
    // Quotas of the row instead of a plan.
    database.sql(
        "update api_keys set quotas = '1/min, 100/day', plan = null, changed_at = now()
         where customer = 'customer-2'",
    );
    wait_until("the quotas are known", || {
        let policy = with_key(&gateway, "k4").value("ratelimit-policy").unwrap_or_default();
        policy.contains("q=1;")
    });
    assert_eq!(status(&gateway, "k2"), 200);
    database.sql(
        "update api_keys set expires_at = now(), changed_at = now() where customer = 'customer-1'",
    );
    let began = Instant::now();
    wait_until("the key is refused", || status(&gateway, "k2") == 401);
    // A poll of 200 ms, and the rest for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    database.sql("delete from api_keys where customer = 'customer-3'");
    wait_until("the deleted key is refused", || status(&reading_all, "k6") == 401);
    let explained = explain(&gateway, &json!({"headers": {"x-api-key": "k8"}}));
    assert_eq!(explained["credentials"][0], "API key: known, customer customer-4, plan pro");
}

#[test]
fn an_outage_of_the_database_is_noticed_by_the_operator_only() {
    let (server, upstream) = (PostgresServer::start(), Upstream::simple());
    let (_, source) = table(&server);
    let gateway = start(&upstream, "unknown_keys = \"refuse\"", &format!("{BY_KEY}{source}"));
    loaded(&gateway);
    assert_eq!(readiness(&gateway).1["degraded"], false);
    server.stop();
    wait_until("the outage is seen", || readiness(&gateway).1["degraded"] == true);
    let (ready, report) = readiness(&gateway);
    assert_eq!((ready, &report["ready"]), (200, &json!(true)), "{report}");
    let trouble = &report["sources"][0];
    assert_eq!(trouble["source"], "key_source", "{report}");
    assert!(
        trouble["age_s"].is_u64() && !report.to_string().contains("pw-of-the-test"),
        "{report}"
    );
    assert_eq!(gateway.metric("slidegate_source_up", "key_source"), 0.0);
    // The last of them may have been issued since.
    assert_eq!(statuses(&gateway, ["k0", "k1", "k99"]), [200, 200, 503], "what is known counts");
    server.start_again();
    wait_until("the database is back", || readiness(&gateway).1["degraded"] == false);
    assert_eq!(statuses(&gateway, ["k0", "k1", "k99"]), [200, 200, 401]);
    assert!(!gateway.output().contains("pw-of-the-test"), "{}", gateway.output());
}

#[test]
fn a_source_that_never_answered_is_unavailable_and_no_reason_for_401() {
    let upstream = Upstream::simple();
    for (on_error, expected) in [("deny", 503), ("ignore", 200)] {
        let source = format!(
            "[key_source]\nurl = \"postgres://slidegate@127.0.0.1:9/app\"\non_error = {on_error:?}\n\
             query = \"select digest, customer from api_keys\"\n"
        );
        let gateway = start(&upstream, "unknown_keys = \"refuse\"", &format!("{BY_KEY}{source}"));
        let answer = with_key(&gateway, "k0");
        assert_eq!(answer.status(), expected, "{}", answer.text());
        assert_eq!(answer.value("retry-after"), (expected == 503).then(|| "1".to_owned()));
        assert_eq!(gateway.status("/"), 200, "without a key nothing changes");
        assert_eq!(readiness(&gateway).0, 200);
    }
}

#[test]
fn a_service_is_asked_once_about_a_key() {
    let (asked, upstream) = (Arc::new(AtomicU16::new(200)), Upstream::simple());
    let answers = asked.clone();
    let service = Upstream::answering(move |request| {
        thread::sleep(Duration::from_millis(20));
        match (answers.load(Ordering::Relaxed), request.target().ends_with(&sha256("k1"))) {
            (200, true) => json_response(r#"{"customer": "acme", "plan": "pro"}"#),
            (200, false) => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
            _ => b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_vec(),
        }
    });
    let source = format!(
        "[key_source]\nurl = \"{}/keys/{{digest}}\"\nhash = \"sha256\"\nfresh = \"200ms\"\n",
        service.url()
    );
    let gateway = start(&upstream, "unknown_keys = \"refuse\"", &format!("{BY_KEY}{source}"));
    let first: Vec<u16> = thread::scope(|scope| {
        let threads: Vec<_> = (0..20).map(|_| scope.spawn(|| status(&gateway, "k1"))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(first.iter().filter(|status| **status == 200).count(), 5, "{first:?}");
    assert_eq!(service.received().len(), 1);
    assert_eq!(status(&gateway, "k2"), 401);
    // Away: what is known counts, what is not is unavailable.
    asked.store(500, Ordering::Relaxed);
    assert_eq!(statuses(&gateway, ["k1", "k3"]), [429, 503]);
    wait_until("it is degraded", || readiness(&gateway).1["degraded"] == true);
    assert_eq!(readiness(&gateway).0, 200);
}

fn json_response(body: &str) -> Vec<u8> {
    response("200 OK", "content-type: application/json\r\n", body).into_bytes()
}

fn sha256(key: &str) -> String {
    slidegate::policy::KeyHash::Sha256.hex(key.as_bytes())
}

/// The configuration for tokens of this issuer, whose keys are at this place.
fn jwt(jwks: &str, more: &str) -> String {
    format!(
        "[[jwt]]\nissuer = {ISSUER:?}\njwks = {jwks:?}\naudience = \"api\"\n\
         algorithms = [\"RS256\"]\nuser = \"sub\"\ncustomer = \"org.id\"\nplan = \"plan\"\n{more}\n"
    )
}

fn claims(user: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": "api", "exp": LATE, "sub": user, "org": {"id": 42}, "plan": "pro",
    })
}

const BY_TOKEN: &str = "[plans.free]\nquotas = \"2/min\"\n[plans.pro]\nquotas = \"5/min\"\n\
     [[policy]]\nname = \"org\"\nidentity = [\"customer\", \"ip\"]\nplan = \"free\"\n\
     [[policy]]\nname = \"user\"\nidentity = [\"user\", \"ip\"]\nquotas = \"3/min\"\n";

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn explain(gateway: &Gateway, request: &Value) -> Value {
    let text = request.to_string();
    let answer = gateway.post_admin("/v1/explain", &text);
    serde_json::from_str(&answer.text()).unwrap_or_else(|_| panic!("{}", answer.text()))
}

#[test]
fn verified_tokens_name_users_customers_and_plans_at_every_endpoint() {
    let (issuer, upstream) = (TokenIssuer::new("one"), Upstream::simple());
    let tables = format!(
        "{BY_TOKEN}{}[decisions]\nlisten = \"127.0.0.1:0\"\n",
        jwt(issuer.key_file().to_str().unwrap(), "invalid = \"refuse\"")
    );
    let gateway = start(&upstream, "", &tables);
    let (ann, ben) = (issuer.token(&claims("ann")), issuer.token(&claims("ben")));
    wait_until("the keys are loaded", || gateway.get("/", &bearer(&ann)).status() == 200);
    // Ann has three a minute, and the organisation five.
    let send = |token: &str| gateway.get("/", &bearer(token)).status();
    assert_eq!([send(&ann), send(&ann), send(&ann)], [200, 200, 429]);
    assert_eq!([send(&ben), send(&ben), send(&ben)], [200, 200, 429]);
    assert_eq!(gateway.metric("slidegate_token_checks_total", ""), 2.0, "each token once");
    // The decision API and forward-auth verify too.
    let question = json!({"path": "/", "headers": {"authorization": format!("Bearer {ben}")}});
    let answer = gateway.post("/v1/decide", &question.to_string()).text();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let identities: Vec<&Value> =
        answer["standings"].as_array().unwrap().iter().map(|own| &own["identity"]).collect();
    assert_eq!(identities, ["customer:42", "user:ben"], "{answer}");
    let original = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n";
    let auth = |token: &str| {
        let decisions = gateway.address("decisions");
        let mut wire = slidegate_testbed::Wire::connect(decisions);
        wire.send(format!("GET /v1/auth HTTP/1.1\r\nHost: x\r\n{original}{}\r\n", bearer(token)));
        wire.response().status()
    };
    assert_eq!(auth(&ben), 429);
    let (signed, signature) = ben.rsplit_once('.').unwrap();
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{signed}.{first}{}", &signature[1..]);
    assert_eq!((auth(&forged), send(&forged)), (401, 401));
    let refused = gateway.get("/", &bearer(&forged));
    let challenge = refused.value("www-authenticate");
    assert_eq!(challenge.as_deref(), Some("Bearer error=\"invalid_token\""));
    // What an operator sees, and never the token.
    let seen = explain(&gateway, &json!({"headers": {"authorization": format!("Bearer {ann}")}}));
    let expected = format!("token: valid, of {ISSUER}, user ann, customer 42, plan pro");
    assert_eq!(seen["credentials"][0], expected);
    let mut expired = claims("ann");
    expired["exp"] = json!(1_000_000_000);
    let expired = format!("Bearer {}", issuer.token(&expired));
    let seen = explain(&gateway, &json!({"headers": {"authorization": expired}}));
    assert_eq!(seen["credentials"][0], "token: not valid, and refused: it has expired");
    assert!(!gateway.output().contains(&ann[ann.len() - 20..]), "{}", gateway.output());
}

#[test]
fn a_forged_token_is_refused_where_it_would_give_the_plan() {
    let (issuer, upstream) = (TokenIssuer::new("one"), Upstream::simple());
    let jwks = issuer.key_file();
    let tables = format!("{BY_KEY}{}", jwt(jwks.to_str().unwrap(), "invalid = \"refuse\""));
    let gateway = start(&upstream, "", &tables);
    wait_until("the keys are loaded", || gateway.metric("slidegate_source_keys", ISSUER) == 1.0);
    let send = |issuer: &TokenIssuer, claims: &Value| {
        gateway.get("/", &bearer(&issuer.token(claims))).status()
    };
    let mut expired = claims("ann");
    expired["exp"] = json!(1_000_000_000);
    let stranger = TokenIssuer::new("one");
    assert_eq!((send(&stranger, &claims("ann")), send(&issuer, &expired)), (401, 401));
    // Five a minute of the token's plan, which the address spends.
    assert_eq!([(); 6].map(|()| send(&issuer, &claims("ann"))), [200, 200, 200, 200, 200, 429]);
}

#[test]
fn keys_rotate_at_the_provider_and_an_outage_of_it_changes_nothing() {
    let issuers = [TokenIssuer::new("old"), TokenIssuer::new("new")];
    let sets =
        [TokenIssuer::key_set(&[&issuers[0]]), TokenIssuer::key_set(&[&issuers[0], &issuers[1]])];
    let served = Arc::new(AtomicU16::new(0));
    let set = served.clone();
    let provider = Upstream::answering(move |_| match set.load(Ordering::Relaxed) {
        n @ (0 | 1) => json_response(&sets[usize::from(n)]),
        _ => b"HTTP/1.1 503 Away\r\ncontent-length: 0\r\n\r\n".to_vec(),
    });
    let upstream = Upstream::simple();
    let tables =
        "[[policy]]\nname = \"user\"\nidentity = [\"user\", \"ip\"]\nquotas = \"900/min\"\n";
    let tables = format!("{tables}{}", jwt(&provider.url(), "invalid = \"refuse\""));
    let gateway = start(&upstream, "", &tables);
    let [old, new] = issuers.each_ref().map(|issuer| issuer.token(&claims("ann")));
    let send = |token: &str| gateway.get("/", &bearer(token)).status();
    wait_until("the keys are loaded", || send(&old) == 200);
    served.store(1, Ordering::Relaxed);
    assert_eq!((send(&new), send(&old)), (200, 200), "an unknown key id is asked for at once");
    let fetched = provider.received().len();
    served.store(2, Ordering::Relaxed);
    let unknown = TokenIssuer::new("unknown").token(&claims("eve"));
    for _ in 0..50 {
        assert_eq!(send(&unknown), 401);
    }
    assert_eq!(provider.received().len(), fetched, "at most one fetch every 30 s");
    assert_eq!((send(&new), send(&old)), (200, 200));
}

/// Two tokens in one request, while no key set can be fetched, crashed another gateway:
/// CVE-2025-64527.
#[test]
fn an_issuer_that_is_away_is_noticed_by_the_operator_and_two_tokens_are_refused() {
    let (issuer, upstream) = (TokenIssuer::new("one"), Upstream::simple());
    let away = || b"HTTP/1.1 503 Away\r\ncontent-length: 0\r\n\r\n".to_vec();
    let provider = Upstream::answering(move |_| away());
    let tables = format!("{BY_TOKEN}{}", jwt(&provider.url(), "invalid = \"refuse\""));
    let gateway = start(&upstream, "", &tables);
    wait_until("the outage is seen", || readiness(&gateway).1["degraded"] == true);
    let (ready, report) = readiness(&gateway);
    assert_eq!((ready, &report["sources"][0]["source"]), (200, &json!(ISSUER)), "{report}");
    assert_eq!(gateway.metric("slidegate_source_up", ISSUER), 0.0);
    let [one, two] = ["ann", "bob"].map(|user| bearer(&issuer.token(&claims(user))));
    for (first, second) in [(&one, &two), (&one, &one), (&two, &one)] {
        assert_eq!(gateway.get("/", &format!("{first}{second}")).status(), 400);
    }
    assert_eq!(gateway.get("/", &one).status(), 503, "the key set may come");
    assert_eq!(gateway.get("/", "").status(), 200);
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn a_forged_token_that_is_ignored_is_charged_to_its_address() {
    let (issuer, upstream) = (TokenIssuer::new("one"), Upstream::simple());
    let jwks = issuer.key_file();
    let by_user =
        "[[policy]]\nname = \"user\"\nidentity = [\"user\", \"ip\"]\nquotas = \"3/min\"\n";
    let tables = format!("{by_user}{}", jwt(jwks.to_str().unwrap(), ""));
    let gateway = start(&upstream, "", &tables);
    wait_until("the keys are loaded", || gateway.metric("slidegate_source_keys", ISSUER) == 1.0);
    let stranger = TokenIssuer::new("one");
    let forged = |user: &str| stranger.token(&claims(user));
    let statuses =
        ["ann", "bob", "eve", "dan"].map(|user| gateway.get("/", &bearer(&forged(user))).status());
    assert_eq!(statuses, [200, 200, 200, 429], "whichever user they name");
    let spent = accounts(&gateway, "ip:127.0.0.1");
    assert_eq!(spent["accounts"][0]["quotas"][0]["spent"], 3, "{spent}");
    assert_eq!(gateway.get("/", &bearer(&issuer.token(&claims("ann")))).status(), 200);
}

#[test]
fn a_flood_of_tokens_is_refused_before_a_signature_is_checked() {
    for (invalid, refused) in [("ignore", 200), ("refuse", 401)] {
        flood_with_tokens(invalid, refused);
    }
}

fn flood_with_tokens(invalid: &str, refused: u16) {
    let (issuer, upstream) = (TokenIssuer::new("one"), Upstream::simple());
    let flood = "[decisions]\nlisten = \"127.0.0.1:0\"\n\
                 [[policy]]\nname = \"flood\"\nscope = \"local\"\nquotas = \"5/min\"\n";
    let jwks = issuer.key_file();
    let user = "[[policy]]\nname = \"user\"\nidentity = [\"user\", \"ip\"]\nquotas = \"900/min\"\n";
    let tables =
        format!("{flood}{user}{}", jwt(jwks.to_str().unwrap(), &format!("invalid = {invalid:?}")));
    let gateway = start(&upstream, "", &tables);
    wait_until("the keys are loaded", || gateway.metric("slidegate_source_keys", ISSUER) == 1.0);
    // Each has another signature, so each would cost a check.
    let good = issuer.token(&claims("eve"));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let forged = |n: usize| {
        let mut bytes = signature.as_bytes().to_vec();
        bytes[n] = if bytes[n] == b'A' { b'B' } else { b'A' };
        format!("{signed}.{}", String::from_utf8(bytes).unwrap())
    };
    let statuses: Vec<u16> =
        (0..40).map(|n| gateway.get("/", &bearer(&forged(n))).status()).collect();
    assert!(statuses[..5].iter().all(|status| *status == refused), "{statuses:?}");
    assert!(statuses[5..].iter().all(|status| *status == 429), "{statuses:?}");
    let checks = gateway.metric("slidegate_token_checks_total", "");
    assert!(checks <= 5.0, "{checks}");
    // The decision API is bounded by the address that its caller names.
    let verdicts: Vec<String> = (40..80)
        .map(|n| {
            let authorization = format!("Bearer {}", forged(n));
            let headers = json!({"authorization": authorization});
            let question = json!({"path": "/", "client": "203.0.113.9", "headers": headers});
            let answer = gateway.post("/v1/decide", &question.to_string()).text();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            answer["verdict"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(verdicts[5..].iter().all(|verdict| verdict == "deny"), "{verdicts:?}");
    assert!(gateway.metric("slidegate_token_checks_total", "") <= checks + 5.0);
}

#[test]
fn a_token_has_one_spelling_and_two_customers_are_none() {
    let (issuer, upstream) = (TokenIssuer::new("one"), Upstream::simple());
    let without_customer = slidegate::policy::KeyHash::Slidegate.hex(b"k2");
    let service = Upstream::answering(move |request| {
        json_response(match request.target().ends_with(&without_customer) {
            true => r#"{"plan": "pro"}"#,
            false => r#"{"customer": "other", "plan": "pro"}"#,
        })
    });
    let source = format!("[key_source]\nurl = \"{}/{{digest}}\"\n", service.url());
    let jwks = issuer.key_file();
    let blocked = "[blocked]\ncustomers = [\"evil\"]\n";
    let tables = format!("{BY_TOKEN}{blocked}{source}{}", jwt(jwks.to_str().unwrap(), ""));
    let gateway = start(&upstream, "", &tables);
    wait_until("the keys are loaded", || gateway.metric("slidegate_source_keys", ISSUER) == 1.0);
    let token = issuer.token(&claims("ann"));
    // Upstream may read a token in these.
    for spelling in ["Bearer\t", "Bearer  ", "Bearer "] {
        let padding = if spelling == "Bearer " { "=" } else { "" };
        let header = format!("Authorization: {spelling}{token}{padding}\r\n");
        assert_eq!(gateway.get("/", &header).status(), 400, "{spelling:?}");
    }
    for scheme in ["", "Token ", "JWT ", "Bearer: ", "DPoP "] {
        let header = format!("Authorization: {scheme}{token}\r\n");
        assert_eq!(gateway.get("/", &header).status(), 400, "{scheme:?}");
    }
    assert_eq!(gateway.get("/", &bearer(&token)).status(), 200);
    let both = format!("{}X-API-Key: k1\r\n", bearer(&token));
    assert_eq!(gateway.get("/", &both).status(), 401, "a key of one customer, a token of another");
    let both = format!("{}X-API-Key: k2\r\n", bearer(&token));
    assert_eq!(gateway.get("/", &both).status(), 200, "a key without a customer");
    let mut evil = claims("eve");
    evil["org"]["id"] = json!("evil");
    let both = format!("{}X-API-Key: k2\r\n", bearer(&issuer.token(&evil)));
    assert_eq!(gateway.get("/", &both).status(), 403, "the key does not hide whose token it is");
}

#[test]
fn a_listed_key_is_not_looked_up_and_lends_nothing_to_a_token() {
    let (issuer, upstream) = (TokenIssuer::new("one"), Upstream::simple());
    let service = Upstream::answering(|_| {
        thread::sleep(Duration::from_secs(2));
        json_response("{}")
    });
    let source = format!("[key_source]\nurl = \"{}/{{digest}}\"\n", service.url());
    let keys = "[[api_key]]\ncustomer = \"acme\"\nkey = \"k1\"\nplan = \"pro\"\n";
    let jwks = issuer.key_file();
    let tables = format!("{BY_TOKEN}{keys}{source}{}", jwt(jwks.to_str().unwrap(), ""));
    let gateway = start(&upstream, "", &tables);
    wait_until("the keys are loaded", || gateway.metric("slidegate_source_keys", ISSUER) == 1.0);
    assert_eq!(status(&gateway, "k1"), 200);
    let explained = explain(&gateway, &json!({"headers": {"x-api-key": "k1"}}));
    assert_eq!(explained["policies"][0]["identity"], "customer:acme", "{explained}");
    assert_eq!(explained["credentials"], Value::Null, "no source is asked for it");
    assert_eq!(service.received().len(), 0, "the configuration has the key");
    let both = format!("{}X-API-Key: k1\r\n", bearer(&issuer.token(&claims("ann"))));
    assert_eq!(gateway.get("/", &both).status(), 401, "a key of acme, a token of 42");
}

#[test]
fn a_question_in_a_list_is_never_answered_without_its_key() {
    let upstream = Upstream::simple();
    let service = Upstream::answering(|_| {
        thread::sleep(Duration::from_millis(150));
        json_response(r#"{"customer": "acme"}"#)
    });
    let source = format!("[key_source]\nurl = \"{}/{{digest}}\"\n", service.url());
    let flood = "[decisions]\nlisten = \"127.0.0.1:0\"\n\
                 [[policy]]\nname = \"flood\"\nscope = \"local\"\nquotas = \"1/100ms\"\n";
    let tables = format!("{flood}{BY_KEY}{source}");
    let gateway = start(&upstream, "unknown_keys = \"refuse\"", &tables);
    let ask = |questions: Value| gateway.post("/v1/decide", &questions.to_string()).text();
    for round in 0..3 {
        // No room for the first client while keys are looked up, and room again when that has ended.
        ask(json!({"path": "/", "client": "203.0.113.7"}));
        let question = |client: &str, key: String| json!({"path": "/", "client": client, "headers": {"x-api-key": key}});
        let first = question("203.0.113.7", format!("first-{round}"));
        let slow = question("203.0.113.8", format!("slow-{round}"));
        let answers = ask(json!([first, slow]));
        assert!(!answers.contains("unknown-key"), "{answers}");
    }
}

const STANDING: &str = "[standing]\nquotas = \"10000/min\"\n";

/// The quotas that a caller sees, as `IDENTITY REMAINING/UNITS`.
fn seen(gateway: &Gateway, headers: &str) -> Vec<String> {
    let answer = gateway.get("/rate-limits?units=1", headers);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer: Value = serde_json::from_str(&answer.text()).unwrap();
    let quotas = answer["standings"].as_array().unwrap().iter();
    let quotas = quotas.map(|own| {
        format!("{} {}/{}", own["identity"].as_str().unwrap(), own["remaining"], own["units"])
    });
    quotas.collect()
}

#[test]
fn keys_of_a_database_see_where_their_customer_stands() {
    let (server, upstream) = (PostgresServer::start(), Upstream::simple());
    let (database, source) = table(&server);
    database.sql(
        "update api_keys set quotas = '4/h, 100/day', plan = null where customer = 'customer-0'",
    );
    let tables = format!("{BY_KEY}{source}{STANDING}");
    let gateway = start(&upstream, "unknown_keys = \"refuse\"", &tables);
    loaded(&gateway);
    let of = |key: &str| seen(&gateway, &format!("X-API-Key: {key}\r\n"));
    assert_eq!(statuses(&gateway, ["k0", "k1"]), [200, 200]);
    let left = ["customer:customer-0 2/4", "customer:customer-0 98/100"];
    for _ in 0..20 {
        assert_eq!(
            (of("k0"), of("k1")),
            (left.map(Into::into).into(), left.map(Into::into).into())
        );
    }
    assert_eq!(of("k2"), ["customer:customer-1 5/5"], "another customer, by its plan");
    assert_eq!(seen(&gateway, ""), ["ip:127.0.0.1 2/2"]);
    let other = gateway.get("/rate-limits?customer=customer-0&identity=customer:customer-0", "");
    assert!(!other.text().contains("customer-0"), "{}", other.text());
    let ask = |key: &str| gateway.get("/rate-limits", &format!("X-API-Key: {key}\r\n")).status();
    assert_eq!(ask("k99"), 401);
    // Away: what is known counts, and an unknown key may be a new one.
    server.stop();
    wait_until("the outage is seen", || readiness(&gateway).1["degraded"] == true);
    assert_eq!(of("k1"), left);
    assert_eq!(ask("k99"), 503);
    assert_eq!(statuses(&gateway, ["k0", "k1", "k0"]), [200, 200, 429], "nothing else was spent");
    assert_eq!(of("k0"), ["customer:customer-0 0/4", "customer:customer-0 96/100"]);
}

#[test]
fn tokens_see_where_their_user_and_customer_stand() {
    let (issuer, upstream) = (TokenIssuer::new("one"), Upstream::simple());
    let jwks = issuer.key_file();
    let refusing = |jwks: &str| {
        let tables = format!("{BY_TOKEN}{STANDING}{}", jwt(jwks, "invalid = \"refuse\""));
        start(&upstream, "", &tables)
    };
    let gateway = refusing(jwks.to_str().unwrap());
    wait_until("the keys are loaded", || gateway.metric("slidegate_source_keys", ISSUER) == 1.0);
    let [ann, ben] = ["ann", "ben"].map(|user| bearer(&issuer.token(&claims(user))));
    assert_eq!(gateway.get("/", &ann).status(), 200);
    for _ in 0..20 {
        assert_eq!(seen(&gateway, &ann), ["customer:42 4/5", "user:ann 2/3"]);
        assert_eq!(seen(&gateway, &ben), ["customer:42 4/5", "user:ben 3/3"]);
    }
    assert_eq!(seen(&gateway, ""), ["ip:127.0.0.1 2/2", "ip:127.0.0.1 3/3"]);
    let forged = bearer(&TokenIssuer::new("one").token(&claims("ann")));
    let refused = gateway.get("/rate-limits", &forged);
    assert_eq!((refused.status(), refused.text().contains("remaining")), (401, false));
    assert_eq!(gateway.get("/", &ann).status(), 200);
    assert_eq!(seen(&gateway, &ann), ["customer:42 3/5", "user:ann 1/3"]);
    // No key has arrived, so whose token it is cannot be told.
    let away = refusing("http://127.0.0.1:9/jwks.json");
    let refused = away.get("/rate-limits", &ann);
    assert_eq!((refused.status(), refused.text().contains("remaining")), (503, false));
    assert_eq!(seen(&away, ""), ["ip:127.0.0.1 2/2", "ip:127.0.0.1 3/3"]);
}
