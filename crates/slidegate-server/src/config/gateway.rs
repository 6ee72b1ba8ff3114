//! `[gateway]`: the proxying endpoint.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, HeaderValue, Uri};
use slidegate::Policies;
use slidegate_proxy::{
    Bounds, ForwardingHeader, HeaderRules, HostRule, ListenAddress, ProxyConfig, RouteConfig,
    Timeouts,
};

use crate::config::endpoints::listen;
use crate::config::preflight::Preflight;
use crate::config::reader::Value;

/// The proxying endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GatewayConfig {
    pub(crate) listen: Vec<ListenAddress>,
    pub(crate) tls: Option<TlsFiles>,
    /// Every connection begins with a PROXY protocol header, which is believed of trusted peers.
    pub(crate) proxy_protocol: bool,
    pub(crate) proxy: ProxyConfig,
}

/// A certificate chain and its key, as PEM files, and who has signed those of clients, if clients
/// need one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
}

const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
/// A longer timeout is probably a wrong unit.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

impl GatewayConfig {
    /// Reads the section. Without an upstream there is no gateway, but the section can still say
    /// how the other endpoints read requests.
    pub(super) fn read(table: &Value<'_>) -> Option<Self> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let gateway = Self {
            listen: listen(table, DEFAULT_LISTEN),
            tls: table.key("tls").table().and_then(|table| TlsFiles::read(&table)),
            proxy_protocol: table.key("proxy_protocol").is_true(),
            proxy: ProxyConfig {
                routes: routes(table),
                host: table
                    .key("host")
                    .one_of(&[("keep", HostRule::Keep), ("upstream", HostRule::Upstream)])
                    .unwrap_or_default(),
                headers: HeaderRules {
                    underscores: table.key("underscores_in_headers").is_true(),
                    refuse_overrides: table.key("refuse_overrides").is_true(),
                },
                forwarding: forwarding(&table.key("forwarding_headers")),
                upgrades: upgrades(&table.key("upgrades")),
                workers: table.key("workers").number(1..=1024).unwrap_or_else(processors),
                timeouts: timeouts(&table.section("timeouts")),
                bounds: bounds(&table.section("bounds")),
            },
        };
        let has = |key: &&'static str| table.key(key).is_set();
        let upstream = table.key("upstream");
        if upstream.is_set() || has(&"route") {
            return Some(gateway);
        }
        let is_useful = super::limiter::GATEWAY_KEYS.iter().any(has);
        if table.is_set() && (has(&"listen") || has(&"tls") || !is_useful) {
            upstream.required("where allowed requests go, such as http://127.0.0.1:3000");
        }
        None
    }

    /// Reports headers that policies read and the gateway drops.
    pub(super) fn check_headers(&self, table: &Value<'_>, policies: &Policies) {
        let dropped = policies.identity_headers().filter(|name| name.as_str().contains('_'));
        let names: BTreeSet<&str> = dropped.map(HeaderName::as_str).collect();
        if !self.proxy.headers.underscores && !names.is_empty() {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let expected = format!(
                "missing: the gateway drops headers with underscores in their names, so no \
                 request has {names}: expected true, or a name with hyphens"
            );
            table.key("underscores_in_headers").report_with(expected, None);
        }
    }
}

fn forwarding(value: &Value<'_>) -> Vec<ForwardingHeader> {
    if !value.is_set() {
        return ForwardingHeader::DEFAULT.to_vec();
    }
    value.each(|value| value.one_of(&ForwardingHeader::ALL))
}

/// After an upgrade the gateway cannot see requests, so that a client that upgrades to HTTP/2 would
/// be limited no longer.
fn upgrades(value: &Value<'_>) -> Vec<HeaderValue> {
    if !value.is_set() {
        return vec![HeaderValue::from_static("websocket")];
    }
    value.each(|value| {
        let text = value.text()?.to_ascii_lowercase();
        let is_http = ["h2", "http", "tls"].iter().any(|name| text.starts_with(name));
        // A protocol's name is a token, as a header's name is.
        let is_token = |name: &str| HeaderName::try_from(name).is_ok();
        match text.split('/').all(is_token) {
            true if !is_http => HeaderValue::try_from(text).ok(),
            _ => value.reject(
                "expected the name of a protocol other than HTTP and TLS, such as websocket",
            ),
        }
    })
}

