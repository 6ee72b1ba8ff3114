//! Envoy, asking over gRPC: its rate limit filter by descriptors, and `ext_authz` by requests.

#![allow(clippy::disallowed_methods, reason = "it times a real process")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::blocking::{Client, Response};
use slidegate_testbed::program::free_address;
use slidegate_testbed::{Program, Slidegate, SlidegateOptions, tool, wait_until};

use crate::application::Application;
use crate::site::{Site, header};

const INSTALL: &str = "scripts/tools";

/// Starts the real Envoy with an example, and each part where it is here.
pub(crate) fn envoy(
    directory: &Path,
    example: &str,
    ports: [(u16, SocketAddr); 3],
    edit: impl Fn(String) -> String,
) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/envoy").join(example);
    let text =
        ports.iter().fold(std::fs::read_to_string(path).unwrap(), |text, (port, address)| {
            text.replace(
                &format!("port_value: {port} "),
                &format!("port_value: {} ", address.port()),
            )
        });
    let proxy = ports[0].1;
    let file = directory.join(format!("envoy-{}.yaml", proxy.port()));
    std::fs::write(&file, edit(text)).unwrap();
    let mut command = Command::new(tool("envoy/_bin/envoy"));
    command.arg("-c").arg(file).args(["--concurrency", "1", "--disable-hot-restart"]);
    command.args(["--log-level", "error"]).current_dir(directory).stderr(Stdio::null());
    Program::start(&mut command, INSTALL, proxy)
}

#[test]
fn envoy_checks_requests_over_grpc() {
    let mut site = Site::new();
    let ports = [(8080, site.proxy), (8082, site.rls), (3000, site.application.address)];
    let _envoy = envoy(site.directory.path(), "ext_authz_grpc.yaml", ports, |text| text);
    site.check_limits();
    site.stop_slidegate();
    assert_eq!(site.status_within(Duration::from_secs(20)), Some(200), "it fails open");
}

const UNITS: usize = 5;
const WINDOW: Duration = Duration::from_secs(1);

const RULES: &str = r#"
tls = { certificate = "server.crt", key = "server.key", client_ca = "ca.crt" }
[admin]
listen = "127.0.0.1:0"
[audit]
file = "audit.jsonl"
[[policy]]
name = "login"
match = { domain = "edge", descriptors = { remote_address = "*", path = "/login" } }
identity = ["descriptor:remote_address"]
quotas = ["5/s"]
"#;

fn slidegate(options: &SlidegateOptions, listen: SocketAddr) -> Program {
    let config = options.directory().join("slidegate.toml");
    std::fs::write(&config, format!("[rls]\nlisten = \"{listen}\"{RULES}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    command.args(["serve", "--config"]).arg(config).stderr(Stdio::null());
    Program::start(&mut command, "cargo build", listen)
}

/// The lines of the example that are for TLS, put in force.
fn with_tls(text: &str) -> String {
    let (before, after) = text.split_once("      # With rls.tls = ").unwrap();
    let (block, rest) = after.split_once("    - name: app").unwrap();
    let lines = block.lines().skip(1).map(|line| line.replacen("# ", "", 1) + "\n");
    format!("{before}{}    - name: app{rest}", lines.collect::<String>())
}

fn get(proxy: SocketAddr, path: &str) -> Response {
    Client::new().get(format!("http://{proxy}{path}")).send().unwrap()
}

#[test]
fn envoy_limits_by_descriptors_exactly_and_fails_as_configured() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Slidegate::options("slidegate");
    let _ = options.certificates();
    let (application, rls) = (Application::start(), free_address());
    let mut running = Some(slidegate(&options, rls));
    let [open, closed] = [false, true].map(|denies| {
        let proxy = free_address();
        let ports = [(8080, proxy), (8082, rls), (3000, application.address)];
        let (off, on) = ("failure_mode_deny: false", format!("failure_mode_deny: {denies}"));
        let edit = |text: String| with_tls(&text).replace(off, &on);
        (envoy(options.directory(), "ratelimit.yaml", ports, edit), proxy)
    });

    // As fast as one client can, over several windows: all units are used, and never more.
    let (mut allowed, mut denied) = (Vec::new(), 0);
    while allowed.len() < 4 * UNITS {
        let asked = Instant::now();
        let response = get(open.1, "/login?next=%2F");
        match response.status().as_u16() {
            200 => {
                let remaining = header(&response, "x-ratelimit-remaining");
                assert!(header(&response, "ratelimit").starts_with("\"login\";r="));
                if allowed.is_empty() {
                    assert_eq!(remaining, "4");
                }
                allowed.push((asked, Instant::now()));
            }
            429 => {
                let retry_after: u64 = header(&response, "retry-after").parse().unwrap();
                assert!((1..=2).contains(&retry_after), "{retry_after}");
                assert_eq!(header(&response, "content-type"), "application/problem+json");
                assert_eq!(header(&response, "x-envoy-ratelimited"), "true");
                assert!(response.text().unwrap().contains(r#""violated-policies":["login"]"#));
                denied += 1;
            }
            status => panic!("{status}"),
        }
    }
    for pair in allowed.windows(UNITS + 1) {
        let (first, last) = (pair[0].0, pair[UNITS].1);
        assert!(last - first >= WINDOW, "{:?}", last - first);
    }
    assert!(denied > 0);
    assert_eq!(get(open.1, "/").status(), 200);
    let trail = options.directory().join("audit.jsonl");
    wait_until("the denials to be in the audit trail", || {
        let trail = std::fs::read_to_string(&trail).unwrap();
        let words = [r#""listener":"rls""#, r#""verdict":"deny""#, r#""identity":"ip:127.0.0.1""#];
        trail.lines().filter(|line| words.iter().all(|word| line.contains(word))).count() == denied
    });

    // Without Slidegate the one lets requests pass, and the other does not.
    drop(running.take());
    for _ in 0..2 * UNITS {
        assert_eq!(get(open.1, "/login").status(), 200);
    }
    assert_eq!(get(closed.1, "/login").status(), 500);
    assert_eq!(get(closed.1, "/").status(), 200);

    // Slidegate is back, and so are the limits, over the budget that both share.
    let _running = slidegate(&options, rls);
    for (_, proxy) in [&open, &closed] {
        wait_until("Envoy to ask again", || {
            get(*proxy, "/login").headers().contains_key("ratelimit")
        });
    }
    wait_until("both to be over the limit", || {
        [&open, &closed].iter().all(|(_, proxy)| get(*proxy, "/login").status() == 429)
    });

    // Another quota is in force without a restart.
    let config = options.directory().join("slidegate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, text.replace("5/s", "1000/h")).unwrap();
    wait_until("the new quota to be in force", || {
        let response = get(closed.1, "/login");
        response
            .headers()
            .get("ratelimit-policy")
            .is_some_and(|value| value == "\"login\";q=1000;w=3600")
    });
}
