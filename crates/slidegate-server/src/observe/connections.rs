//! Metrics of connections, which listeners count themselves.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ListenerKind;
use super::page::Page;
use crate::net::{ConnectionCounts, ConnectionTable};

/// The connections of each listener.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Vec<(ListenerKind, Arc<ConnectionTable>)>>);

type CounterOf = fn(&ConnectionCounts) -> &AtomicU64;

impl Connections {
    pub(super) fn add(&self, listener: ListenerKind, connections: Arc<ConnectionTable>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((listener, connections));
    }

    pub(super) fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = |counter: CounterOf| {
            listeners.iter().map(move |(listener, connections)| {
                let count = counter(connections.counts()).load(Ordering::Relaxed);
                (("listener", listener.as_str()), count)
            })
        };
        page.gauges(
            "slidegate_connections",
            "Open client connections.",
            each(|counts| &counts.open).map(|(listener, open)| ([listener], open as f64)),
        )?;
        page.counters(
            "slidegate_connections_accepted",
            "Client connections accepted.",
            each(|counts| &counts.accepted).map(|(listener, count)| ([listener], count)),
        )?;
        page.counters(
            "slidegate_connections_waited",
            "Connections that waited because the connection limit was reached.",
            each(|counts| &counts.waited).map(|(listener, count)| ([listener], count)),
        )?;
        let failures: [(_, CounterOf); 5] = [
            ("refused", |counts| &counts.refused),
            ("address", |counts| &counts.over_address_limit),
            ("tls", |counts| &counts.tls_failures),
            ("proxy-header", |counts| &counts.proxy_header_failures),
            ("timeout", |counts| &counts.timeouts),
        ];
        page.counters(
            "slidegate_connection_failures",
            "Connections that were closed early, by reason: an untrusted peer where a PROXY header \
             is needed (refused), too many of one address (address), a failed TLS handshake \
             (tls), a bad PROXY header (proxy-header), a client that took too long (timeout).",
            failures.into_iter().flat_map(|(reason, counter)| {
                each(counter).map(move |(listener, count)| ([listener, ("reason", reason)], count))
            }),
        )
    }
}
