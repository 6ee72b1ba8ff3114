//! Decisions, health checks and signals while something else keeps the server busy.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slidegate_testbed::{Directory, Gateway, RedisServer, Upstream, Wire, wait_until};

use crate::{configure, options};

const UNITS: usize = 50;
const WINDOW: Duration = Duration::from_secs(2);
/// As many as take several times the store's deadline to be parsed.
const KEYS: usize = 30_000;

fn write_keys(path: &Path, version: usize) {
    let mut text = "name,key,plan\n".to_owned();
    (0..KEYS).for_each(|n| writeln!(text, "customer-{n},key-{n}-{version},pro").unwrap());
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// When an allowed request was sent, and when it was answered.
type Admission = (Instant, Instant);

/// The most requests that were certainly admitted within one window.
fn worst_window(admissions: &[Admission]) -> usize {
    let within = |start: Instant| {
        let is_in = |(sent, answered): &&Admission| *sent >= start && *answered < start + WINDOW;
        admissions.iter().filter(is_in).count()
    };
    admissions.iter().map(|(sent, _)| within(*sent)).max().unwrap_or(0)
}

fn spend(gateway: &Gateway, over: &AtomicBool) -> Vec<Admission> {
    let (mut wire, mut admissions) = (gateway.wire(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let sent = Instant::now();
        match wire.get("/", "").status() {
            200 => admissions.push((sent, Instant::now())),
            // As a client that wants more than it may have.
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
    admissions
}

/// How long each probe took, in order.
fn probe(gateway: &Gateway, over: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        assert_eq!(gateway.admin_page("/readyz").status(), 200);
        times.push(began.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    times.sort_unstable();
    times
}

#[test]
fn reloads_with_many_keys_cost_no_deadline_and_no_exactness() {
    let (redis, upstream, directory) = (RedisServer::start(), Upstream::simple(), Directory::new());
    let keys = directory.file("keys.csv");
    write_keys(&keys, 0);
    let setup = configure(&upstream)
        .tables("[plans.pro]\nquotas = [\"100/s\"]")
        .policy("api", "50/2s", "")
        .tables(&format!(
            "[store]\nkind = \"redis\"\nurl = {:?}\ndeadline = \"250ms\"",
            redis.url()
        ));
    let text = format!("keys_file = {keys:?}\n{}", setup.text());
    let gateways = [(); 2].map(|()| Gateway::from(options().configuration(&text).start()));
    let over = AtomicBool::new(false);
    let (admissions, times) = thread::scope(|scope| {
        let over = &over;
        let clients: Vec<_> =
            gateways.iter().map(|gateway| scope.spawn(move || spend(gateway, over))).collect();
        let probes: Vec<_> =
            gateways.iter().map(|gateway| scope.spawn(move || probe(gateway, over))).collect();
        for version in 1..=5 {
            write_keys(&keys, version);
            gateways.iter().for_each(|gateway| gateway.signal("HUP"));
            thread::sleep(Duration::from_secs(1));
        }
        let reloads = |gateway: &Gateway| gateway.metric("slidegate_config_reloads_total", "ok");
        wait_until("reloads", || gateways.iter().all(|gateway| reloads(gateway) >= 2.0));
        over.store(true, Ordering::Relaxed);
        let admissions: Vec<_> =
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        let times: Vec<_> = probes.into_iter().map(|probe| probe.join().unwrap()).collect();
        (admissions, times)
    });
    for gateway in &gateways {
        assert!(gateway.metric("slidegate_store_calls_total", "answered") > 0.0);
        for missed in ["deadline", "error"] {
            assert_eq!(gateway.metric("slidegate_store_calls_total", missed), 0.0, "{missed}");
        }
        assert_eq!(gateway.metric("slidegate_store_fallbacks_total", ""), 0.0);
        assert_eq!(gateway.metric("slidegate_config_reloads_total", "failed"), 0.0);
    }
    let worst = worst_window(&admissions);
    assert!(worst <= UNITS, "{worst} of {UNITS}");
    assert!(admissions.len() > UNITS, "more than one window: {}", admissions.len());
    for times in times {
        let p99 = times[times.len() * 99 / 100];
        eprintln!("readyz: p50 {:?}, p99 {p99:?} of {}", times[times.len() / 2], times.len());
        // The server is not optimised here, and others want the processor.
        assert!(p99 < Duration::from_millis(250), "{p99:?}");
    }
}

#[test]
fn health_is_answered_when_clients_have_all_descriptors() {
    let upstream = Upstream::simple();
    let setup = configure(&upstream).bounds("connections = 1000, connections_per_address = 1000");
    let gateway = setup.start_with(options().after("ulimit -n 200"));
    let clients: Vec<Wire> = (0..300).map(|_| gateway.wire()).collect();
    let warned = || gateway.output().contains("accept failed; retrying");
    wait_until("the descriptors to be used up", warned);
    for _ in 0..30 {
        let mut wire = Wire::connect(gateway.admin());
        wire.set_read_timeout(Duration::from_secs(5));
        assert_eq!(wire.get("/healthz", "Connection: close\r\n").status(), 200);
    }
    assert!(gateway.metrics().contains("slidegate_"));
    drop(clients);
    wait_until("room for clients", || gateway.status("/") == 200);
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn health_and_signals_are_served_while_the_admin_endpoint_is_flooded() {
    const PIPELINED: usize = 50;
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).start();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for path in ["/metrics", "/healthz", "/v1/policies", "/"].repeat(4) {
            let (gateway, over) = (&gateway, &over);
            scope.spawn(move || {
                let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
                while !over.load(Ordering::Relaxed) {
                    let Ok(mut wire) = Wire::try_connect(gateway.admin()) else { return };
                    if wire.try_send(request.repeat(PIPELINED)).is_ok() {
                        (0..PIPELINED).for_each(|_| drop(wire.response_to("GET")));
                    }
                }
            });
        }
        for _ in 0..20 {
            let began = Instant::now();
            assert_eq!(gateway.admin_page("/healthz").status(), 200);
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        }
        gateway.signal("TERM");
        assert_eq!(gateway.wait(), Some(0));
        over.store(true, Ordering::Relaxed);
    });
}