fn routes(table: &Value<'_>) -> Vec<RouteConfig> {
    let (upstream, http2) = (table.key("upstream"), table.key("http2_upstream").is_true());
    let mut routes = Vec::new();
    if upstream.is_set() {
        routes.push(RouteConfig { prefix: "/".to_owned(), servers: servers(&upstream), http2 });
    }
    for table in table.key("route").each(Value::table) {
        let Some(route) = route(&table) else { continue };
        if routes.iter().any(|other| other.prefix == route.prefix) {
            table.key("prefix").report("another route has this prefix: expected each once");
        }
        routes.push(route);
    }
    routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
    routes
}

fn route(table: &Value<'_>) -> Option<RouteConfig> {
    let prefix = table.key("prefix").required("the beginning of a path, such as /api");
    let upstream = table.key("upstream").required("a URL such as http://127.0.0.1:3000");
    let (servers, http2) = (servers(&upstream), table.key("http2_upstream").is_true());
    let text = prefix.string()?;
    if !text.starts_with('/') || text.contains(['?', '#', '{', '}', '*']) {
        prefix.report("expected the beginning of a path, such as /api for all below it");
    }
    Some(RouteConfig { prefix: text, servers, http2 })
}

impl TlsFiles {
    pub(super) fn read(table: &Value<'_>) -> Option<Self> {
        let file = |key| table.key(key).required("the path of a PEM file").file();
        let (certificate, key) = (file("certificate"), file("key"));
        let client_ca = table.key("client_ca").file();
        let files = Self { certificate: certificate?, key: key?, client_ca };
        table.check_start(None, Preflight::Tls(&files));
        Some(files)
    }
}

fn timeouts(table: &Value<'_>) -> Timeouts {
    let default = Timeouts::default();
    let period = |key, default| table.key(key).period(MAX_TIMEOUT).unwrap_or(default);
    Timeouts {
        head: period("head", default.head),
        idle: period("idle", default.idle),
        connect: period("connect", default.connect),
        response: period("response", default.response),
        drain: period("drain", default.drain),
        body: period("body", default.body),
        tunnel: period("tunnel", default.tunnel),
    }
}

fn bounds(table: &Value<'_>) -> Bounds {
    let default = Bounds::default();
    let at_once = |key, default| table.key(key).number(1..=10_000_000).unwrap_or(default);
    let for_each = |key: &'static str, total: usize| {
        let each = at_once(key, total.div_ceil(10));
        if each > total {
            let total_key = key.trim_end_matches("_per_address");
            table.key(key).report(format!("expected at most {total_key}, which is {total}"));
        }
        each
    };
    let connections = at_once("connections", default.connections);
    let in_flight = at_once("in_flight", default.in_flight);
    // The HTTP server reads at least 8 KiB at once, and a head is in memory as a whole.
    let head_bytes = table.key("head_bytes").number(8192..=16 * 1024 * 1024);
    Bounds {
        head_bytes: head_bytes.unwrap_or(default.head_bytes),
        connections,
        connections_per_address: for_each("connections_per_address", connections),
        in_flight,
        in_flight_per_address: for_each("in_flight_per_address", in_flight),
        idle_upstream: at_once("idle_upstream", default.idle_upstream),
        body_bytes: table.key("body_bytes").number(0..=u64::MAX >> 1),
        body_rate: table.key("body_rate").number(0..=u32::MAX).unwrap_or(default.body_rate),
    }
}

/// Of a URL that names a server.
pub(super) const EXPECTED_SERVER: &str =
    "expected http or https, a host and perhaps a port, and no path";

fn servers(value: &Value<'_>) -> Vec<Uri> {
    if value.is_set() && value.elements().is_empty() {
        value.report(expected_upstream());
    }
    value.each(|value| {
        let text = value.text()?;
        // Credentials in it would appear in the log.
        let value = if text.contains('@') { &value.hidden() } else { value };
        server(text).or_else(|| value.reject(expected_upstream()))
    })
}

fn expected_upstream() -> String {
    format!("{EXPECTED_SERVER}, such as http://127.0.0.1:3000")
}

/// The server that a URL names, and nothing more.
pub(super) fn server(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_plain = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    (is_known && is_plain && uri.authority().is_some_and(is_server)).then_some(uri)
}

/// A host and perhaps a port. An authority may also have a user, or a port that is no port.
fn is_server(authority: &Authority) -> bool {
    let (text, host) = (authority.as_str(), authority.host());
    let port = text.strip_prefix(host).map(|rest| rest.strip_prefix(':').unwrap_or(rest));
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    !host.is_empty() && (text == host || port.is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_are_servers_and_nothing_more() {
        for good in
            ["http://127.0.0.1:3000", "https://api.internal", "http://[::1]:80/", "http://a"]
        {
            assert!(server(good).is_some(), "{good}");
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
            assert!(server(bad).is_none(), "{bad}");
        }
    }
}
