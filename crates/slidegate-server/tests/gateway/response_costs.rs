//! Costs that are known from the response: failed logins, tokens, errors of upstream.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use slidegate_testbed::http1::{Message, chunk, response};
use slidegate_testbed::{Flavour, Gateway, RedisServer, Upstream, Wire, wait_until};

use crate::configure;

const LOGIN: &str = "match = { method = \"POST\", path = \"/login\" }\n\
    count = { status = [401, 403, \"5xx\"] }";

fn post(gateway: &Gateway, path: &str, body: &str) -> Message {
    let mut wire = gateway.wire();
    let length = body.len();
    wire.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"));
    wire.response()
}

/// The units that `RateLimit` says are left.
fn remaining(response: &Message) -> String {
    response.value("x-ratelimit-remaining").unwrap_or_default()
}

/// A login form: the password is right if it is `right`.
fn login_form() -> Upstream {
    Upstream::answering(|request| match request.body.as_slice() {
        b"right" => response("200 OK", "", "welcome"),
        b"broken" => response("500 Internal Server Error", "", "oops"),
        _ => response("401 Unauthorized", "", "no"),
    })
}

#[test]
fn only_failed_logins_count() {
    let upstream = login_form();
    let gateway = configure(&upstream).policy("login", "5/min", LOGIN).start();
    for _ in 0..300 {
        let good = post(&gateway, "/login", "right");
        assert_eq!((good.status(), remaining(&good).as_str()), (200, "5"));
    }
    for left in ["4", "3", "2"] {
        let failed = post(&gateway, "/login", "wrong");
        assert_eq!((failed.status(), remaining(&failed).as_str()), (401, left));
    }
    assert_eq!(post(&gateway, "/login", "broken").status(), 500);
    assert_eq!(post(&gateway, "/login", "wrong").status(), 401);
    assert_eq!(post(&gateway, "/login", "right").status(), 429);
    let costs = |outcome: &str| gateway.metric("slidegate_response_costs_total", outcome);
    assert_eq!((costs("\"refunded\""), costs("\"held\"")), (300.0, 5.0));
    assert_eq!(gateway.metric("slidegate_response_units_total", "refunded"), 300.0);
}

/// 200 logins at once, of which 190 fail: no more than five failures reach upstream in any minute.
fn many_logins_at_once(store: &str) {
    let failures = Arc::new(AtomicUsize::new(0));
    let counted = failures.clone();
    let upstream = Upstream::serving(move |wire, request| {
        // As long as a slow hash takes, so that they are in flight together.
        thread::sleep(Duration::from_millis(50));
        if request.body == b"right" {
            return wire.try_send(response("200 OK", "", "welcome"));
        }
        counted.fetch_add(1, Ordering::SeqCst);
        wire.try_send(response("401 Unauthorized", "", "no"))
    });
    let gateway = configure(&upstream).tables(store).policy("login", "5/min", LOGIN).start();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let logins: Vec<_> = (0..200)
            .map(|number| {
                let password = if number % 20 == 0 { "right" } else { "wrong" };
                let gateway = &gateway;
                scope.spawn(move || post(gateway, "/login", password).status())
            })
            .collect();
        logins.into_iter().map(|login| login.join().unwrap()).collect()
    });
    let failed = statuses.iter().filter(|status| **status == 401).count();
    assert!(failed <= 5, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 401, 429].contains(status)), "{statuses:?}");
    // What good logins held is given back by then.
    let is_closed = || post(&gateway, "/login", "wrong").status() == 429;
    wait_until("the rest to be used up", || is_closed() && failures.load(Ordering::SeqCst) == 5);
    (0..20).for_each(|_| assert!(is_closed()));
    assert_eq!(failures.load(Ordering::SeqCst), 5);
    assert_eq!(post(&gateway, "/login", "right").status(), 429, "the five are spent");
}

#[test]
fn parallel_guesses_never_exceed_the_quota_in_memory() {
    many_logins_at_once("");
}

#[test]
fn parallel_guesses_never_exceed_the_quota_on_redis() {
    for flavour in Flavour::BOTH {
        let redis = flavour.server().start();
        many_logins_at_once(&format!("[store]\nurl = {:?}", redis.url()));
    }
}

/// A day's worth of good logins from one address, one after the other, on Redis: each is given back
/// before the next, or soon after.
#[test]
fn good_logins_in_a_row_are_never_refused_on_redis() {
    let (upstream, redis) = (login_form(), RedisServer::start());
    let store = format!("[store]\nurl = {:?}", redis.url());
    let gateway = configure(&upstream).tables(&store).policy("login", "5/min", LOGIN).start();
    for number in 0..500 {
        assert_eq!(post(&gateway, "/login", "right").status(), 200, "login {number}");
    }
}

