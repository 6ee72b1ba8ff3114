//! Settings of the server and the proxy.

use std::time::Duration;

use http::{HeaderValue, Uri};

/// How a [`ReverseProxy`](crate::ReverseProxy) forwards requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyConfig {
    /// By path prefix. The longest matching prefix wins; `/` matches every path.
    pub routes: Vec<RouteConfig>,
    /// The `Host` sent to upstream.
    pub host: HostRule,
    /// How ambiguous headers are handled.
    pub headers: HeaderRules,
    /// The headers that tell upstream where a request comes from.
    pub forwarding: Vec<ForwardingHeader>,
    /// Protocols that clients can upgrade to.
    pub upgrades: Vec<HeaderValue>,
    /// Worker threads, each with its own connections.
    pub workers: usize,
    /// Timeouts of clients and upstream.
    pub timeouts: Timeouts,
    /// Limits on connections, requests and bytes.
    pub bounds: Bounds,
}

/// The upstream servers for one path prefix.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteConfig {
    /// The path prefix, matched by whole segments.
    pub prefix: String,
    /// Used round-robin. `http` or `https` with a host, an optional port and no path.
    pub servers: Vec<Uri>,
    /// Speak HTTP/2 with prior knowledge, as gRPC does.
    pub http2: bool,
}

/// The `Host` sent to upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostRule {
    /// The host that the client requested.
    #[default]
    Keep,
    /// The host of the upstream server.
    Upstream,
}

/// A header that tells upstream where a request comes from.
///
/// One that a trusted proxy in front has sent is kept, and completed where it lists proxies, whether
/// it is configured or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardingHeader {
    /// `X-Forwarded-For`: the peer's address, after those of proxies in front.
    XForwardedFor,
    /// `X-Forwarded-Host`: the host that the client requested.
    XForwardedHost,
    /// `X-Forwarded-Proto`: `http` or `https`, as the client used.
    XForwardedProto,
    /// `X-Real-IP`: the client's address.
    XRealIp,
    /// `Forwarded` of RFC 7239, which has all of these.
    Forwarded,
}

impl ForwardingHeader {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("x-forwarded-for", Self::XForwardedFor),
        ("x-forwarded-host", Self::XForwardedHost),
        ("x-forwarded-proto", Self::XForwardedProto),
        ("x-real-ip", Self::XRealIp),
        ("forwarded", Self::Forwarded),
    ];

    /// Those that applications behind a proxy usually read, as Caddy and Traefik send them too.
    pub const DEFAULT: [Self; 3] =
        [Self::XForwardedFor, Self::XForwardedHost, Self::XForwardedProto];
}

/// How headers are handled that upstreams can interpret in more than one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderRules {
    /// Forwards headers with underscores in their names. CGI and its successors read underscores as
    /// hyphens.
    pub underscores: bool,
    /// Refuses requests that ask upstream for another method or path than the policies see.
    pub refuse_overrides: bool,
}

/// Timeouts of clients and upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeouts {
    /// For a complete request head, and for a TLS handshake or a PROXY header before it.
    pub head: Duration,
    /// For the next request on a connection, and for the next frame of a body.
    pub idle: Duration,
    /// For connecting to upstream.
    pub connect: Duration,
    /// For the head of upstream's response.
    pub response: Duration,
    /// Drain timeout: for requests in flight at shutdown.
    pub drain: Duration,
    /// For a complete request body.
    pub body: Duration,
    /// Idle timeout of an upgraded connection, such as a WebSocket.
    pub tunnel: Duration,
}

/// Limits on connections, requests and bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// Maximum bytes of a request head.
    pub head_bytes: usize,
    /// Maximum client connections, over all workers.
    pub connections: usize,
    /// Maximum client connections from one address, over all workers; at most `connections`.
    pub connections_per_address: usize,
    /// Maximum requests in flight to upstream, over all workers.
    pub in_flight: usize,
    /// Maximum requests in flight to upstream from one address, over all workers; at most
    /// `in_flight`.
    pub in_flight_per_address: usize,
    /// Maximum idle connections to one upstream server, per worker.
    pub idle_upstream: usize,
    /// Maximum bytes of a request body; `None` means no limit.
    pub body_bytes: Option<u64>,
    /// Minimum average bytes per second of a request body after its first 10 seconds; 0 disables
    /// the check.
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
