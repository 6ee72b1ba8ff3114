//! An application with Slidegate, for a proxy to come before them, and what must then hold.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use reqwest::blocking::{Client, RequestBuilder, Response};
use slidegate_testbed::program::free_address;
use slidegate_testbed::{Directory, Program};

use crate::application::Application;
use crate::proxy::Edits;

const RULES: &str = r#"
[[policy]]
name = "login"
match = { method = "POST", path = "/login" }
identity = ["ip"]
quotas = ["2/min"]

[[policy]]
name = "api"
match = { path = "/api/{*rest}" }
identity = ["api-key", "ip"]
quotas = ["1/min"]

[plans.free]
quotas = ["1/min"]
[plans.pro]
quotas = ["3/min"]

[[policy]]
name = "reports"
match = { path = ["/reports", "/broken", "/metered"] }
identity = ["user", "ip"]
plan = "free"

[[policy]]
name = "lines"
match = { path = "/lines" }
quotas = ["1/min"]
refusal = { template = "two\nlines\n" }

[[policy]]
name = "long"
match = { path = "/long" }
quotas = ["1/min"]
refusal = { template = "LONG" }

[blocked]
paths = ["/private"]
"#;

/// The port that an example gives to each part.
const PROXY: u16 = 8080;
const SLIDEGATE: u16 = 8081;
const APPLICATION: u16 = 3000;

