//! Connection statistics, collected from listeners at exposition.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::Endpoint;
use super::exposition::{Label, Page};

/// What a listener knows of its connections: those open now, and the others since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ConnectionStats {
    pub(crate) open: u64,
    pub(crate) accepted: u64,
    /// Had to wait for another's end.
    pub(crate) waited: u64,
    /// Closed because the peer may not send the PROXY header that there must be.
    pub(crate) refused: u64,
    /// Closed because the TLS handshake failed.
    pub(crate) tls_failures: u64,
    /// Closed because a trusted peer's PROXY header was none.
    pub(crate) proxy_header_failures: u64,
    /// Cut because the client took too long over a request's head.
    pub(crate) timeouts: u64,
}

type StatsSource = Box<dyn Fn() -> ConnectionStats + Send + Sync>;

/// Sources of statistics, by endpoint.
#[derive(Default)]
pub(super) struct Connections(Mutex<Vec<(Endpoint, StatsSource)>>);

impl Connections {
    pub(super) fn add(&self, endpoint: Endpoint, source: StatsSource) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((endpoint, source));
    }

    pub(super) fn expose(&self, page: &mut Page<'_>) -> fmt::Result {
        let endpoints = self.by_endpoint();
        let labelled = |value: fn(&ConnectionStats) -> u64| {
            endpoints
                .iter()
                .map(move |(endpoint, stats)| ([("endpoint", endpoint.as_str())], value(stats)))
        };
        let open = labelled(|stats| stats.open).map(|(endpoint, open)| (endpoint, open as f64));
        page.gauges("slidegate_connections", "Connections of clients that are open.", open)?;
        page.counters(
            "slidegate_connections_accepted",
            "Client connections accepted.",
            labelled(|stats| stats.accepted),
        )?;
        page.counters(
            "slidegate_connections_waited",
            "Connections that waited because the connection limit was reached.",
            labelled(|stats| stats.waited),
        )?;
        page.counters(
            "slidegate_connection_failures",
            "Connections that were closed early, by reason: an untrusted peer where a PROXY header \
             is needed (refused), a failed TLS handshake (tls), a bad PROXY header (proxy-header), \
             a request's head that took too long (timeout).",
            endpoints.iter().flat_map(|(endpoint, stats)| failures(*endpoint, stats)),
        )
    }

    /// An endpoint may have several listeners.
    fn by_endpoint(&self) -> Vec<(Endpoint, ConnectionStats)> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |endpoint| {
            let own = sources.iter().filter(|(of, _)| *of == endpoint).map(|(_, source)| source());
            own.reduce(ConnectionStats::with).map(|sum| (endpoint, sum))
        };
        Endpoint::ALL.into_iter().filter_map(of).collect()
    }
}

fn failures(endpoint: Endpoint, stats: &ConnectionStats) -> [([Label<'static>; 2], u64); 4] {
    [
        ("refused", stats.refused),
        ("tls", stats.tls_failures),
        ("proxy-header", stats.proxy_header_failures),
        ("timeout", stats.timeouts),
    ]
    .map(|(reason, value)| ([("endpoint", endpoint.as_str()), ("reason", reason)], value))
}

impl ConnectionStats {
    fn with(self, other: Self) -> Self {
        Self {
            open: self.open + other.open,
            accepted: self.accepted + other.accepted,
            waited: self.waited + other.waited,
            refused: self.refused + other.refused,
            tls_failures: self.tls_failures + other.tls_failures,
            proxy_header_failures: self.proxy_header_failures + other.proxy_header_failures,
            timeouts: self.timeouts + other.timeouts,
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}
