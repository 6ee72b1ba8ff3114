//! Several upstreams: by prefix, in turn, and by their health.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use slidegate_testbed::http1::response;
use slidegate_testbed::{Gateway, Upstream, wait_until};

use crate::{PROGRAM, configure};

#[test]
fn paths_go_to_the_upstream_of_their_longest_prefix() {
    let [all, api, second] = ["all", "api", "second"]
        .map(|name| Upstream::answering(move |_| response("200 OK", "", name)));
    let gateway = configure(&all).route("/api", &[&api]).route("/api/v2/", &[&second]).start();
    for (path, expected) in [
        ("/", "all"),
        ("/apiary", "all"),
        ("/api", "api"),
        ("/api/v1", "api"),
        ("/api/v2", "second"),
        ("/api/v2/x?y", "second"),
        ("/api/v2x", "api"),
    ] {
        assert_eq!(gateway.get(path, "").text(), expected, "{path}");
    }
}

#[test]
fn a_path_without_a_route_is_not_found() {
    let api = Upstream::simple();
    let gateway = Gateway::options(PROGRAM).route("/api", &[&api]).start();
    assert_eq!(gateway.status("/api/x"), 200);
    assert_eq!(gateway.get("/other", "").problem(), 404);
}

fn numbered(number: usize) -> Upstream {
    let name = number.to_string();
    Upstream::answering(move |_| response("200 OK", "", &name))
}

#[test]
fn servers_take_turns() {
    let servers = [numbered(0), numbered(1), numbered(2)];
    let gateway =
        Gateway::options(PROGRAM).key("workers", "1").route("/", &servers.each_ref()).start();
    let mut wire = gateway.wire();
    (0..30).for_each(|_| assert_eq!(wire.get("/", "").status(), 200));
    assert_eq!(servers.each_ref().map(|server| server.received().len()), [10, 10, 10]);
}

#[test]
fn a_dead_server_costs_no_request_and_comes_back() {
    let [dead, well] = [numbered(0), numbered(1)];
    let address = dead.address();
    let gateway = Gateway::options(PROGRAM).route("/", &[&dead, &well]).start();
    (0..10).for_each(|_| assert_eq!(gateway.status("/"), 200));
    drop(dead);
    for _ in 0..25 {
        assert_eq!(gateway.get("/", "").text(), "1");
        let mut wire = gateway.wire();
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(wire.response().text(), "1");
        assert_eq!(well.last().text(), "hello");
    }
    assert!(gateway.output().contains("upstream marked unhealthy"), "{}", gateway.output());
    let back = Upstream::serving_at(address, |wire, _| wire.try_send(response("200 OK", "", "0")));
    wait_until("it to be asked again", || {
        gateway.status("/") == 200 && !back.received().is_empty()
    });
    let before = back.received().len();
    (0..10).for_each(|_| assert_eq!(gateway.status("/"), 200));
    assert!(back.received().len() > before);
}

#[test]
fn an_outage_of_all_servers_is_reported_and_ends_when_one_is_back() {
    let [one, two] = [numbered(0), numbered(1)];
    let address = one.address();
    let gateway = Gateway::options(PROGRAM).route("/", &[&one, &two]).start();
    drop((one, two));
    for _ in 0..20 {
        let answer = gateway.get("/", "");
        assert_eq!(answer.problem(), 502);
        assert!(!answer.text().contains("127.0.0.1"), "no word of what is behind");
    }
    let _back = Upstream::serving_at(address, |wire, _| wire.try_send(response("200 OK", "", "0")));
    assert_eq!(gateway.get("/", "").text(), "0", "at once: rather one that may be down than none");
}

#[test]
fn a_short_outage_under_load_is_not_held_against_a_server_for_long() {
    let [sick, well] = [numbered(0), numbered(1)];
    let address = sick.address();
    let gateway = Gateway::options(PROGRAM).route("/", &[&sick, &well]).start();
    drop(sick);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| (0..4).for_each(|_| assert_eq!(gateway.status("/"), 200)));
        }
    });
    let back = Upstream::serving_at(address, |wire, _| wire.try_send(response("200 OK", "", "0")));
    let began = Instant::now();
    wait_until("it to be asked again", || {
        gateway.status("/") == 200 && !back.received().is_empty()
    });
    assert!(began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
}

#[test]
fn a_server_that_breaks_off_is_passed_over() {
    let broken = Upstream::serving(|_, _| Err(ErrorKind::Other.into()));
    let well = numbered(1);
    let start =
        || Gateway::options(PROGRAM).key("workers", "1").route("/", &[&broken, &well]).start();
    let gateway = start();
    let post = || {
        let mut wire = gateway.wire();
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        wire.response().status()
    };
    let statuses: Vec<u16> = (0..20).map(|_| post()).collect();
    let failed = statuses.iter().filter(|status| **status == 502).count();
    assert_eq!(failed, 3, "what may have had an effect is not tried again: {statuses:?}");
    let gateway = start();
    (0..20).for_each(|_| assert_eq!(gateway.status("/"), 200, "what has none is"));
    assert_eq!(broken.received().len(), 6);
}

#[test]
fn a_server_that_takes_no_connections_costs_the_time_to_connect() {
    // Nobody accepts here, and the queue is full.
    let full = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = full.local_addr().unwrap();
    let queued = fill(&full, address);
    let well = numbered(1);
    let url = format!("http://{address}");
    let setup = Gateway::options(PROGRAM)
        .timeouts("connect = \"300ms\"")
        .key("upstream", &format!("{url:?}"));
    let alone = setup.start();
    let began = Instant::now();
    assert_eq!(alone.get("/", "").problem(), 502);
    assert!(began.elapsed() >= Duration::from_millis(300) && began.elapsed().as_secs() < 5);
    let both = Gateway::options(PROGRAM).timeouts("connect = \"300ms\"").tables(&format!(
        "[[gateway.route]]\nprefix = \"/\"\nupstream = [{url:?}, {:?}]",
        well.url()
    ));
    let both = both.start();
    (0..10).for_each(|_| assert_eq!(both.get("/", "").text(), "1"));
    drop(queued);
}

/// Fills the queue of a listener that accepts nothing.
fn fill(_listener: &std::net::TcpListener, address: SocketAddr) -> Vec<std::net::TcpStream> {
    let mut queued = Vec::new();
    let soon = Duration::from_millis(200);
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, soon) {
        queued.push(stream);
        assert!(queued.len() < 10_000, "the queue has an end");
    }
    queued
}

#[test]
fn servers_are_found_by_name_and_by_any_address() {
    let four = numbered(4);
    let six = Upstream::serving_at("[::1]:0".parse().unwrap(), |wire, _| {
        wire.try_send(response("200 OK", "", "6"))
    });
    for (url, expected) in
        [(format!("http://localhost:{}", four.address().port()), "4"), (six.url(), "6")]
    {
        let gateway = Gateway::options(PROGRAM).key("upstream", &format!("{url:?}")).start();
        assert_eq!(gateway.get("/", "").text(), expected, "{url}");
    }
}
