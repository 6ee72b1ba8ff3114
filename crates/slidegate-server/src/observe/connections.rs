//! Metrics of connections, which listeners count themselves.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::ListenerKind;
use super::page::Page;

/// What a listener knows of its connections: those open now, and the others since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ConnectionStats {
    pub(crate) open: u64,
    pub(crate) accepted: u64,
    /// Waited for another connection to end.
    pub(crate) waited: u64,
    /// Closed because the peer may not send the PROXY header that there must be.
    pub(crate) refused: u64,
    /// Closed because their address had too many.
    pub(crate) over_address_limit: u64,
    /// Closed because the TLS handshake failed.
    pub(crate) tls_failures: u64,
    /// Closed because a trusted peer's PROXY header was malformed.
    pub(crate) proxy_header_failures: u64,
    /// Closed because the client took too long over a request's head.
    pub(crate) timeouts: u64,
}

type StatsSource = Box<dyn Fn() -> ConnectionStats + Send + Sync>;

/// Where to ask for the statistics of each listener.
#[derive(Default)]
pub(super) struct Connections(Mutex<Vec<(ListenerKind, StatsSource)>>);

impl Connections {
    pub(super) fn add(&self, listener: ListenerKind, source: StatsSource) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((listener, source));
    }

    pub(super) fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stats: Vec<(&str, ConnectionStats)> =
            sources.iter().map(|(listener, source)| (listener.as_str(), source())).collect();
        let each = |value: fn(&ConnectionStats) -> u64| {
            stats.iter().map(move |(listener, stats)| ([("listener", *listener)], value(stats)))
        };
        page.gauges(
            "slidegate_connections",
            "Open client connections.",
            each(|stats| stats.open).map(|(labels, open)| (labels, open as f64)),
        )?;
        page.counters(
            "slidegate_connections_accepted",
            "Client connections accepted.",
            each(|stats| stats.accepted),
        )?;
        page.counters(
            "slidegate_connections_waited",
            "Connections that waited because the connection limit was reached.",
            each(|stats| stats.waited),
        )?;
        page.counters(
            "slidegate_connection_failures",
            "Connections that were closed early, by reason: an untrusted peer where a PROXY header \
             is needed (refused), too many of one address (address), a failed TLS handshake (tls), \
             a bad PROXY header (proxy-header), a request's head that took too long (timeout).",
            stats.iter().flat_map(|(listener, stats)| {
                [
                    ("refused", stats.refused),
                    ("address", stats.over_address_limit),
                    ("tls", stats.tls_failures),
                    ("proxy-header", stats.proxy_header_failures),
                    ("timeout", stats.timeouts),
                ]
                .map(|(reason, count)| ([("listener", *listener), ("reason", reason)], count))
            }),
        )
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}
