//! Connection statistics, collected from listeners at exposition.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::ListenerKind;
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

/// Sources of statistics, by listener.
#[derive(Default)]
pub(super) struct Connections(Mutex<Vec<(ListenerKind, StatsSource)>>);

impl Connections {
    pub(super) fn add(&self, listener: ListenerKind, source: StatsSource) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((listener, source));
    }

    pub(super) fn expose(&self, page: &mut Page<'_>) -> fmt::Result {
        let listeners = self.by_listener();
        let labelled = |value: fn(&ConnectionStats) -> u64| {
            listeners
                .iter()
                .map(move |(listener, stats)| ([("listener", listener.as_str())], value(stats)))
        };
        let open = labelled(|stats| stats.open).map(|(listener, open)| (listener, open as f64));
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
            listeners.iter().flat_map(|(listener, stats)| failures(*listener, stats)),
        )
    }

    /// A listener may have several sources, one for each of its sockets.
    fn by_listener(&self) -> Vec<(ListenerKind, ConnectionStats)> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |listener| {
            let own = sources.iter().filter(|(of, _)| *of == listener).map(|(_, source)| source());
            own.reduce(ConnectionStats::with).map(|sum| (listener, sum))
        };
        ListenerKind::ALL.into_iter().filter_map(of).collect()
    }
}

fn failures(listener: ListenerKind, stats: &ConnectionStats) -> [([Label<'static>; 2], u64); 4] {
    [
        ("refused", stats.refused),
        ("tls", stats.tls_failures),
        ("proxy-header", stats.proxy_header_failures),
        ("timeout", stats.timeouts),
    ]
    .map(|(reason, value)| ([("listener", listener.as_str()), ("reason", reason)], value))
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
