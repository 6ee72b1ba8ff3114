//! Several gateways on one Redis, and what happens without it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slidegate_testbed::{
    Certificates, CommandCounts, Directory, FaultyNetwork, Gateway, GatewayOptions, RedisSentinels,
    RedisServer, Reply, Upstream, ledger_keys, wait_until,
};

use crate::{configure, options};

pub(crate) fn on_redis(setup: GatewayOptions, url: &str) -> GatewayOptions {
    setup.tables(&format!("[store]\nkind = \"redis\"\nurl = {url:?}\ndeadline = \"2s\""))
}

/// The verdicts of a list of questions about one user each.
fn decide_list(gateway: &Gateway, users: &[&str]) -> Vec<String> {
    let questions: Vec<Value> =
        users.iter().map(|user| json!({"user": user, "client": "203.0.113.7"})).collect();
    let answers = gateway.post("/v1/decide", &Value::from(questions).to_string());
    let answers: Vec<Value> = serde_json::from_str(&answers.text()).unwrap();
    let answers = answers.iter();
    answers.map(|answer| answer["verdict"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_list_of_questions_is_decided_in_order() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let decisions = "[decisions]\nlisten = \"127.0.0.1:0\"";
    let setup = on_redis(configure(&upstream), &redis.url()).tables(decisions);
    let gateway =
        setup.policy("api", "20/min", "identity = \"user\"\nanonymous = \"skip\"").start();
    let verdicts = decide_list(&gateway, &["42"; 60]);
    assert!(verdicts[..20].iter().all(|verdict| verdict == "allow"), "{verdicts:?}");
    assert!(verdicts[20..].iter().all(|verdict| verdict == "deny"), "{verdicts:?}");
}

/// What a local policy has spent on a request that Redis denies is refunded, and the next question
/// has it.
#[test]
fn a_denied_question_leaves_a_local_policys_units_to_the_next() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let decisions = "[decisions]\nlisten = \"127.0.0.1:0\"";
    let gateway = on_redis(configure(&upstream), &redis.url())
        .tables(decisions)
        .policy("flood", "2/min", "scope = \"local\"")
        .policy("api", "1/min", "identity = \"user\"\nanonymous = \"skip\"")
        .start();
    let verdicts = decide_list(&gateway, &["a", "a", "a", "b", "c"]);
    assert_eq!(verdicts, ["allow", "deny", "deny", "allow", "deny"]);
}

#[test]
fn gateways_on_one_redis_share_a_budget_exactly() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(configure(&upstream), &redis.url()).policy("api", "200/min", "");
    let gateways = [setup.start(), setup.start()];
    let allowed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let gateway = &gateways[n % 2];
                scope.spawn(move || {
                    let mut wire = gateway.wire();
                    (0..50).filter(|_| wire.get("/", "").status() == 200).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((allowed, upstream.received().len()), (200, 200));
    drop(gateways);
    assert_eq!(setup.start().status("/"), 429, "a new process knows it, too");
}

/// Requests to gateways in turn, until each client was refused ten times; how many passed.
fn burst(gateways: &[Gateway]) -> usize {
    thread::scope(|scope| {
        let client = |gateway| {
            scope.spawn(move || {
                let (mut wire, mut allowed, mut refused): (_, usize, _) =
                    (Gateway::wire(gateway), 0, 0);
                while refused < 10 {
                    match wire.get("/", "").status() {
                        200 => allowed += 1,
                        _ => refused += 1,
                    }
                }
                allowed
            })
        };
        let clients: Vec<_> = gateways.iter().chain(gateways).map(client).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

/// How many requests were decided from units taken ahead.
fn leased_decisions(gateway: &Gateway) -> f64 {
    gateway.metric("slidegate_lease_decisions_total", "")
}

#[test]
fn gateways_with_leases_share_a_budget_exactly() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let leased = "consistency = \"async\"";
    let setup = on_redis(configure(&upstream), &redis.url()).policy("api", "1500/min", leased);
    let gateways: Vec<Gateway> = (0..3).map(|_| setup.start()).collect();
    let mut allowed = burst(&gateways);
    // What leases had left when the others were refused is refunded, and denials are kept for a second.
    thread::sleep(Duration::from_millis(1300));
    allowed += burst(&gateways);
    assert_eq!(upstream.received().len(), allowed);
    assert!(allowed <= 1500, "{allowed}");
    assert!(allowed >= 1500 * 95 / 100, "{allowed} were used");
    assert!(
        gateways.iter().map(leased_decisions).sum::<f64>() > 100.0,
        "{}",
        gateways[0].metrics()
    );
    let refused = gateways[0].get("/", "");
    assert_eq!(refused.status(), 429);
    assert!(refused.text().contains("\"api\""), "{}", refused.text());
}

/// Its units are gone until they leave the window, and were a quarter of what was left at most.
#[test]
fn a_gateway_that_is_killed_takes_its_lease_along() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let leased = "consistency = \"async\"";
    let setup = on_redis(configure(&upstream), &redis.url()).policy("api", "1000/min", leased);
    let (killed, other) = (setup.start(), setup.start());
    let (mut wire, mut before) = (killed.wire(), 0);
    while before < 100 || leased_decisions(&killed) == 0.0 {
        assert_eq!(wire.get("/", "").status(), 200);
        before += 1;
    }
    killed.signal("KILL");
    assert_eq!(killed.wait(), None, "a signal ended it");
    let allowed = before + burst(&[other]);
    assert_eq!(upstream.received().len(), allowed);
    assert!((700..=1000).contains(&allowed), "{allowed}");
}

/// What it has leased and not used is free for the others at once.
#[test]
fn a_gateway_that_stops_gives_its_lease_back() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let leased = "consistency = \"async\"";
    let setup = on_redis(configure(&upstream), &redis.url()).policy("api", "1000/h", leased);
    let (stopped, other) = (setup.start(), setup.start());
    let (mut wire, mut spent) = (stopped.wire(), 0);
    while spent < 100 || leased_decisions(&stopped) == 0.0 {
        assert_eq!(wire.get("/", "").status(), 200);
        spent += 1;
    }
    // No lease is on its way any more.
    thread::sleep(Duration::from_millis(100));
    stopped.signal("TERM");
    assert_eq!(stopped.wait(), Some(0));
    let left = other.get("/", "").value("x-ratelimit-remaining");
    assert_eq!(left, Some((1000 - spent - 1).to_string()));
}

#[test]
fn services_with_their_own_namespace_share_nothing() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = on_redis(configure(&upstream), &redis.url());
    let keys = "identity = [\"header:x-user\", \"ip\"]\nban = { after = \"2/min\", for = \"1h\" }";
    let trusting = |setup: GatewayOptions| setup.key("trusted_proxies", "[\"127.0.0.0/8\"]");
    let shop = trusting(setup).policy("api", "2/min", keys);
    let in_namespace = |name: &str| options().argument("--namespace").argument(name);
    let (plain, one, other) = (
        shop.start(),
        shop.start_with(in_namespace("shop")),
        shop.start_with(in_namespace("blog")),
    );
    let statuses =
        |gateway: &Gateway| [(); 5].map(|()| gateway.get("/", "X-User: ann\r\n").status());
    for gateway in [&plain, &one, &other] {
        assert_eq!(statuses(gateway), [200, 200, 429, 429, 429], "{}", gateway.output());
    }
    let all = || -> Vec<String> {
        redis.command(&["KEYS", "*"]).array().into_iter().map(Reply::text).collect()
    };
    // The ledger, the log of bans, the heartbeats and the secret of each.
    wait_until("bans and heartbeats to be shared", || all().len() == 12);
    let keys = all();
    let count = |start: &str| keys.iter().filter(|key| key.starts_with(start)).count();
    assert_eq!(
        (count("slidegate:"), count("shop:slidegate:"), count("blog:slidegate:")),
        (4, 4, 4),
        "{keys:?}"
    );
    let same = shop.start_with(in_namespace("shop"));
    assert_eq!(same.get("/", "X-User: ann\r\n").status(), 429, "the same namespace");
}

#[test]
fn capacities_bound_the_fallback_and_local_policies() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let gateway = configure(&upstream)
        .tables(&format!("[store]\nurl = {:?}\ncapacity = 1500\nlocal_capacity = 700", redis.url()))
        .policy("api", "1/min", "")
        .start();
    let capacity = |store: &str| gateway.metric("slidegate_memory_capacity", store);
    assert_eq!((capacity("\"fallback\""), capacity("\"local\"")), (1500.0, 700.0));
    assert_eq!(gateway.metric("slidegate_ban_capacity", ""), 700.0);
    assert_eq!(gateway.status("/"), 200);
    let accounts = gateway.metric("slidegate_memory_accounts", "\"fallback\"");
    assert_eq!(accounts, 1.0, "what Redis has admitted is known here too");
}

