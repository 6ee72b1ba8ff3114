//! `[gateway]`.

use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, Uri};
use slidegate::policy::Network;
use slidegate_tower::AddressSource;

use crate::config::error::ConfigError;
use crate::config::gateway::{HostRule, TlsFiles};
use crate::config::limiter::{EncodedSlashRule, PathParameterRule};
use crate::config::listen::ListenAddress;
use crate::config::location::{Location, Sourced};
use crate::config::reader::{Table, Value};
use crate::config::written::policy::header_name;
use crate::config::written::tables;

/// `[gateway]`.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenGateway {
    pub(in crate::config) listen: Vec<Sourced<ListenAddress>>,
    /// None if the key is missing; empty if what is there is no good.
    pub(in crate::config) upstream: Option<Vec<Sourced<Uri>>>,
    pub(in crate::config) http2_upstream: Option<Sourced<bool>>,
    pub(in crate::config) routes: Vec<WrittenRoute>,
    pub(in crate::config) trusted_proxies: Option<Sourced<Vec<Network>>>,
    pub(in crate::config) client_address: Option<Sourced<AddressSource>>,
    pub(in crate::config) user_header: Option<Sourced<HeaderName>>,
    pub(in crate::config) proxy_protocol: Option<Sourced<bool>>,
    pub(in crate::config) host: Option<HostRule>,
    pub(in crate::config) workers: Option<u16>,
    pub(in crate::config) tls: Option<Sourced<TlsFiles>>,
    pub(in crate::config) encoded_slashes: Option<EncodedSlashRule>,
    pub(in crate::config) path_parameters: Option<PathParameterRule>,
    pub(in crate::config) ignore_case: Option<bool>,
    pub(in crate::config) underscores_in_headers: Option<bool>,
    pub(in crate::config) refuse_overrides: Option<bool>,
    pub(in crate::config) timeouts: WrittenTimeouts,
    pub(in crate::config) bounds: WrittenBounds,
}

/// `[[gateway.route]]`.
#[derive(Debug, Clone)]
pub(in crate::config) struct WrittenRoute {
    pub(in crate::config) prefix: Option<Sourced<String>>,
    pub(in crate::config) servers: Vec<Sourced<Uri>>,
    pub(in crate::config) http2: bool,
}

/// `[gateway.timeouts]`.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenTimeouts {
    pub(in crate::config) head: Option<Duration>,
    pub(in crate::config) idle: Option<Duration>,
    pub(in crate::config) connect: Option<Duration>,
    pub(in crate::config) response: Option<Duration>,
    pub(in crate::config) drain: Option<Duration>,
    pub(in crate::config) body: Option<Duration>,
    pub(in crate::config) tunnel: Option<Duration>,
}

/// `[gateway.bounds]`.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenBounds {
    pub(in crate::config) head_bytes: Option<u32>,
    pub(in crate::config) connections: Option<u32>,
    pub(in crate::config) connections_per_address: Option<Sourced<u32>>,
    pub(in crate::config) in_flight: Option<u32>,
    pub(in crate::config) in_flight_per_address: Option<Sourced<u32>>,
    pub(in crate::config) idle_upstream: Option<u32>,
    pub(in crate::config) body_bytes: Option<u64>,
    pub(in crate::config) body_rate: Option<u32>,
}

/// A longer timeout is probably a wrong unit.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);
/// The HTTP server reads at least this much at once, and a head is in memory as a whole.
const HEAD_BYTES: std::ops::RangeInclusive<u32> = 8192..=16 * 1024 * 1024;
const AT_ONCE: std::ops::RangeInclusive<u32> = 1..=10_000_000;

impl WrittenGateway {
    pub(super) fn read(table: &Table<'_>) -> Self {
        Self {
            listen: listen(table),
            upstream: table.get("upstream").map(|value| servers(&value)),
            http2_upstream: table.sourced("http2_upstream", Value::boolean),
            routes: tables(table.get("route"), WrittenRoute::read),
            trusted_proxies: table.sourced("trusted_proxies", |value| {
                Some(value.each(Value::parsed).into_iter().map(|sourced| sourced.value).collect())
            }),
            client_address: table.sourced("client_address", Value::parsed),
            user_header: table.sourced("user_header", header_name),
            proxy_protocol: table.sourced("proxy_protocol", Value::boolean),
            host: table.get("host").and_then(|v| {
                v.one_of(&[("keep", HostRule::Keep), ("upstream", HostRule::Upstream)])
            }),
            workers: table.get("workers").and_then(|value| value.number(1..=1024)),
            tls: table.sourced("tls", |value| value.table(tls)?),
            encoded_slashes: table.get("encoded_slashes").and_then(|value| {
                value.one_of(&[
                    ("keep", EncodedSlashRule::Keep),
                    ("decode", EncodedSlashRule::Decode),
                ])
            }),
            path_parameters: table.get("path_parameters").and_then(|value| {
                value.one_of(&[("cut", PathParameterRule::Cut), ("keep", PathParameterRule::Keep)])
            }),
            ignore_case: table.get("ignore_case").and_then(|value| value.boolean()),
            underscores_in_headers: table
                .get("underscores_in_headers")
                .and_then(|value| value.boolean()),
            refuse_overrides: table.get("refuse_overrides").and_then(|value| value.boolean()),
            timeouts: table
                .get("timeouts")
                .and_then(|value| value.table(WrittenTimeouts::read))
                .unwrap_or_default(),
            bounds: table
                .get("bounds")
                .and_then(|value| value.table(WrittenBounds::read))
                .unwrap_or_default(),
        }
    }
}

