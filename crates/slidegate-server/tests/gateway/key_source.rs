//! Keys of a service: with quotas of their own on a shared Redis, and at the decision API.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slidegate::policy::KeyHash;
use slidegate_testbed::http1::response;
use slidegate_testbed::{Gateway, GatewayOptions, RedisServer, Upstream, Wire, wait_until};

use crate::customers::accounts;
use crate::redis::on_redis;
use crate::{configure, options};

/// A service that knows `k0` to `k9` as keys of one customer, whose quota is so many units a minute,
/// and cannot say anything of `broken`.
fn service(units: &Arc<AtomicU32>) -> Upstream {
    let units = units.clone();
    let digests: Vec<String> = (0..10).map(|n| digest(&format!("k{n}"))).collect();
    let broken = digest("broken");
    Upstream::answering(move |request| {
        let asked = request.target().trim_start_matches('/').to_owned();
        let quota = format!("{}/min", units.load(Ordering::Relaxed));
        let body = json!({"customer": "acme", "quotas": [quota]}).to_string();
        let status = match asked {
            known if digests.contains(&known) => "200 OK",
            failing if failing == broken => "500 Internal Server Error",
            _ => "404 Not Found",
        };
        response(status, "Content-Type: application/json\r\n", &body).into_bytes()
    })
}

/// How long a request waits for a look-up.
const DECISION_DEADLINE: Duration = Duration::from_millis(200);

fn digest(key: &str) -> String {
    KeyHash::Sha256.hex(key.as_bytes())
}

fn start(setup: GatewayOptions, service: &Upstream, more: &str, keys: &str) -> Gateway {
    let url = format!("{}/{{digest}}", service.url());
    let source = format!("[key_source]\nurl = {url:?}\nhash = \"sha256\"\n{more}");
    let by_key = format!("identity = [\"api-key\", \"ip\"]\nplan = \"free\"\n{keys}");
    let plan = "[plans.free]\nquotas = \"2/min\"";
    let setup = setup.tables(&source).tables(plan).policy("api", "", &by_key);
    let text = format!("unknown_keys = \"refuse\"\n{}", setup.text());
    Gateway::from(options().configuration(&text).start())
}

fn header(key: &str) -> String {
    format!("X-API-Key: {key}\r\n")
}

/// A client that exceeds its bound of look-ups gets 429. Only in an outage does `on_error` ignore keys.
#[test]
fn inventing_keys_gets_none_past_unknown_keys() {
    let upstream = Upstream::simple();
    let service = service(&Arc::new(AtomicU32::new(900)));
    let gateway = &start(configure(&upstream), &service, "on_error = \"ignore\"", "");
    let statuses: Vec<u16> = thread::scope(|scope| {
        let invent = |n: usize| {
            scope.spawn(move || {
                let mut wire = gateway.wire();
                let mut invent = |i: usize| {
                    let began = Instant::now();
                    let answer = wire.get("/", &header(&format!("invented-{n}-{i}")));
                    if answer.status() == 429 {
                        assert_eq!(answer.value("retry-after").as_deref(), Some("1"));
                    }
                    // Only a look-up that takes too long is an outage.
                    (began.elapsed() < DECISION_DEADLINE).then(|| answer.status())
                };
                (0..200).filter_map(&mut invent).collect::<Vec<u16>>()
            })
        };
        let threads: Vec<_> = (0..4).map(invent).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
    assert_eq!(count(401) + count(429), statuses.len(), "{statuses:?}");
    assert!(count(401) > 0 && count(429) > 0, "{statuses:?}");
    let refused = gateway.metric("slidegate_blocks_total", "unchecked-credentials");
    assert!(refused >= count(429) as f64, "{refused}");
}

/// Sends requests with different keys to all gateways at once until each client was refused ten times.
fn burst(gateways: &[Gateway]) {
    thread::scope(|scope| {
        for n in 0..gateways.len() * 2 {
            scope.spawn(move || {
                let (mut wire, mut refused) = (gateways[n % gateways.len()].wire(), 0);
                while refused < 10 {
                    match wire.get("/", &header(&format!("k{n}"))).status() {
                        200 => {}
                        429 => refused += 1,
                        // A busy machine may exceed the deadline of a first look-up.
                        other => assert_eq!(other, 503),
                    }
                }
            });
        }
    });
}

/// They are never leased, for their windows may be too short for it.
#[test]
fn quotas_of_a_customer_are_exact_over_gateways_on_one_redis() {
    for keys in ["", "consistency = \"async\""] {
        let (redis, upstream) = (RedisServer::start(), Upstream::simple());
        let units = Arc::new(AtomicU32::new(40));
        let service = service(&units);
        let setup = on_redis(configure(&upstream), &redis.url());
        let gateways = [(); 2].map(|()| start(setup.clone(), &service, "fresh = \"200ms\"", keys));
        burst(&gateways);
        assert_eq!(upstream.received().len(), 40, "{keys}");
        // More units for the same customer: what was spent stays spent.
        units.store(50, Ordering::Relaxed);
        wait_until("the new quota", || {
            burst(&gateways);
            upstream.received().len() >= 50
        });
        burst(&gateways);
        assert_eq!(upstream.received().len(), 50, "{keys}");
        assert_eq!(gateways[0].get("/", &header("k99")).status(), 401);
    }
}

#[test]
fn keys_are_looked_up_for_the_decision_api_and_forward_auth() {
    let upstream = Upstream::simple();
    let service = service(&Arc::new(AtomicU32::new(4)));
    let decisions = "[decisions]\nlisten = \"127.0.0.1:0\"";
    let gateway = start(configure(&upstream).tables(decisions), &service, "fresh = \"60s\"", "");
    let ask = |target: &str, key: &str| -> Value {
        let question = json!({"path": "/", "client": "192.0.2.1", "headers": {"x-api-key": key}});
        let answer = gateway.post(target, &question.to_string());
        serde_json::from_str(&answer.text()).unwrap()
    };
    let decide = |key: &str| ask("/v1/decide", key);
    let auth = |key: &str| {
        let original = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n";
        Wire::connect(gateway.address("decisions"))
            .get("/v1/auth", &format!("{original}{}", header(key)))
            .status()
    };
    // A busy machine may exceed the deadline of a first look-up.
    wait_until("the keys are known", || {
        ["k1", "k2"].iter().all(|key| ask("/v1/decide?peek=true", key)["verdict"] == "allow")
    });
    let first = decide("k1");
    assert_eq!(first["verdict"], "allow", "{first}");
    let standing = &first["standings"][0];
    assert_eq!(
        (&standing["identity"], &standing["units"], &standing["remaining"]),
        (&"customer:acme".into(), &4.into(), &3.into())
    );
    assert_eq!(["k1", "k2", "k2", "k1"].map(auth), [200, 200, 200, 429]);
    assert_eq!(decide("k2")["verdict"], "deny");
    // An operator sees it by the quotas that the service says, not by the default plan's.
    let density = accounts(&gateway, "customer:acme/density?policy=api");
    let quota = &density["accounts"][0]["quotas"][0];
    assert_eq!((&quota["units"], &quota["spent"]), (&4.into(), &4.into()), "{density}");
    let status_of = |key: &str| decide(key)["status"].clone();
    wait_until("the key to be unknown", || status_of("k77") == 401 && auth("k77") == 401);
    assert_eq!((status_of("broken"), auth("broken")), (503.into(), 503));
}
