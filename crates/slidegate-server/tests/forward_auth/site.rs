//! An application with Slidegate, for a proxy to come before them, and what must then hold.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use reqwest::blocking::{Client, Response};

use crate::application::Application;
use crate::program::{Directory, Program, free_address};

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
match = { path = ["/reports", "/broken"] }
identity = ["user", "ip"]
plan = "free"

[blocked]
paths = ["/private"]
"#;

/// The address that an example gives to each part.
const PROXY: &str = "127.0.0.1:8080";
const SLIDEGATE: &str = "127.0.0.1:8081";
const APPLICATION: &str = "127.0.0.1:3000";

/// An application, Slidegate, and an address for the proxy before them.
pub(crate) struct Site {
    pub(crate) application: Application,
    pub(crate) proxy: SocketAddr,
    pub(crate) decisions: SocketAddr,
    pub(crate) rls: SocketAddr,
    pub(crate) directory: Directory,
    slidegate: Option<Program>,
    has_token: bool,
}

/// The token of a Slidegate that asks for one, as the examples have it.
pub(crate) const TOKEN: &str = "change-me";

/// How each example has the line for the token, and how it is put in force.
const TOKEN_LINES: [(&str, &str); 3] = [
    ("# proxy_set_header X-Slidegate-Token", "proxy_set_header X-Slidegate-Token"),
    ("# header_up X-Slidegate-Token", "header_up X-Slidegate-Token"),
    ("local token = nil -- ", "local token = "),
];

impl Site {
    pub(crate) fn new() -> Self {
        Self::start(false)
    }

    /// With a Slidegate that asks for a token, as one on another machine does.
    pub(crate) fn with_token() -> Self {
        Self::start(true)
    }

    fn start(has_token: bool) -> Self {
        // The client wants to know how TLS is done, even if it never is.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = Directory::new();
        let (decisions, rls) = (free_address(), free_address());
        let endpoints =
            format!("[decisions]\nlisten = \"{decisions}\"\n[rls]\nlisten = \"{rls}\"\n");
        let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
        let config = directory.write("slidegate.toml", &format!("{endpoints}{admin}{RULES}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
        command.args(["serve", "--config"]).arg(config).stderr(Stdio::null());
        if has_token {
            command.env("SLIDEGATE_DECISIONS_TOKEN", TOKEN);
        }
        let slidegate = Some(Program::start(&mut command, "cargo build", decisions));
        let (application, proxy) = (Application::start(), free_address());
        Self { application, proxy, decisions, rls, directory, slidegate, has_token }
    }

    /// Copies a file of the examples, with the addresses of this site in place of its own.
    pub(crate) fn adopt(&self, example: &str, edit: impl Fn(String) -> String) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text
            .replace(PROXY, &self.proxy.to_string())
            .replace(SLIDEGATE, &self.decisions.to_string())
            .replace(APPLICATION, &self.application.address.to_string());
        let lines = TOKEN_LINES.iter().filter(|_| self.has_token);
        let text = lines.fold(text, |text, (off, on)| text.replace(off, on));
        let name = path.file_name().unwrap().to_str().unwrap();
        self.directory.write(name, &edit(text));
    }

    pub(crate) fn stop_slidegate(&mut self) {
        self.slidegate = None;
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        let url = format!("http://{}{path}", self.proxy);
        let mut request = Client::new().request(method.parse().unwrap(), url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = if method == "POST" { request.body("name=x") } else { request };
        request.send().unwrap()
    }

    /// Whatever the proxy, clients are limited, told so, and cannot talk themselves out of it.
    pub(crate) fn check_limits(&self) {
        for remaining in ["1", "0"] {
            let allowed = self.send("POST", "/login?next=%2F", &[]);
            assert_eq!(allowed.status(), 200);
            assert_eq!(header(&allowed, "x-ratelimit-remaining"), remaining);
            assert!(header(&allowed, "ratelimit").starts_with("\"login\";r="));
            assert_eq!(allowed.text().unwrap(), "hello");
        }
        assert_eq!(self.application.seen(), ["POST /login?next=%2F"; 2]);

        let refused = self.send("POST", "/login", &[]);
        assert_eq!(refused.status(), 429);
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
            // Envoy answers what seems to be gRPC in kind.
            let is_grpc = refused.headers().contains_key("grpc-status");
            assert!(refused.status() == 429 || is_grpc, "{forged:?}");
        }
        assert_eq!(self.send("POST", "//login", &[]).status(), 429);
        assert_eq!(self.application.seen(), [""; 0]);

        assert_eq!(self.send("GET", "/login", &[]).status(), 200);
        assert_eq!(self.send("GET", "/private", &[]).status(), 403);
        for (key, status) in [("one", 200), ("two", 200), ("one", 429)] {
            assert_eq!(self.send("GET", "/api/x", &[("x-api-key", key)]).status(), status, "{key}");
        }
    }

    /// Without Slidegate requests pass, as the examples have it.
    pub(crate) fn check_failing_open(&mut self) {
        self.stop_slidegate();
        self.application.seen();
        let passed = self.send("POST", "/login", &[]);
        assert_eq!((passed.status().as_u16(), passed.text().unwrap().as_str()), (200, "hello"));
        assert_eq!(self.application.seen(), ["POST /login"]);
    }
}

pub(crate) fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
}
