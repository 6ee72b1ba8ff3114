//! How many connections there are and were.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted over all workers of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts {
    open: AtomicU64,
    accepted: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
    tls_failures: AtomicU64,
    proxy_header_failures: AtomicU64,
    timeouts: AtomicU64,
}

impl ConnectionCounts {
    /// Open now, those that were upgraded included.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Served since the start.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Found no room and had to wait for another connection's end.
    pub(crate) fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// Closed because the peer may not send the PROXY header that there must be.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Closed because the TLS handshake failed or took too long.
    pub(crate) fn tls_failures(&self) -> u64 {
        self.tls_failures.load(Ordering::Relaxed)
    }

    /// Closed because a trusted peer's PROXY header was none or took too long.
    pub(crate) fn proxy_header_failures(&self) -> u64 {
        self.proxy_header_failures.load(Ordering::Relaxed)
    }

    /// Cut because the client took too long over a request's head.
    pub(crate) fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    pub(super) fn opened(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn had_to_wait(&self) {
        self.waited.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn was_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tls_failed(&self) {
        self.tls_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn proxy_header_failed(&self) {
        self.proxy_header_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn timed_out(&self) {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
    }
}
