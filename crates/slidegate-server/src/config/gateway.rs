//! `[gateway]`: the proxying endpoint.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, HeaderValue, Uri};
use slidegate::Policies;

use crate::config::ListenAddress;
use crate::config::endpoints::listen;
use crate::config::preflight::Preflight;
use crate::config::reader::{Reader, Value};

/// The proxying endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GatewayConfig {
    pub(crate) listen: Vec<ListenAddress>,
    pub(crate) tls: Option<TlsFiles>,
    /// Every connection begins with a PROXY protocol header, which is believed of trusted peers.
    pub(crate) proxy_protocol: bool,
    /// By path prefix, the longest that fits first; the prefix `/` fits all.
    pub(crate) routes: Vec<RouteConfig>,
    pub(crate) host: HostRule,
    pub(crate) headers: HeaderRules,
    /// Protocols that a client may upgrade to.
    pub(crate) upgrades: Vec<HeaderValue>,
    /// Threads that serve, each with its own connections.
    pub(crate) workers: usize,
    pub(crate) timeouts: Timeouts,
    pub(crate) bounds: Bounds,
}

/// Where requests for some paths go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RouteConfig {
    pub(crate) prefix: String,
    /// Taken in turn. `http` or `https`, with a host and perhaps a port, and no path.
    pub(crate) servers: Vec<Uri>,
    /// Speak HTTP/2 with prior knowledge, as gRPC does.
    pub(crate) http2: bool,
}

/// The `Host` sent to upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum HostRule {
    /// The one that the client asked for.
    #[default]
    Keep,
    /// The upstream's own.
    Upstream,
}

/// What becomes of requests with headers that upstreams may read in other ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HeaderRules {
    /// Whether headers with underscores in their names are passed on. CGI and its successors read
    /// them as hyphens.
    pub(crate) underscores: bool,
    /// Whether requests are refused that ask upstream for another method or path than policies see.
    pub(crate) refuse_overrides: bool,
}

/// How long to wait.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeouts {
    /// For all of a request's head, and for a TLS handshake or a PROXY header before it.
    pub(crate) head: Duration,
    /// For the next request on a connection, and for the next piece of a body.
    pub(crate) idle: Duration,
    /// For a connection to upstream.
    pub(crate) connect: Duration,
    /// For the head of upstream's response.
    pub(crate) response: Duration,
    /// Drain timeout: for requests in flight at shutdown.
    pub(crate) drain: Duration,
    /// For all of a request's body.
    pub(crate) body: Duration,
    /// Idle timeout of an upgraded connection, such as a WebSocket.
    pub(crate) tunnel: Duration,
}

/// How much of everything there may be at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bounds {
    /// Bytes of a request's head.
    pub(crate) head_bytes: usize,
    /// Client connections, over all workers.
    pub(crate) connections: usize,
    /// Client connections from one address, over all workers; at most `connections`.
    pub(crate) connections_per_address: usize,
    /// Requests that wait for upstream, over all workers.
    pub(crate) in_flight: usize,
    /// Requests of one address that wait for upstream, over all workers; at most `in_flight`.
    pub(crate) in_flight_per_address: usize,
    /// Connections that are kept open to one upstream server, for each worker.
    pub(crate) idle_upstream: usize,
    /// Bytes of a request's body; without, there is no limit.
    pub(crate) body_bytes: Option<u64>,
    /// Bytes per second that a request's body must reach on average after its first 10 seconds;
    /// 0 is no minimum.
    pub(crate) body_rate: u32,
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
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