#[test]
fn without_redis_each_policy_goes_its_own_way() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let url = redis.url();
    redis.kill();
    for (way, statuses) in [("local", [200, 429]), ("allow", [200, 200]), ("deny", [503, 503])] {
        let gateway = on_redis(configure(&upstream), &url)
            .policy("api", "1/min", &format!("on_store_error = {way:?}"))
            .start();
        for status in statuses {
            let answer = gateway.get("/", "");
            assert_eq!(answer.status(), status, "{way}");
            if status == 503 {
                answer.problem();
                assert!(answer.text().contains("#temporary-reduced-capacity"), "{}", answer.text());
            }
        }
        assert_eq!(gateway.admin_page("/healthz").status(), 200, "the process is well");
        let ready = if way == "deny" { 503 } else { 200 };
        wait_until("it to notice", || {
            gateway.status("/");
            let page = gateway.admin_page("/readyz");
            page.status() == ready && page.text().contains("\"degraded\":true")
        });
    }
}

#[test]
fn a_gateway_is_ready_only_once_redis_has_replied() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    redis.kill();
    let start = |way: &str| {
        on_redis(configure(&upstream), &redis.url())
            .policy("api", "1/min", &format!("on_store_error = {way:?}"))
            .start()
    };
    let gateways = [(start("deny"), 503), (start("local"), 200)];
    for (gateway, status) in &gateways {
        let page = gateway.admin_page("/readyz");
        let text = page.text();
        assert_eq!(page.status(), *status, "before the first request: {text}");
        assert!(text.contains("\"degraded\":true") && text.contains("\"state\":\"unreached\""));
    }
    redis.restart();
    for (gateway, _) in &gateways {
        wait_until("Redis to be found without a request", || {
            let page = gateway.admin_page("/readyz");
            let text = page.text();
            page.status() == 200
                && text.contains("\"degraded\":false")
                && text.contains("\"state\":\"untried\"")
        });
    }
}

