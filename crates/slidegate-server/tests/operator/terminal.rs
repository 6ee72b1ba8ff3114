//! The operator's own tools: the command line, and HTTP.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use slidegate_testbed::{Gateway, GatewayOptions, Upstream, Wire};

use crate::configure;

/// One second, with slack for a busy machine.
pub(crate) const WITHIN_A_SECOND: Duration = Duration::from_secs(3);

/// An operator at a terminal, beside one gateway.
pub(crate) struct Operator {
    admin: SocketAddr,
}

/// A gateway that believes X-Forwarded-For, so that a test can be many clients.
pub(crate) fn for_many_clients(upstream: &Upstream) -> GatewayOptions {
    configure(upstream)
        .key("trusted_proxies", "[\"127.0.0.1\"]")
        .key("client_address", "\"x-forwarded-for\"")
}

/// How many of so many requests of a client pass.
pub(crate) fn passing(gateway: &Gateway, client: &str, requests: usize) -> usize {
    passing_at(gateway, "/", client, requests)
}

pub(crate) fn passing_at(gateway: &Gateway, path: &str, client: &str, requests: usize) -> usize {
    let mut wire = gateway.wire();
    let header = format!("X-Forwarded-For: {client}\r\n");
    (0..requests).filter(|_| wire.get(path, &header).status() == 200).count()
}

/// Whether a single request of a client passes.
pub(crate) fn passes(gateway: &Gateway, client: &str) -> bool {
    passing(gateway, client, 1) == 1
}

impl Operator {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self { admin: gateway.admin() }
    }

    /// A command, ready to run.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
        command.args(arguments).env_remove("SLIDEGATE_ADMIN_TOKEN");
        command.env("SLIDEGATE_ADMIN", format!("http://{}", self.admin));
        command
    }

    /// The output of a command that succeeds.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, in JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// The error of a command that fails.
    pub(crate) fn fail(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", errors(&output));
        assert!(output.stdout.is_empty(), "{output:?}");
        errors(&output)
    }

    /// A command that is given something on its standard input.
    pub(crate) fn run_with(&self, input: &str, arguments: &[&str]) -> String {
        let mut command = self.command(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A request to the API, with JSON if there is any, and what is answered.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let headers = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n\r\n");
        self.send(&format!("{head}{body}"))
    }

    /// Bytes, and what is answered to them.
    pub(crate) fn send(&self, request: &str) -> (u16, Value) {
        let mut wire = Wire::connect(self.admin);
        wire.send(request);
        let answer = wire.response();
        let value = serde_json::from_slice(&answer.body);
        (answer.status(), value.unwrap_or_else(|error| panic!("{error}: {}", answer.text())))
    }

    /// The ids of the overrides in force.
    pub(crate) fn overrides(&self) -> Vec<String> {
        let list = self.json(&["overrides"]);
        let overrides = list["overrides"].as_array().unwrap();
        overrides.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