/// The headers that say where a client stands.
const STANDING: [&str; 5] = [
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// An application, Slidegate, and an address for the proxy before them.
pub(crate) struct Site {
    pub(crate) application: Application,
    pub(crate) proxy: SocketAddr,
    pub(crate) decisions: SocketAddr,
    pub(crate) rls: SocketAddr,
    pub(crate) directory: Directory,
    slidegate: Option<Program>,
    edits: Edits,
}

/// The token of a Slidegate that asks for one, as the examples have it.
pub(crate) const TOKEN: &str = "change-me";

impl Site {
    pub(crate) fn new() -> Self {
        Self::edited(&[])
    }

    /// With these edits of the example.
    pub(crate) fn edited(edits: Edits) -> Self {
        Self::start(edits, None)
    }

    /// With a Slidegate that asks for a token, as one on another machine does.
    pub(crate) fn with_token(edits: Edits) -> Self {
        Self::start(edits, Some(TOKEN))
    }

    fn start(edits: Edits, token: Option<&str>) -> Self {
        // The client wants to know how TLS is done, even if it never is.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = Directory::new();
        let (decisions, rls) = (free_address(), free_address());
        let endpoints =
            format!("[decisions]\nlisten = \"{decisions}\"\n[rls]\nlisten = \"{rls}\"\n");
        let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
        let rules = RULES.replace("LONG", &"slow down ".repeat(1000));
        let config = directory.write("slidegate.toml", &format!("{endpoints}{admin}{rules}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
        command.args(["serve", "--config"]).arg(config).stderr(Stdio::null());
        if let Some(token) = token {
            command.env("SLIDEGATE_DECISIONS_TOKEN", token);
        }
        let slidegate = Some(Program::start(&mut command, "cargo build", decisions));
        let (application, proxy) = (Application::start(), free_address());
        Self { application, proxy, decisions, rls, directory, slidegate, edits }
    }

    /// Copies a file of the examples, with the addresses of this site in place of its own.
    pub(crate) fn adopt(&self, example: &str, edit: impl Fn(String) -> String) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
        let text = std::fs::read_to_string(&path).unwrap();
        let text = self.edits.iter().fold(text, |text, (from, to)| text.replace(from, to));
        let addresses = [
            (PROXY, self.proxy),
            (SLIDEGATE, self.decisions),
            (APPLICATION, self.application.address),
        ];
        let text = addresses.into_iter().fold(text, |text, (port, address)| {
            let text = text.replace(&format!("127.0.0.1:{port}"), &address.to_string());
            // Envoy has them apart.
            let key = "port_value:";
            text.replace(&format!("{key} {port}"), &format!("{key} {}", address.port()))
        });
        let name = path.file_name().unwrap().to_str().unwrap();
        self.directory.write(name, &edit(text));
    }

    pub(crate) fn stop_slidegate(&mut self) {
        self.slidegate = None;
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.proxy);
        let request = Client::new().request(method.parse().unwrap(), url);
        if method == "POST" { request.body("name=x") } else { request }
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.request(method, path);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.send().unwrap()
    }

    /// Whatever the proxy, clients are limited, told so, and cannot talk themselves out of it.
    /// Returns which headers that say where it stands a client gets, and what a refusal is.
    pub(crate) fn check_limits(&self) -> [String; 2] {
        let standings = ["1", "0"].map(|remaining| {
            let allowed = self.send("POST", "/login?next=%2F", &[]);
            assert_eq!(allowed.status(), 200);
            let standing = standing(&allowed, remaining);
            assert_eq!(allowed.text().unwrap(), "hello");
            standing
        });
        assert_eq!(standings[0], standings[1]);
        assert_eq!(self.application.seen(), ["POST /login?next=%2F"; 2]);

        let refused = self.send("POST", "/login", &[]);
        assert_eq!(refused.status(), 429);
        let refusal = format!("429, {} headers, body", standing(&refused, "0"));
        let retry_after: u32 = header(&refused, "retry-after").parse().unwrap();
        assert!((1..=61).contains(&retry_after), "{retry_after}");
        assert_eq!(header(&refused, "content-type"), "application/problem+json");
        assert_eq!(header(&refused, "cache-control"), "no-store");
        let body = refused.text().unwrap();
        assert!(body.contains(r#""violated-policies":["login"]"#), "{body}");

        for forged in [
            ("x-forwarded-for", "198.51.100.1"),
            ("x-real-ip", "198.51.100.1"),
            ("forwarded", "for=198.51.100.1"),
            ("x-forwarded-uri", "/"),
            ("x-forwarded-method", "GET"),
            ("x-original-uri", "/"),
            ("x-original-method", "GET"),
            ("content-type", "application/grpc"),
            ("x-slidegate-token", "of-the-client"),
        ] {
            let refused = self.send("POST", "/login", &[forged]);
            match refused.headers().get("grpc-status") {
                // Envoy refuses what may be a call of gRPC as one: unavailable.
                Some(status) => {
                    assert_eq!((forged.0, status.as_bytes()), ("content-type", &b"14"[..]));
                }
                None => assert_eq!(refused.status(), 429, "{forged:?}"),
            }
        }
        assert_eq!(self.send("POST", "//login", &[]).status(), 429);
        assert_eq!(self.application.seen(), [""; 0]);

        assert_eq!(self.send("GET", "/login", &[]).status(), 200);
        assert_eq!(self.send("GET", "/private", &[]).status(), 403);
        for (key, status) in [("one", 200), ("two", 200), ("one", 429)] {
            assert_eq!(self.send("GET", "/api/x", &[("x-api-key", key)]).status(), status, "{key}");
        }
        [standings[0].to_owned(), refusal]
    }

    /// The status of a request that is answered so soon, which must be the application's own response
    /// if it is 200, and none of it otherwise.
    pub(crate) fn status_within(&self, time: Duration) -> Option<u16> {
        self.application.seen();
        let response = self.request("POST", "/login").timeout(time).send();
        let status = response.as_ref().map(|response| response.status().as_u16()).ok();
        match status {
            Some(200) => {
                assert_eq!(response.unwrap().text().unwrap(), "hello");
                assert_eq!(self.application.seen(), ["POST /login"]);
            }
            _ => assert_eq!(self.application.seen(), [""; 0]),
        }
        status
    }
}

/// Which of the headers that say where a client stands are there: all, or none.
fn standing(response: &Response, remaining: &str) -> &'static str {
    if STANDING.iter().all(|name| response.headers().get(*name).is_none()) {
        return "none";
    }
    assert_eq!(header(response, "x-ratelimit-remaining"), remaining);
    assert!(header(response, "ratelimit").starts_with("\"login\";r="));
    STANDING.iter().for_each(|name| assert!(!header(response, name).is_empty()));
    "all"
}

pub(crate) fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
}
