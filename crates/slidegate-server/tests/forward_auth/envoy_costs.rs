//! Envoy, reporting after each response what it has cost.

#![allow(clippy::disallowed_methods, reason = "it times a real process")]

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use reqwest::blocking::{Client, Response};
use slidegate_testbed::program::free_address;
use slidegate_testbed::{Program, RedisServer, Slidegate, wait_until};

use crate::envoy_grpc::envoy;
use crate::site::header;

const CLIENTS: usize = 50;
const REQUESTS_OF_CLIENT: usize = 10;
/// What each response says that it cost: the quota is no multiple of it, so that one report does not fit
/// an account that is still open.
const COST: usize = 300;
const UNITS: usize = 1000;
const WINDOW: Duration = Duration::from_secs(10);

fn config(store: &str, rls: SocketAddr, admin: SocketAddr) -> String {
    format!(
        r#"{store}
[rls]
listen = "{rls}"
[admin]
listen = "{admin}"
[audit]
file = "audit.jsonl"
[[policy]]
name = "tokens"
match = {{ domain = "edge", descriptors = {{ user = "*" }} }}
quotas = ["{UNITS}/{}s"]
"#,
        WINDOW.as_secs()
    )
}

/// An application that thinks for a while, and then says how many tokens that took.
fn start_model() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || generate(&stream.unwrap()));
        }
    });
    address
}

fn generate(mut stream: &TcpStream) {
    let head = BufReader::new(stream).lines().map_while(Result::ok);
    if head.take_while(|line| !line.is_empty()).count() == 0 {
        return;
    }
    thread::sleep(Duration::from_millis(50));
    let response = format!(
        "HTTP/1.1 200 OK\r\nx-tokens: {COST}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    );
    let _ = stream.write_all(response.as_bytes());
}

fn ask(client: &Client, proxy: SocketAddr, user: &str) -> Response {
    client.get(format!("http://{proxy}/v1/chat")).header("x-user", user).send().unwrap()
}

#[test]
fn what_responses_cost_is_limited_up_to_what_was_in_flight() {
    check("");
}

#[test]
fn what_responses_cost_is_limited_in_redis_too() {
    let redis = RedisServer::start();
    check(&format!("[store]\nurl = \"{}\"", redis.url()));
}

/// Has clients ask all at once, with accounts in this store.
fn check(store: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Slidegate::options("slidegate");
    let (rls, admin, proxy, model) =
        (free_address(), free_address(), free_address(), start_model());
    let file = options.directory().join("slidegate.toml");
    std::fs::write(&file, config(store, rls, admin)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    command.args(["serve", "--config"]).arg(file).stderr(Stdio::null());
    let _slidegate = Program::start(&mut command, "cargo build", rls);
    let ports = [(8080, proxy), (8082, rls), (3000, model)];
    let _envoy = envoy(options.directory(), "response_costs.yaml", ports, |text| text);
    let client = Client::new();
    wait_until("Envoy to ask Slidegate", || {
        ask(&client, proxy, "first").headers().contains_key("ratelimit")
    });

    let (began, start) = (Instant::now(), Barrier::new(CLIENTS));
    let statuses: Vec<u16> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let client = Client::new();
                    start.wait();
                    let asked = (0..REQUESTS_OF_CLIENT).map(|_| {
                        let response = ask(&client, proxy, "42");
                        let status = response.status().as_u16();
                        let _ = response.bytes();
                        status
                    });
                    asked.collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let count = |status| statuses.iter().filter(|other| **other == status).count();
    let (admitted, mut denied) = (count(200), count(429));
    assert_eq!(admitted + denied, statuses.len(), "{statuses:?}");
    let (fitting, in_flight) = (UNITS / COST, CLIENTS);
    assert!((fitting + 1..=fitting + in_flight).contains(&admitted), "{admitted}");

    // Reports beyond the quota are counted as such, and not as denials.
    let trail = options.directory().join("audit.jsonl");
    let audited = |verdict: &str| {
        let (trail, verdict) =
            (std::fs::read_to_string(&trail).unwrap(), format!(r#""verdict":"{verdict}""#));
        trail.lines().filter(|line| line.contains(&verdict)).count()
    };
    let beyond = admitted - fitting;
    wait_until("the reports to be in the audit trail", || audited("recorded") >= beyond);
    assert_eq!(audited("recorded"), beyond, "of {admitted}");
    let metrics = client.get(format!("http://{admin}/metrics")).send().unwrap().text().unwrap();
    let line = format!(r#"slidegate_requests_total{{listener="rls",verdict="recorded"}} {beyond}"#);
    assert!(metrics.lines().any(|other| other == line), "{line} is not in\n{metrics}");

    // Only this account is closed, until enough has left.
    let refused = ask(&client, proxy, "42");
    assert_eq!(refused.status(), 429);
    let retry_after: u64 = header(&refused, "retry-after").parse().unwrap();
    assert!((1..=WINDOW.as_secs()).contains(&retry_after), "{retry_after}");
    denied += 1;
    assert_eq!(ask(&client, proxy, "43").status(), 200);
    wait_until("the account to be open again", || {
        let is_open = ask(&client, proxy, "42").status() == 200;
        denied += usize::from(!is_open);
        is_open
    });
    assert!(began.elapsed() >= WINDOW, "{:?}", began.elapsed());

    // Clients were denied as often as the server says.
    wait_until("the denials to be in the audit trail", || audited("deny") >= denied);
    assert_eq!(audited("deny"), denied);
}
