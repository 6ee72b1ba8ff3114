//! The production guide: gateways that share a Redis, which is taken away and comes back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slidegate_testbed::{Gateway, RedisServer, Upstream, Wire, assert_no_hang, wait_until};

use crate::admissions::Admissions;
use crate::example::{Example, number, send};
use crate::stop_guard::StopGuard;

/// What is sent all the while, by what its policy does without Redis.
const LOCAL: &str = "GET /orders";
const ALLOW: &str = "GET /items/7";
const DENY: &str = "GET /geocode/berlin";

/// Longer than any answer takes on a busy machine.
const HANG: Duration = Duration::from_secs(10);

/// A request that was answered.
struct Answered {
    line: &'static str,
    sent: Instant,
    answered: Instant,
    status: u16,
    body: String,
}

fn guide() -> (RedisServer, Upstream, [Gateway; 2]) {
    let (redis, upstream) = (RedisServer::options().appendonly().start(), Upstream::simple());
    let example = Example::load("production-guide.toml");
    let gateways = [(); 2].map(|()| example.start(&upstream, &redis));
    (redis, upstream, gateways)
}

/// Sends one kind of request to one gateway, at a pace that no quota minds.
fn traffic(
    gateway: &Gateway,
    line: &'static str,
    answers: &Mutex<Vec<Answered>>,
    over: &AtomicBool,
) {
    let mut wire = gateway.wire();
    for n in 0.. {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let (client, user) = (format!("203.0.113.{}", n % 250), n % 16);
        let headers = format!("X-Tenant: {}\r\nX-User-Id: {user}\r\n", line.len());
        let sent = Instant::now();
        let answer = send(&mut wire, line, &client, &headers);
        let (answered, status, body) = (Instant::now(), answer.status(), answer.text());
        assert!(answered - sent < HANG, "{line} took {:?}", answered - sent);
        if status == 503 {
            assert!(number(&answer, "retry-after") >= 1);
        }
        answers.lock().unwrap().push(Answered { line, sent, answered, status, body });
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until every kind of request has been answered some more times.
fn wait_for_more(answers: &Mutex<Vec<Answered>>) {
    let count = |line| answers.lock().unwrap().iter().filter(|one| one.line == line).count();
    let before = [LOCAL, ALLOW, DENY].map(|line| (line, count(line)));
    wait_until("more requests to be answered", || {
        before.iter().all(|(line, before)| count(line) >= before + 20)
    });
}

fn readiness(gateway: &Gateway) -> (u16, serde_json::Value) {
    let page = gateway.admin_page("/readyz");
    (page.status(), serde_json::from_slice(&page.body).unwrap())
}

fn is_degraded(gateway: &Gateway) -> bool {
    readiness(gateway).1["degraded"] == true
}

#[test]
fn redis_is_taken_away_under_traffic_and_comes_back() {
    let (redis, _upstream, gateways) = guide();
    let (answers, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let [killed, noticed, restarted, recovered] = thread::scope(|scope| {
        let (answers, over) = (&answers, &over);
        for gateway in &gateways {
            for line in [LOCAL, ALLOW, DENY] {
                scope.spawn(move || traffic(gateway, line, answers, over));
            }
        }
        let _stop = StopGuard::new(over);
        take_away_and_bring_back(&redis, &gateways, answers)
    });
    for Answered { line, sent, answered, status, body } in answers.into_inner().unwrap() {
        let expected: &[u16] = match line {
            DENY if sent >= noticed && answered <= restarted => &[503],
            DENY if answered <= killed || sent >= recovered => &[200],
            DENY => &[200, 503],
            _ => &[200],
        };
        assert!(expected.contains(&status), "{line}: {status} {body}");
        let reason = "#temporary-reduced-capacity";
        assert!(status == 200 || body.contains(reason), "not the client's fault: {body}");
    }
}

/// Returns the moments of the kill, when all have noticed, of the restart, and when all is well.
fn take_away_and_bring_back(
    redis: &RedisServer,
    gateways: &[Gateway; 2],
    answers: &Mutex<Vec<Answered>>,
) -> [Instant; 4] {
    wait_for_more(answers);
    for gateway in gateways {
        assert_eq!(readiness(gateway).0, 200);
        assert_eq!(gateway.metric("slidegate_store_fallbacks_total", "") as usize, 0);
    }
    let killed = Instant::now();
    redis.kill();
    wait_until("both to notice", || gateways.iter().all(is_degraded));
    let noticed = Instant::now();
    wait_for_more(answers);
    for gateway in gateways {
        let (status, page) = readiness(gateway);
        assert_eq!((status, &page["refusing"]), (503, &serde_json::json!(["geocoder"])), "{page}");
        assert_eq!(gateway.admin_page("/healthz").status(), 200, "a restart would not mend Redis");
        assert_eq!(gateway.metric("slidegate_store_breaker", "state=\"closed\"") as usize, 0);
        for metric in [
            "slidegate_store_fallbacks_total",
            "slidegate_store_refusals_total",
            "slidegate_store_breaker_opened_total",
            "slidegate_fallback_decisions_total",
        ] {
            assert!(gateway.metric(metric, "") > 0.0, "{metric}\n{}", gateway.metrics());
        }
    }
    let restarted = Instant::now();
    redis.restart();
    wait_until("both to find it", || !gateways.iter().any(is_degraded));
    let recovered = Instant::now();
    wait_for_more(answers);
    for gateway in gateways {
        assert_eq!(readiness(gateway).0, 200);
        assert_eq!(gateway.metric("slidegate_store_breaker", "state=\"closed\"") as usize, 1);
        assert!(gateway.metric("slidegate_store_merged_units_total", "") > 0.0);
    }
    [killed, noticed, restarted, recovered]
}

/// Asks for so many reports, and returns how many there were.
fn reports(wire: &mut Wire, count: usize, admissions: &mut Admissions) -> usize {
    let before = admissions.count();
    for _ in 0..count {
        let sent = Instant::now();
        let answer = send(wire, "GET /reports/2026", "203.0.113.7", "X-User-Id: ann\r\n");
        match answer.status() {
            200 => admissions.note(sent, Instant::now()),
            429 => assert!(answer.text().contains("\"endpoint-expensive\""), "{}", answer.text()),
            status => panic!("{status}: {}", answer.text()),
        }
    }
    admissions.count() - before
}

#[test]
fn an_outage_is_no_fresh_budget() {
    let (redis, _upstream, [one, other]) = guide();
    let mut admissions = Admissions::default();
    assert_eq!(reports(&mut one.wire(), 10, &mut admissions), 10);
    redis.kill();
    assert_eq!(reports(&mut one.wire(), 15, &mut admissions), 15, "no 429 for the outage");
    reports(&mut one.wire(), 10, &mut admissions);
    redis.restart();
    wait_until("both to find it", || {
        [&one, &other].into_iter().all(|gateway| {
            send(&mut gateway.wire(), LOCAL, "198.51.100.9", "");
            !is_degraded(gateway)
        })
    });
    reports(&mut one.wire(), 10, &mut admissions);
    reports(&mut other.wire(), 10, &mut admissions);
    admissions.assert_quota(30);
    let key = "throttle:endpoint:ann:expensive";
    assert!((1..=30).contains(&redis.command(&["ZCARD", key]).integer()), "Redis has counted it");
}

#[test]
fn every_axis_has_the_guide_s_numbers_headers_and_keys() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let gateway = Example::load("production-guide.toml").start(&upstream, &redis);
    let tenant = "X-Tenant: acme\r\n";
    let paid = "X-Tenant: initech\r\nX-Plan: paid\r\n";
    let user = "X-User-Id: ann\r\n";
    for (line, headers, limit, key) in [
        ("GET /", "", 120, "throttle:ip:203.0.113.0:public"),
        ("GET /api/orders", tenant, 100, "throttle:tenant:acme:api"),
        ("GET /reports/2026", user, 30, "throttle:endpoint:ann:expensive"),
    ] {
        let (mut wire, mut admissions) = (gateway.wire(), Admissions::default());
        for n in 0..limit + 20 {
            // No address of the other axes is ever used up.
            let client = if limit == 120 { 0 } else { limit + n % 60 };
            let sent = Instant::now();
            let answer = send(&mut wire, line, &format!("203.0.113.{client}"), headers);
            match answer.status() {
                200 => admissions.note(sent, Instant::now()),
                429 => {
                    assert_eq!(number(&answer, "ratelimit-limit"), limit, "{}", answer.head);
                    assert_eq!(number(&answer, "ratelimit-remaining"), 0);
                    assert!(number(&answer, "ratelimit-reset") >= 1);
                    assert!(number(&answer, "retry-after") >= 1);
                    assert!(answer.value("x-ratelimit-limit").is_none(), "{}", answer.head);
                }
                status => panic!("{status}: {}", answer.text()),
            }
        }
        admissions.assert_quota(limit as usize);
        assert_eq!(redis.command(&["TYPE", key]).text(), "zset", "{key}");
    }
    let item = send(&mut gateway.wire(), "GET /items/7", "198.51.100.1", user);
    assert_eq!(item.status(), 200);
    let key = "throttle:endpoint:ann:lightweight";
    assert_eq!(redis.command(&["ZCARD", key]).integer(), 1);
    for _ in 0..101 {
        let client = format!("198.51.100.{}", fastrand::u8(..));
        assert_eq!(send(&mut gateway.wire(), "GET /api/orders", &client, paid).status(), 200);
    }
}

#[test]
fn a_redis_that_hangs_delays_no_request() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let gateway =
        Example::load("production-guide.toml").with_its_own_deadline().start(&upstream, &redis);
    let mut wire = gateway.wire();
    send(&mut wire, LOCAL, "203.0.113.7", "");
    redis.pause();
    let began = Instant::now();
    for (line, status) in [(LOCAL, 200), (ALLOW, 200), (DENY, 503)].repeat(10) {
        assert_eq!(send(&mut wire, line, "203.0.113.7", "").status(), status, "{line}");
    }
    // Five wait for 50 ms each; then the breaker is open, and only probes do.
    let late = gateway.metric("slidegate_store_calls_total", "deadline");
    assert!((5.0..15.0).contains(&late), "{late} of 20 calls waited");
    assert_no_hang(began, HANG);
    redis.resume();
}