#[test]
fn a_redis_that_goes_and_comes_back_under_load_costs_no_request() {
    let (redis, upstream) = (RedisServer::options().appendonly().start(), Upstream::simple());
    let gateway = on_redis(configure(&upstream), &redis.url()).policy("api", "300/min", "").start();
    let over = AtomicBool::new(false);
    let [allowed, refused, others] = [(); 3].map(|()| AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut wire = gateway.wire();
                while !over.load(Ordering::SeqCst) {
                    match wire.get("/", "").status() {
                        200 => allowed.fetch_add(1, Ordering::SeqCst),
                        429 => refused.fetch_add(1, Ordering::SeqCst),
                        _ => others.fetch_add(1, Ordering::SeqCst),
                    };
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        wait_until("some to pass", || allowed.load(Ordering::SeqCst) > 50);
        redis.kill();
        let before = allowed.load(Ordering::SeqCst);
        wait_until("some to pass without Redis", || allowed.load(Ordering::SeqCst) > before + 50);
        redis.restart();
        wait_until("Redis to be asked again", || {
            gateway.admin_page("/readyz").text().contains("\"degraded\":false")
        });
        wait_until("the quota to be spent", || refused.load(Ordering::SeqCst) > 0);
        over.store(true, Ordering::SeqCst);
    });
    assert_eq!(others.load(Ordering::SeqCst), 0, "neither an error nor a hang");
    // What was in flight when Redis went may count twice: stricter, never looser.
    let allowed = allowed.load(Ordering::SeqCst);
    assert!((290..=300).contains(&allowed), "{allowed}");
    assert!(gateway.metric("slidegate_store_fallbacks_total", "") > 0.0, "{}", gateway.metrics());
}

