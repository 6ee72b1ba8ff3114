//! What an operator sets.

use std::time::Duration;

use http::{HeaderValue, Uri};

/// How a [`ReverseProxy`](crate::ReverseProxy) forwards requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyConfig {
    /// By path prefix; the longest that fits has the request, and the prefix `/` fits all.
    pub routes: Vec<RouteConfig>,
    /// The `Host` sent to upstream.
    pub host: HostRule,
    /// What becomes of ambiguous headers.
    pub headers: HeaderRules,
    /// Protocols that a client may upgrade to.
    pub upgrades: Vec<HeaderValue>,
    /// Threads that serve, each with its own connections.
    pub workers: usize,
    /// How long to wait.
    pub timeouts: Timeouts,
    /// How much of everything there may be at once.
    pub bounds: Bounds,
}

/// Where requests for some paths go.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteConfig {
    /// The beginning of the paths.
    pub prefix: String,
    /// Taken in turn. `http` or `https`, with a host and perhaps a port, and no path.
    pub servers: Vec<Uri>,
    /// Speak HTTP/2 with prior knowledge, as gRPC does.
    pub http2: bool,
}

/// The `Host` sent to upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostRule {
    /// The one that the client asked for.
    #[default]
    Keep,
    /// The upstream's own.
    Upstream,
}

/// What becomes of requests with headers that upstreams may read in other ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderRules {
    /// Whether headers with underscores in their names are passed on. CGI and its successors read
    /// them as hyphens.
    pub underscores: bool,
    /// Whether requests are refused that ask upstream for another method or path than policies see.
    pub refuse_overrides: bool,
}

/// How long to wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeouts {
    /// For all of a request's head, and for a TLS handshake or a PROXY header before it.
    pub head: Duration,
    /// For the next request on a connection, and for the next piece of a body.
    pub idle: Duration,
    /// For a connection to upstream.
    pub connect: Duration,
    /// For the head of upstream's response.
    pub response: Duration,
    /// Drain timeout: for requests in flight at shutdown.
    pub drain: Duration,
    /// For all of a request's body.
    pub body: Duration,
    /// Idle timeout of an upgraded connection, such as a WebSocket.
    pub tunnel: Duration,
}

/// How much of everything there may be at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Client connections, over all workers.
    pub connections: usize,
    /// Client connections from one address, over all workers; at most `connections`.
    pub connections_per_address: usize,
    /// Requests that wait for upstream, over all workers.
    pub in_flight: usize,
    /// Requests of one address that wait for upstream, over all workers; at most `in_flight`.
    pub in_flight_per_address: usize,
    /// Connections that are kept open to one upstream server, for each worker.
    pub idle_upstream: usize,
    /// Bytes of a request's body; without, there is no limit.
    pub body_bytes: Option<u64>,
    /// Bytes per second that a request's body must reach on average after its first 10 seconds;
    /// 0 is no minimum.
    pub body_rate: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            head: seconds(10),
            idle: seconds(60),
            connect: seconds(5),
            response: seconds(60),
            drain: seconds(30),
            body: seconds(3600),
            tunnel: seconds(3600),
        }
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
