//! A server behind the gateway: its address, connection pools and health.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, Scheme};
use slidegate::{Limiter, Quota};
use tokio::time::Instant;

use super::pool::Pool;

/// A server behind the gateway.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    pub(crate) http2: bool,
    /// One for each worker.
    pools: Vec<Arc<Pool>>,
    health: Health,
    /// Limits the log lines about failures.
    warnings: Limiter,
}

impl Upstream {
    pub(crate) fn new(uri: &Uri, http2: bool, workers: usize, max_idle: usize) -> Self {
        Self {
            scheme: uri.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority: uri.authority().cloned().expect("a checked upstream has a host"),
            http2,
            pools: (0..workers).map(|_| Arc::new(Pool::new(max_idle))).collect(),
            health: Health::new(),
            warnings: Limiter::new(Quota::per_minute(1)).capacity(1),
        }
    }

    /// Whether it is the same server with the same protocol.
    pub(crate) fn is(&self, uri: &Uri, http2: bool) -> bool {
        Some(&self.authority) == uri.authority()
            && Some(&self.scheme) == uri.scheme()
            && self.http2 == http2
    }

    pub(crate) fn pool(&self, worker: usize) -> &Arc<Pool> {
        &self.pools[worker]
    }

    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn port(&self) -> u16 {
        let usual = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(usual)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.health.is_healthy()
    }

    pub(crate) fn succeeded(&self) {
        self.health.succeeded();
    }

    /// Records a failure to connect or to answer, with its cause.
    pub(crate) fn failed(&self, cause: impl fmt::Display) {
        let upstream = &self.authority;
        if let Some(pause) = self.health.failed() {
            tracing::warn!(%upstream, %cause, ?pause, "upstream marked unhealthy");
        } else if self.warnings.check("failed").is_ok() {
            tracing::warn!(%upstream, %cause, "upstream failed");
        }
    }
}

/// Passive health: a server that fails `FAILURES_UNTIL_UNHEALTHY` times in a row is marked
/// unhealthy, for twice as long each time.
#[derive(Debug)]
struct Health {
    failures: AtomicU32,
    /// In milliseconds after the start.
    unhealthy_until_ms: AtomicU64,
    start: Instant,
}

const FAILURES_UNTIL_UNHEALTHY: u32 = 3;
const MIN_UNHEALTHY_TIME: Duration = Duration::from_secs(1);
const MAX_UNHEALTHY_TIME: Duration = Duration::from_secs(30);

impl Health {
    fn new() -> Self {
        let (failures, unhealthy_until_ms) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { failures, unhealthy_until_ms, start: Instant::now() }
    }

    fn is_healthy(&self) -> bool {
        let until_ms = self.unhealthy_until_ms.load(Ordering::Relaxed);
        until_ms == 0 || self.now_ms() >= until_ms
    }

    fn succeeded(&self) {
        // Load first: all requests share this cache line, and it is nearly always zero.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.unhealthy_until_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Returns how long the server is marked unhealthy if this failure made it so.
    fn failed(&self) -> Option<Duration> {
        // Requests in flight when the server became unhealthy do not count again.
        if !self.is_healthy() {
            return None;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let times = failures.checked_sub(FAILURES_UNTIL_UNHEALTHY)?;
        let pause = MIN_UNHEALTHY_TIME.saturating_mul(1 << times.min(5)).min(MAX_UNHEALTHY_TIME);
        let until_ms = self.now_ms().saturating_add(millis(pause));
        self.unhealthy_until_ms.store(until_ms, Ordering::Relaxed);
        Some(pause)
    }

    fn now_ms(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_pause_an_upstream_for_longer_and_longer() {
        let health = Health::new();
        assert_eq!(health.failed(), None);
        assert_eq!(health.failed(), None);
        assert!(health.is_healthy());
        assert_eq!(health.failed(), Some(Duration::from_secs(1)));
        assert!(!health.is_healthy());
        assert_eq!(health.failed(), None, "it is known");
        tokio::time::advance(Duration::from_millis(1001)).await;
        assert!(health.is_healthy(), "it is tried again");
        assert_eq!(health.failed(), Some(Duration::from_secs(2)));
        assert!(!health.is_healthy());
        health.succeeded();
        assert!(health.is_healthy());
        assert_eq!(health.failed(), None, "counted from the start");
    }
}