#[test]
fn a_silent_redis_delays_no_request_beyond_the_deadline() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let setup = configure(&upstream).policy("api", "1000/min", "");
    let store = format!("[store]\nkind = \"redis\"\nurl = {:?}\ndeadline = \"50ms\"", redis.url());
    let gateway = setup.tables(&store).start();
    assert_eq!(gateway.status("/"), 200);
    redis.pause();
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(gateway.status("/"), 200);
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // Five wait for the deadline; then the breaker is open, and only probes do.
    let late = gateway.metric("slidegate_store_calls_total", "deadline");
    assert!((5.0..20.0).contains(&late), "{late} of 50 calls waited");
    assert_eq!(gateway.metric("slidegate_store_breaker", "closed"), 0.0);
    redis.resume();
}

#[test]
fn a_gateway_that_starts_before_redis_finds_it() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let network = FaultyNetwork::in_front_of(&redis);
    network.refuse();
    let gateway =
        on_redis(configure(&upstream), &network.url()).policy("api", "100/min", "").start();
    assert_eq!(gateway.status("/"), 200);
    network.pass();
    wait_until("Redis to be found", || {
        gateway.status("/");
        !ledger_keys(&redis).is_empty()
    });
}

#[test]
fn sentinels_and_their_primaries_by_tls_with_a_private_authority() {
    let (redis, upstream) = (RedisSentinels::options().mutual_tls().start(), Upstream::simple());
    let hosts: Vec<String> =
        redis.sentinels().iter().map(|it| format!("127.0.0.1:{}", it.port())).collect();
    let url = format!("rediss-sentinel://{}/{}", hosts.join(","), redis.master_name());
    let files = redis.servers()[0].certificates().unwrap();
    let setup = |ca: &Path| {
        on_redis(configure(&upstream), &url)
            .tables(&format!("ca = {ca:?}"))
            .tables(&format!("certificate = {:?}\nkey = {:?}", files.client, files.client_key))
            .policy("api", "3/min", "on_store_error = \"deny\"")
    };
    let gateways = [setup(&files.ca).start(), setup(&files.ca).start()];
    let statuses = [0, 1, 0, 1].map(|gateway: usize| gateways[gateway].status("/"));
    assert_eq!(statuses, [200, 200, 200, 429]);
    redis.wait_until_replicated();
    redis.kill_primary();
    redis.wait_for_failover();
    wait_until("the new primary to be found", || gateways[0].status("/") == 429);

    let other = Certificates::new();
    let gateway = setup(&other.ca).start();
    assert_eq!(gateway.status("/"), 503);
    let warned = || logged(&gateway, "UnknownIssuer");
    wait_until("the log to tell why", || !warned().is_empty());
}

