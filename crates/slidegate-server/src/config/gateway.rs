//! What the proxying endpoint is to do.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use crate::config::ListenAddress;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

/// How long to wait for others.
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

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            connect: Duration::from_secs(5),
            response: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            body: Duration::from_secs(3600),
            tunnel: Duration::from_secs(3600),
        }
    }
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

impl Bounds {
    /// The default share of one address: a tenth of the total, rounded up.
    pub(super) fn per_address(total: usize) -> usize {
        total.div_ceil(10)
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            head_bytes: 64 * 1024,
            connections: 10_000,
            connections_per_address: 1000,
            in_flight: 10_000,
            in_flight_per_address: 1000,
            idle_upstream: 256,
            body_bytes: None,
            body_rate: 100,
        }
    }
}

/// A certificate chain and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}
