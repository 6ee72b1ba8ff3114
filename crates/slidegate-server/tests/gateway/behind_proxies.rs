//! Proxies in front of the gateway share connections between clients: what one client sends must
//! never delay another's request.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slidegate_testbed::program::{free_address, run};
use slidegate_testbed::{Directory, Gateway, Program, Upstream, Wire};

use crate::configure;

const HAPROXY: &str = "as root: apt-get install --yes --no-install-recommends haproxy";
const GO: &str = "as root: apt-get install --yes --no-install-recommends golang-go";

/// Well-behaved clients, each on one connection that it keeps.
const CLIENTS: usize = 8;

/// Far longer than any of their requests takes, and far less than a connection that hangs.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

fn limited(upstream: &Upstream) -> Gateway {
    let gateway = configure(upstream)
        .key("trusted_proxies", "[\"127.0.0.1\"]")
        .policy("limited", "1/h", "match = { path = \"/limited\" }")
        .policy("loose", "1000000/s", "")
        .start();
    assert_eq!(gateway.status("/limited"), 200);
    gateway
}

/// Streams POSTs that are refused through the proxy while others send ordinary requests.
fn check(proxy: SocketAddr) {
    let (is_over, answered, refused) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut wire = Wire::connect(proxy);
                wire.set_read_timeout(READ_TIMEOUT);
                while !is_over.load(Ordering::SeqCst) {
                    wire.send("GET /free HTTP/1.1\r\nHost: a\r\n\r\n");
                    let answer = wire.response_to("GET").expect("a response in time");
                    assert_eq!(answer.status(), 200, "{}", answer.head);
                    answered.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let began = Instant::now();
        for round in 0.. {
            if began.elapsed() > Duration::from_secs(3) {
                break;
            }
            let mut wire = Wire::connect(proxy);
            let head = "POST /limited HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            let size = [1, 5, 20, 5_000, 70_000][round % 5];
            let mut body = String::new();
            write!(body, "{size:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(size)).unwrap();
            if round % 2 == 0 {
                let _ = wire.try_send(format!("{head}{body}"));
            } else {
                wire.send(head);
                thread::sleep(Duration::from_millis(2));
                let _ = wire.try_send(body);
            }
            if wire.response_to("POST").is_ok_and(|answer| answer.status() == 429) {
                refused.fetch_add(1, Ordering::SeqCst);
            }
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let (answered, refused) = (answered.into_inner(), refused.into_inner());
    assert!(refused > 20 && answered > 20 * CLIENTS, "{answered} answered, {refused} refused");
}

#[test]
fn behind_haproxy_a_refused_upload_does_not_delay_other_requests() {
    let upstream = Upstream::simple();
    let gateway = limited(&upstream);
    for reuse in ["", "http-reuse always"] {
        let (directory, address) = (Directory::new(), free_address());
        let file = directory.write(
            "haproxy.cfg",
            &format!(
                "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
                 frontend f\n bind {address}\n default_backend b\n\
                 backend b\n {reuse}\n server s {}\n",
                gateway.listener()
            ),
        );
        let haproxy = &mut Command::new("haproxy");
        let _haproxy = Program::start(haproxy.arg("-f").arg(file), HAPROXY, address);
        check(address);
    }
}

#[test]
fn behind_a_go_proxy_a_refused_upload_does_not_delay_other_requests() {
    let upstream = Upstream::simple();
    let gateway = limited(&upstream);
    let (directory, address) = (Directory::new(), free_address());
    let program = directory.path().join("proxy");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/behind_proxies/proxy.go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(source).env("GOTOOLCHAIN", "local");
    let built = run(&mut build, GO);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut proxy = Command::new(program);
    proxy.arg(address.to_string()).arg(format!("http://{}", gateway.listener()));
    let _proxy = Program::start(&mut proxy, GO, address);
    check(address);
}