/// Lines of the log with this text.
fn logged(gateway: &Gateway, text: &str) -> Vec<String> {
    gateway.output().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// The only warning of a key, which is written by another thread than the one that answers.
fn key_warning(gateway: &Gateway) -> String {
    let warnings = || logged(gateway, "Redis cannot count in a key");
    wait_until("a warning of a key", || !warnings().is_empty());
    let [warning] = <[String; 1]>::try_from(warnings()).expect("once a minute");
    warning
}

/// A user of this server who may touch these keys only.
fn with_user(keys: &str) -> RedisServer {
    RedisServer::options().appendonly().line(&format!("user gate on >secret {keys} +@all")).start()
}

fn as_user(redis: &RedisServer) -> String {
    redis.url().replace("redis://", "redis://gate:secret@")
}

/// Whether so many requests failed because of a key. Replays of what was admitted without Redis are not
/// counted, however often they are tried.
fn has_key_errors(gateway: &Gateway, label: &str, requests: f64) -> bool {
    gateway.metric("slidegate_store_key_errors_total", label) == requests
}

#[test]
fn a_key_that_cannot_be_counted_in_is_reported_with_its_policy_and_reason() {
    let upstream = Upstream::simple();
    let key = "slidegate:{ip:127.0.0.1}:api:min";
    let cases: [(&str, &[&str], &str); 5] = [
        ("packed", &["LPUSH", key, "a"], "wrong-type"),
        ("packed", &["SET", key, "5"], "unreadable"),
        ("sorted-set", &["SET", key, "5"], "wrong-type"),
        ("sorted-set", &["ZADD", key, "1700000000000000000", "a"], "score-unit"),
        ("packed", &["PING"], "no-permission"),
    ];
    for (layout, command, reason) in cases {
        let keys = if reason == "no-permission" { "~other:*" } else { "~slidegate:*" };
        let redis = with_user(keys);
        redis.command(command);
        let gateway = on_redis(configure(&upstream), &as_user(&redis))
            .tables(&format!("layout = {layout:?}"))
            .policy("api", "100/min", "")
            .policy(
                "others",
                "100/min",
                "match = { path = \"/others\" }\nidentity = [\"everyone\"]",
            )
            .start();
        for _ in 0..8 {
            assert_eq!(gateway.status("/"), 200, "{reason}");
        }
        let label = format!("policy=\"api\",reason=\"{reason}\"");
        wait_until("each request to be counted once", || has_key_errors(&gateway, &label, 8.0));
        let ready = gateway.admin_page("/readyz");
        let expected = format!("\"key_errors\":[{{\"policy\":\"api\",\"reason\":\"{reason}\"}}]");
        assert_eq!(ready.status(), 200, "{reason}");
        assert!(ready.text().contains("\"degraded\":true"), "{reason}: {}", ready.text());
        assert!(ready.text().contains("\"state\":\"closed\""), "Redis is well: {}", ready.text());
        assert!(ready.text().contains(&expected), "{reason}: {}", ready.text());

        let warning = key_warning(&gateway);
        for part in ["WARN", "\"policy\":\"api\"", &format!("\"reason\":\"{reason}\""), key] {
            assert!(warning.contains(part), "{reason}: {part}: {warning}");
        }
        let granted = warning.contains("\"grant\":\"~slidegate:{*:*}:api:*\"");
        assert_eq!(granted, reason == "no-permission", "{warning}");
        assert!(!warning.contains("secret"), "{warning}");
    }
}

/// Goes through an outage and back. Of twenty a minute, three are spent before it and six in it.
#[test]
fn a_command_that_is_denied_is_named_and_not_the_keys() {
    let upstream = Upstream::simple();
    for (denied, grant) in [("-evalsha", Some("\"grant\":\"+evalsha\"")), ("-set", None)] {
        let rule = format!("user gate on >secret ~slidegate:* +@all {denied}");
        let redis = RedisServer::options().line(&rule).start();
        let gateway =
            on_redis(configure(&upstream), &as_user(&redis)).policy("api", "100/min", "").start();
        assert_eq!(gateway.status("/"), 200);
        let warning = key_warning(&gateway);
        assert!(warning.contains("\"reason\":\"no-permission\""), "{denied}: {warning}");
        match grant {
            Some(grant) => assert!(warning.contains(grant), "{denied}: {warning}"),
            None => assert!(!warning.contains("\"grant\":\"~"), "{denied}: {warning}"),
        }
    }
}

#[test]
fn a_key_that_cannot_be_counted_in_refuses_by_its_policy_and_leaves_the_gateway_ready() {
    let upstream = Upstream::simple();
    let redis = RedisServer::start();
    redis.command(&["LPUSH", "slidegate:{ip:127.0.0.1}:api:min", "a"]);
    let gateway = on_redis(configure(&upstream), &redis.url())
        .policy("api", "100/min", "on_store_error = \"deny\"")
        .start();
    assert_eq!(gateway.status("/"), 503);
    let ready = gateway.admin_page("/readyz");
    let text = ready.text();
    assert_eq!(ready.status(), 200, "one client's key affects no other client: {text}");
    assert!(text.contains("\"degraded\":true") && !text.contains("refusing"), "{text}");
    assert!(text.contains("{\"policy\":\"api\",\"reason\":\"wrong-type\"}"), "{text}");
}

fn survive_an_outage(gateway: &Gateway, redis: &RedisServer, path: &str) {
    let pass = |times: usize, when: &str| {
        for _ in 0..times {
            assert_eq!(gateway.status(path), 200, "{when}: {}", gateway.output());
        }
    };
    let ready = |part: &str| gateway.admin_page("/readyz").text().contains(part);
    pass(3, "before");
    redis.kill();
    pass(6, "without Redis");
    assert!(ready("\"state\":\"open\""), "{}", gateway.output());
    redis.restart();
    wait_until("Redis to decide again", || ready("\"state\":\"closed\""));
    pass(11, "after");
    assert_eq!(gateway.status(path), 429, "Redis has counted the six: {}", gateway.output());
    assert!(ready("\"degraded\":false"), "{}", gateway.output());
    assert_eq!(gateway.metric("slidegate_store_merged_units_total", ""), 6.0);
    assert_eq!(gateway.metric("slidegate_store_unrecorded_total", ""), 0.0);
}

#[test]
fn a_redis_user_with_the_keys_of_the_policies_alone_is_enough_through_an_outage() {
    let upstream = Upstream::simple();
    for layout in ["packed", "sorted-set"] {
        let redis = with_user("~rate_limit:*");
        let gateway = on_redis(configure(&upstream), &as_user(&redis))
            .tables(&format!("layout = {layout:?}"))
            .tables("[store.key_templates]\nshorten = \"rate_limit:<identity>:post_shorten\"")
            .policy("shorten", "20/min", "match = { path = \"/shorten\" }")
            .start();
        survive_an_outage(&gateway, &redis, "/shorten");
        assert_eq!(logged(&gateway, "NoPerm"), [""; 0], "neither ledgers nor what gateways share");
    }
}

#[test]
fn check_names_the_keys_to_grant_and_those_are_enough() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let templates = "[store.key_templates]\na = \"first:<kind>:<identity>\"\n\
                     b = \"second:[<identity>]:<window>\"";
    let setup = |url: &str| {
        on_redis(configure(&upstream), url)
            .tables(templates)
            .policy("a", "20/min", "match = { path = \"/a\" }")
            .policy("b", "20/min", "match = { path = \"/b\" }")
    };
    let file = directory.file("slidegate.toml");
    fs::write(&file, setup("redis://127.0.0.1:1").text()).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    let output = check.arg("check").arg(&file).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let line = printed.lines().find(|line| line.contains("keys for its user")).unwrap();
    let (_, patterns) = line.split_once(": ").unwrap();
    assert_eq!(patterns, "~first:*:* ~second:\\[*\\]:* ~slidegate:shared*");

    let redis = RedisServer::options().appendonly().start();
    let grant = |patterns: &str| {
        let rule = ["ACL", "SETUSER", "gate", "reset", "on", ">secret", "+@all"];
        redis.command(&[&rule[..], &patterns.split(' ').collect::<Vec<_>>()].concat()).expect_ok();
    };
    // Users are not kept over a restart, so the server has its own for that.
    grant("~first:*");
    let gateway = setup(&as_user(&redis)).start();
    assert_eq!(gateway.status("/a"), 200);
    assert_eq!(gateway.status("/b"), 200);
    wait_until("the log to name what is missing", || {
        let denied = logged(&gateway, "NoPerm");
        let has = |pattern: &str| denied.iter().any(|line| line.contains(pattern));
        has("~second:\\\\[*\\\\]:*") && has("~slidegate:shared*\"")
    });
    wait_until("the request to be counted", || has_key_errors(&gateway, "policy=\"b\"", 1.0));
    assert_eq!(gateway.metric("slidegate_store_key_errors_total", "policy=\"a\""), 0.0);
    drop(gateway);

    grant(patterns);
    let gateway = setup(&as_user(&redis)).start();
    assert_eq!(gateway.status("/b"), 200);
    thread::sleep(Duration::from_millis(600));
    assert_eq!(
        logged(&gateway, "NoPerm"),
        [""; 0],
        "what gateways share is read four times a second"
    );

    let redis = with_user(patterns);
    let gateway = setup(&as_user(&redis)).start();
    survive_an_outage(&gateway, &redis, "/b");
    assert_eq!(logged(&gateway, "NoPerm"), [""; 0]);
}