#[test]
fn errors_of_upstream_are_refunded_also_if_it_cannot_be_reached() {
    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/error" => wire.try_send(response("503 Service Unavailable", "", "")),
        "/hang-up" => Err(std::io::ErrorKind::ConnectionReset.into()),
        "/hang" => {
            thread::sleep(Duration::from_secs(5));
            Ok(())
        }
        _ => wire.try_send(response("200 OK", "", "ok")),
    });
    let gateway = configure(&upstream)
        .timeouts("response = \"300ms\"")
        .policy("api", "10/min", "refund = { status = [503] }")
        .start();
    assert_eq!(remaining(&gateway.get("/", "")), "9");
    for path in ["/error", "/hang-up", "/hang"] {
        let failed = gateway.get(path, "");
        assert!(failed.status() >= 500, "{path}: {}", failed.status());
        assert_eq!(remaining(&failed), "9", "{path}");
    }
    drop(upstream);
    let gone = gateway.get("/", "");
    assert_eq!((gone.status(), remaining(&gone).as_str()), (502, "9"));
}

#[test]
fn a_client_that_leaves_before_the_response_pays_unless_499_is_refunded() {
    let upstream = Upstream::serving(|wire, request| {
        if request.target() == "/slow" {
            // A client may close its side and still wait, for five seconds.
            thread::sleep(Duration::from_secs(15));
        }
        wire.try_send(response("200 OK", "", "ok"))
    });
    thread::scope(|scope| {
        for (statuses, left) in [("[\"5xx\"]", "7"), ("[\"5xx\", 499]", "9")] {
            let refund = format!("refund = {{ status = {statuses} }}");
            let gateway = configure(&upstream).policy("api", "10/min", &refund).start();
            scope.spawn(move || {
                for _ in 0..2 {
                    let mut wire = gateway.wire();
                    wire.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
                    thread::sleep(Duration::from_millis(50));
                }
                let costs = |outcome| gateway.metric("slidegate_response_costs_total", outcome);
                wait_until("both to be noticed", || {
                    costs("\"aborted\"") + costs("\"refunded\"") == 2.0
                });
                assert_eq!(remaining(&gateway.get("/", "")), left, "{statuses}");
            });
        }
    });
}

const CHAT: &str = "match = { path = \"/chat\" }\n\
    cost = { response_json = \"usage.total_tokens\", hold = 1000 }";

/// A service in the form of OpenAI's API: the body of the request says how it answers, and how many
/// tokens that takes.
fn model(answered: Arc<Mutex<u32>>) -> Upstream {
    Upstream::serving(move |wire, request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let (form, tokens) = body.split_once(' ').unwrap();
        let usage = format!("{{\"usage\":{{\"total_tokens\":{tokens}}}}}");
        *answered.lock().unwrap() += tokens.parse::<u32>().unwrap();
        match form {
            "json" => {
                wire.try_send(response("200 OK", "Content-Type: application/json\r\n", &usage))
            }
            "gzip" => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(usage.as_bytes())?;
                let bytes = encoder.finish()?;
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
                     Content-Length: {}\r\n\r\n",
                    bytes.len()
                );
                wire.try_send([head.as_bytes(), &bytes].concat())
            }
            _ => stream(wire, &usage),
        }
    })
}

fn stream(wire: &mut Wire, usage: &str) -> std::io::Result<()> {
    wire.try_send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )?;
    for _ in 0..5 {
        wire.try_send(chunk("data: {\"choices\":[{\"delta\":\"word\"}],\"usage\":null}\n\n"))?;
        thread::sleep(Duration::from_millis(100));
    }
    wire.try_send(chunk(&format!("data: {usage}\n\ndata: [DONE]\n\n")))?;
    wire.try_send("0\r\n\r\n")
}

fn tokens_spent(gateway: &Gateway) -> f64 {
    let units = |kind| gateway.metric("slidegate_response_units_total", kind);
    units("recorded") - units("refunded")
}

fn tokens_to_the_unit(store: &str) {
    let answered = Arc::new(Mutex::new(0));
    let upstream = model(answered.clone());
    let gateway = configure(&upstream).tables(store).policy("tokens", "1000000/h", CHAT).start();
    let questions =
        ["json 17", "json 1000", "json 4321", "gzip 999", "gzip 2500", "stream 345", "stream 1800"];
    for question in questions {
        assert_eq!(post(&gateway, "/chat", question).status(), 200);
    }
    let held = 1000 * questions.len() as u32;
    let used = f64::from(*answered.lock().unwrap()) - f64::from(held);
    wait_until("all to be settled", || tokens_spent(&gateway) == used);
    let last = post(&gateway, "/chat", "json 1000");
    let spent = 1_000_000 - remaining(&last).parse::<u32>().unwrap();
    assert_eq!(spent, *answered.lock().unwrap(), "to the unit");
}

#[test]
fn tokens_are_counted_to_the_unit_in_memory() {
    tokens_to_the_unit("");
}

#[test]
fn tokens_are_counted_to_the_unit_on_redis() {
    let redis = RedisServer::start();
    for layout in ["packed", "sorted-set"] {
        redis.command(&["FLUSHALL"]).expect_ok();
        tokens_to_the_unit(&format!("[store]\nurl = {:?}\nlayout = {layout:?}", redis.url()));
    }
}