impl GatewayConfig {
    /// Reads the section. Without an upstream there is no gateway, but the section can still say
    /// how the other endpoints read requests.
    pub(super) fn read(table: &Value<'_>) -> Option<Self> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let gateway = Self {
            listen: listen(table, DEFAULT_LISTEN),
            tls: table.key("tls").table().and_then(|table| TlsFiles::read(&table)),
            proxy_protocol: table.key("proxy_protocol").is_true(),
            routes: routes(table),
            host: table.key("host").word().unwrap_or_default(),
            headers: HeaderRules {
                underscores: table.key("underscores_in_headers").is_true(),
                refuse_overrides: table.key("refuse_overrides").is_true(),
            },
            upgrades: upgrades(&table.key("upgrades")),
            workers: table.key("workers").number(1..=1024).unwrap_or_else(processors),
            timeouts: Timeouts::read(&table.section("timeouts")),
            bounds: Bounds::read(&table.section("bounds")),
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
        if !self.headers.underscores && !names.is_empty() {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let expected = format!(
                "missing: the gateway drops headers with underscores in their names, so that \
                 nobody is counted or listed by {names}: expected true, or a name with hyphens"
            );
            table.key("underscores_in_headers").report_with(expected, None);
        }
    }
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
        let Some(route) = RouteConfig::read(&table) else { continue };
        if routes.iter().any(|other| other.prefix == route.prefix) {
            table.key("prefix").report("another route has this prefix: expected each once");
        }
        routes.push(route);
    }
    routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
    routes
}

impl RouteConfig {
    fn read(table: &Value<'_>) -> Option<Self> {
        let prefix = table.key("prefix").required("the beginning of a path, such as /api");
        let upstream = table.key("upstream").required("a URL such as http://127.0.0.1:3000");
        let (servers, http2) = (servers(&upstream), table.key("http2_upstream").is_true());
        let text = prefix.string()?;
        if !text.starts_with('/') || text.contains(['?', '#', '{', '}', '*']) {
            prefix.report("expected the beginning of a path, such as /api for all below it");
        }
        Some(Self { prefix: text, servers, http2 })
    }
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

impl Timeouts {
    fn read(table: &Value<'_>) -> Self {
        let period = |key, seconds| {
            let period = table.key(key).period(LONGEST_WAIT);
            period.unwrap_or(Duration::from_secs(seconds))
        };
        Self {
            head: period("head", 10),
            idle: period("idle", 60),
            connect: period("connect", 5),
            response: period("response", 60),
            drain: period("drain", 30),
            body: period("body", 3600),
            tunnel: period("tunnel", 3600),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::read(&Reader::default().nothing())
    }
}

impl Bounds {
    fn read(table: &Value<'_>) -> Self {
        let at_once = |key, default| table.key(key).number(1..=10_000_000).unwrap_or(default);
        let for_each = |key: &'static str, total: usize| {
            let each = at_once(key, total.div_ceil(10));
            if each > total {
                let total_key = key.trim_end_matches("_per_address");
                table.key(key).report(format!("expected at most {total_key}, which is {total}"));
            }
            each
        };
        let connections = at_once("connections", 10_000);
        let in_flight = at_once("in_flight", 10_000);
        // The HTTP server reads at least 8 KiB at once, and a head is in memory as a whole.
        let head_bytes = table.key("head_bytes").number(8192..=16 * 1024 * 1024);
        Self {
            head_bytes: head_bytes.unwrap_or(64 * 1024),
            connections,
            connections_per_address: for_each("connections_per_address", connections),
            in_flight,
            in_flight_per_address: for_each("in_flight_per_address", in_flight),
            idle_upstream: at_once("idle_upstream", 256),
            body_bytes: table.key("body_bytes").number(0..=u64::MAX >> 1),
            body_rate: table.key("body_rate").number(0..=u32::MAX).unwrap_or(100),
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::read(&Reader::default().nothing())
    }
}

const EXPECTED_UPSTREAM: &str =
    "expected http or https, a host and perhaps a port, and no path, such as http://127.0.0.1:3000";

fn servers(value: &Value<'_>) -> Vec<Uri> {
    if value.is_set() && value.elements().is_empty() {
        value.report(EXPECTED_UPSTREAM);
    }
    value.each(|value| {
        let text = value.text()?;
        // Credentials in it would appear in the log.
        let value = if text.contains('@') { &value.hidden() } else { value };
        upstream(text).or_else(|| value.reject(EXPECTED_UPSTREAM))
    })
}

/// An upstream server.
fn upstream(text: &str) -> Option<Uri> {
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
            assert!(upstream(good).is_some(), "{good}");
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
            assert!(upstream(bad).is_none(), "{bad}");
        }
    }
}
