//! A file of `examples/configs`, and gateways that go by it.

use std::fs;
use std::path::{Path, PathBuf};

use slidegate_testbed::{Gateway, Message, RedisServer, SlidegateOptions, Upstream, Wire};

use crate::options;

/// What the examples give Redis, and what a machine gives it that has a lot else to do. Those who
/// fail open would otherwise let a request pass whenever it is late.
const DEADLINE: &str = "deadline = \"50ms\"";
const PATIENT_DEADLINE: &str = "deadline = \"10s\"";

/// An example, but for where it and others are: the test is the proxy that it trusts.
pub(crate) struct Example {
    text: String,
    proxy: &'static str,
    variables: Vec<(&'static str, &'static str)>,
}

impl Example {
    /// The file of this name, with patience for Redis.
    pub(crate) fn load(name: &str) -> Self {
        let example = Self { text: read(name), proxy: "127.0.0.1", variables: Vec::new() };
        assert_eq!(example.text.matches(DEADLINE).count(), 1, "{name}");
        Self { text: example.text.replace(DEADLINE, PATIENT_DEADLINE), ..example }
    }

    /// Without that patience.
    pub(crate) fn with_its_own_deadline(self) -> Self {
        Self { text: self.text.replace(PATIENT_DEADLINE, DEADLINE), ..self }
    }

    /// With another proxy to trust.
    pub(crate) fn trusting(self, proxy: &'static str) -> Self {
        Self { proxy, ..self }
    }

    /// With one more variable in the environment.
    pub(crate) fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// A gateway that goes by it.
    pub(crate) fn start(&self, upstream: &Upstream, redis: &RedisServer) -> Gateway {
        let (upstream, redis) = (upstream.url(), redis.url());
        let flags = [
            ["--listen", "127.0.0.1:0"],
            ["--admin", "127.0.0.1:0"],
            ["--workers", "2"],
            ["--trusted-proxy", self.proxy],
            ["--upstream", &upstream],
            ["--redis", &redis],
        ];
        let options = options().configuration(&self.text);
        let options = flags.concat().into_iter().fold(options, SlidegateOptions::argument);
        let variables = self.variables.iter();
        let options =
            variables.fold(options, |options, (name, value)| options.variable(name, value));
        Gateway::from(options.start())
    }
}

fn read(name: &str) -> String {
    let path = folder().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// Where the examples are.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/configs")
}

/// A request without a body, of a client that the proxy in front has this address of.
pub(crate) fn request(line: &str, client: &str, headers: &str) -> String {
    let body = if line.starts_with("POST") { "Content-Length: 0\r\n" } else { "" };
    format!(
        "{line} HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: {client}\r\n{headers}{body}\r\n"
    )
}

/// Sends it and returns the response.
pub(crate) fn send(wire: &mut Wire, line: &str, client: &str, headers: &str) -> Message {
    wire.send(request(line, client, headers));
    wire.response()
}

/// The value of a header, as a number.
pub(crate) fn number(message: &Message, header: &str) -> u64 {
    let value = message.value(header).unwrap_or_else(|| panic!("no {header}: {}", message.head));
    value.parse().unwrap_or_else(|_| panic!("{header}: {value}"))
}