#[test]
fn a_probe_that_is_denied_shows_that_redis_answers() {
    let upstream = Upstream::simple();
    // Not even the template of the policy: one client's key.
    let redis = with_user("~slidegate:{ip:127.0.0.1}:api:*");
    let gateway =
        on_redis(configure(&upstream), &as_user(&redis)).policy("api", "20/min", "").start();
    survive_an_outage(&gateway, &redis, "/");
}

#[test]
fn a_list_of_questions_is_decided_in_order_with_fewer_calls_than_questions() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let local = "identity = [\"user\"]\nscope = \"local\"";
    let gateway = on_redis(configure(&upstream), &redis.url())
        .tables("[decisions]\nlisten = \"127.0.0.1:0\"")
        .policy("user", "3/min", "identity = [\"user\"]\nban = { after = \"3/min\", for = \"1h\" }")
        .policy("guard", "4/min", local)
        .start();
    let ask = |users: &[usize]| -> Vec<String> {
        let questions = users.iter().map(|user| format!("{{\"user\":\"{user}\"}}"));
        let body = format!("[{}]", questions.collect::<Vec<_>>().join(","));
        let answers: Vec<Value> =
            serde_json::from_str(&gateway.post("/v1/decide", &body).text()).unwrap();
        answers.iter().map(|answer| answer["verdict"].as_str().unwrap().to_owned()).collect()
    };
    // Users that come again wait for what was decided before: each has three, is denied three times, and
    // is banned by the third.
    let users: Vec<usize> = (0..100).map(|n| n * n % 11 % 7).collect();
    let mut asked = [0; 7];
    let expected: Vec<&str> = users
        .iter()
        .map(|user| {
            asked[*user] += 1;
            match asked[*user] {
                1..=3 => "allow",
                4..=6 => "deny",
                _ => "block",
            }
        })
        .collect();
    assert_eq!(ask(&users), expected);
    let before = CommandCounts::of([&redis]);
    let others: Vec<usize> = (1000..1100).collect();
    assert!(ask(&others).iter().all(|verdict| verdict == "allow"));
    let counts = CommandCounts::of([&redis]).since(&before);
    let calls = counts.calls("evalsha");
    assert!((1..=25).contains(&calls), "{calls} calls for 100 questions");
}