impl WrittenRoute {
    fn read(table: &Table<'_>) -> Self {
        let prefix = table.sourced("prefix", |value| {
            let text = value.text()?;
            if !text.starts_with('/') || text.contains(['?', '#', '{', '}', '*']) {
                value.report("expected the beginning of a path, such as /api for all below it");
            }
            Some(text.to_owned())
        });
        if prefix.is_none() && table.get("prefix").is_none() {
            table.missing("prefix", "the beginning of a path, such as /api");
        }
        let upstream = table.get("upstream");
        if upstream.is_none() {
            table.missing("upstream", "a URL such as http://127.0.0.1:3000");
        }
        let http2 = table.get("http2_upstream").and_then(|value| value.boolean());
        Self {
            prefix,
            servers: upstream.map(|value| servers(&value)).unwrap_or_default(),
            http2: http2.unwrap_or_default(),
        }
    }
}

impl WrittenTimeouts {
    fn read(table: &Table<'_>) -> Self {
        let period = |key| table.get(key).and_then(|value| value.period(LONGEST_WAIT));
        Self {
            head: period("head"),
            idle: period("idle"),
            connect: period("connect"),
            response: period("response"),
            drain: period("drain"),
            body: period("body"),
            tunnel: period("tunnel"),
        }
    }
}

impl WrittenBounds {
    fn read(table: &Table<'_>) -> Self {
        let number = |key, range| table.get(key).and_then(|value| value.number(range));
        Self {
            head_bytes: number("head_bytes", HEAD_BYTES),
            connections: number("connections", AT_ONCE),
            connections_per_address: table
                .sourced("connections_per_address", |value| value.number(AT_ONCE)),
            in_flight: number("in_flight", AT_ONCE),
            in_flight_per_address: table
                .sourced("in_flight_per_address", |value| value.number(AT_ONCE)),
            idle_upstream: number("idle_upstream", AT_ONCE),
            body_bytes: table.get("body_bytes").and_then(|value| value.number(0..=u64::MAX >> 1)),
            body_rate: number("body_rate", 0..=u32::MAX),
        }
    }
}

pub(super) fn listen(table: &Table<'_>) -> Vec<Sourced<ListenAddress>> {
    let Some(value) = table.get("listen") else { return Vec::new() };
    let addresses = value.each(Value::parsed);
    if value.count() == 0 {
        value.report("expected at least one address, such as 127.0.0.1:8080");
    }
    addresses
}

pub(super) fn tls(table: &Table<'_>) -> Option<TlsFiles> {
    let file = |key| {
        let value = table.get(key);
        if value.is_none() {
            table.missing(key, "the path of a PEM file");
        }
        value.and_then(|value| value.file())
    };
    let (certificate, key) = (file("certificate"), file("key"));
    Some(TlsFiles { certificate: certificate?, key: key? })
}

fn servers(value: &Value<'_>) -> Vec<Sourced<Uri>> {
    if value.count() == 0 {
        value.report(EXPECTED_UPSTREAM);
    }
    let uri = |value: &Value<'_>| {
        let text = value.text()?;
        match upstream(text) {
            Ok(uri) => Some(uri),
            // Credentials in it would appear in the log.
            Err(expected) if text.contains('@') => {
                value.report_hidden(expected);
                None
            }
            Err(expected) => {
                value.report(expected);
                None
            }
        }
    };
    value.each(uri)
}

const EXPECTED_UPSTREAM: &str =
    "expected http or https, a host and perhaps a port, and no path, such as http://127.0.0.1:3000";

/// Parses an upstream server; the error names what was expected.
pub(in crate::config) fn upstream(text: &str) -> Result<Uri, &'static str> {
    let uri: Uri = text.parse().map_err(|_| EXPECTED_UPSTREAM)?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let plain = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    let server = uri.authority().is_some_and(is_server);
    if known && plain && server { Ok(uri) } else { Err(EXPECTED_UPSTREAM) }
}

/// A host and perhaps a port. An authority may also have a user, or a port that is no port.
fn is_server(authority: &Authority) -> bool {
    let (text, host) = (authority.as_str(), authority.host());
    let port = text.strip_prefix(host).map(|rest| rest.strip_prefix(':').unwrap_or(rest));
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    !host.is_empty() && (text == host || port.is_some_and(is_port))
}

/// A problem with an upstream from a flag or the environment.
pub(in crate::config) fn upstream_problem(
    location: Location,
    text: &str,
    expected: &str,
) -> ConfigError {
    let problem = ConfigError::new(location, expected);
    if text.contains('@') { problem } else { problem.with_value(format!("{text:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_are_servers_and_nothing_more() {
        for good in
            ["http://127.0.0.1:3000", "https://api.internal", "http://[::1]:80/", "http://a"]
        {
            assert!(upstream(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:3000",
            "localhost",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a?b",
            "http://me:hunter2@a",
            "http://a:99999",
            "http://a:",
            "http://:80",
            "/x",
            "*",
        ] {
            assert!(upstream(bad).is_err(), "{bad}");
        }
    }
}