#[test]
fn a_stream_is_not_held_up_and_an_abort_pays_the_hold() {
    let upstream = model(Arc::default());
    let gateway = configure(&upstream).policy("tokens", "100000/h", CHAT).start();
    let mut wire = gateway.wire();
    let began = Instant::now();
    wire.send("POST /chat HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nstream 70");
    wire.head().unwrap();
    wire.exactly(30).unwrap();
    assert!(began.elapsed() < Duration::from_millis(400), "the stream takes half a second");
    drop(wire);
    let aborted = || gateway.metric("slidegate_response_costs_total", "\"aborted\"") == 1.0;
    wait_until("the abort to be noticed", aborted);
    let next = post(&gateway, "/chat", "json 1000");
    assert_eq!(remaining(&next), "98000", "a thousand each");
}

#[test]
fn a_client_cannot_hide_the_cost_by_what_it_accepts() {
    let upstream = model(Arc::default());
    let gateway = configure(&upstream).policy("tokens", "100000/h", CHAT).start();
    let mut wire = gateway.wire();
    wire.send(
        "POST /chat HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br, zstd\r\nRange: bytes=0-3\r\n\
         Content-Length: 9\r\n\r\njson 7000",
    );
    assert_eq!(wire.response().status(), 200);
    let received = upstream.last();
    assert_eq!(received.value("accept-encoding").as_deref(), Some("identity"));
    assert_eq!(received.value("range"), None);
    let next = post(&gateway, "/chat", "json 1000");
    assert_eq!(remaining(&next), "92000");
}

#[test]
fn a_header_has_the_cost_and_is_removed() {
    let upstream =
        Upstream::answering(|_| response("200 OK", "X-Cost: 120\r\nX-Other: 1\r\n", "ok"));
    let cost = "cost = { response_header = \"x-cost\", hold = 50 }";
    let gateway = configure(&upstream).policy("queries", "1000/min", cost).start();
    let first = gateway.get("/graphql", "");
    assert_eq!((first.value("x-cost"), first.value("x-other").as_deref()), (None, Some("1")));
    assert_eq!(remaining(&first), "880");
    let rounds = (0..).map(|_| gateway.status("/graphql")).take_while(|status| *status == 200);
    // The last one is admitted with 40 left of what it holds, or not.
    assert_eq!(rounds.count(), 7, "each costs 120, and is admitted if 50 are left");
}

#[test]
fn overrun_by_requests_in_flight_closes_the_account() {
    let upstream = model(Arc::default());
    let gateway = configure(&upstream).policy("tokens", "10000/h", CHAT).start();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let asks: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| post(&gateway, "/chat", "stream 9000").status()))
            .collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(admitted, 10, "as many as hold the quota: {statuses:?}");
    let closed = post(&gateway, "/chat", "json 1");
    assert_eq!(closed.status(), 429);
    let retry: u32 = closed.value("retry-after").unwrap().parse().unwrap();
    assert!((3590..=3601).contains(&retry), "at most a window: {retry}");
}

#[test]
fn a_gateway_that_is_killed_leaves_its_holds_spent() {
    let (upstream, redis) = (model(Arc::default()), RedisServer::start());
    let configuration = configure(&upstream)
        .tables(&format!("[store]\nurl = {:?}", redis.url()))
        .policy("tokens", "100000/h", CHAT);
    let gateway = configuration.start();
    let mut wire = gateway.wire();
    wire.send("POST /chat HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nstream 70");
    wire.head().unwrap();
    gateway.signal("KILL");
    drop((wire, gateway));
    let gateway = configuration.start();
    assert_eq!(remaining(&post(&gateway, "/chat", "json 1000")), "98000");
}

#[test]
fn what_is_in_flight_at_the_end_is_settled() {
    let (upstream, redis) = (login_form(), RedisServer::start());
    let configuration = configure(&upstream)
        .tables(&format!("[store]\nurl = {:?}", redis.url()))
        .policy("login", "100/h", LOGIN);
    let gateway = configuration.start();
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert_eq!(post(&gateway, "/login", "right").status(), 200));
        }
    });
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    let gateway = configuration.start();
    assert_eq!(remaining(&post(&gateway, "/login", "wrong")), "99");
}

#[test]
fn what_is_settled_without_redis_is_replayed() {
    let (upstream, redis) = (model(Arc::default()), RedisServer::start());
    let gateway = configure(&upstream)
        .tables(&format!("[store]\nurl = {:?}", redis.url()))
        .policy("tokens", "1000000000/h", CHAT)
        .start();
    assert_eq!(post(&gateway, "/chat", "json 2000").status(), 200);
    wait_until("the first to be recorded", || tokens_spent(&gateway) == 1000.0);
    redis.pause();
    // Decided by the local ledgers, and settled there.
    assert_eq!(post(&gateway, "/chat", "json 5000").status(), 200);
    assert_eq!(post(&gateway, "/chat", "json 400").status(), 200);
    redis.resume();
    wait_until("everything to be in Redis", || {
        let next = post(&gateway, "/chat", "json 1000");
        remaining(&next).parse::<u32>().unwrap() % 1000 == 600
    });
}
