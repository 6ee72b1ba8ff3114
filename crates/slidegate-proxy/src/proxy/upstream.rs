//! A server behind the gateway: its address, connection pools and health.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, Scheme};
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
    failures: FailureLog,
}

impl Upstream {
    pub(crate) fn new(uri: &Uri, http2: bool, workers: usize, most_idle: usize) -> Self {
        Self {
            scheme: uri.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority: uri.authority().cloned().expect("a checked upstream has a host"),
            http2,
            pools: (0..workers).map(|_| Arc::new(Pool::new(most_idle))).collect(),
            health: Health::new(),
            failures: FailureLog::default(),
        }
    }

    /// Whether it is the same server, spoken to in the same way.
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
        } else if let Some(left_out) = self.failures.due(self.health.now_ms()) {
            tracing::warn!(%upstream, %cause, left_out, "upstream failed");
        }
    }
}

/// Which failures are logged: one in a while, with how many there were meanwhile.
#[derive(Debug, Default)]
struct FailureLog {
    /// When the next is due, in milliseconds after the start.
    next_ms: AtomicU64,
    left_out: AtomicU64,
}

const LOG_EVERY: Duration = Duration::from_secs(10);

impl FailureLog {
    /// How many failures were left out before this one, if it is to be logged.
    fn due(&self, now_ms: u64) -> Option<u64> {
        let next_ms = self.next_ms.load(Ordering::Relaxed);
        let then_ms = now_ms.saturating_add(millis(LOG_EVERY));
        let order = Ordering::Relaxed;
        let is_due = now_ms >= next_ms
            && self.next_ms.compare_exchange(next_ms, then_ms, order, order).is_ok();
        if is_due {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// What requests have shown: a server that failed several times in a row is passed over for a
/// while, twice as long each time.
#[derive(Debug)]
struct Health {
    failures: AtomicU32,
    /// In milliseconds after the start.
    out_until_ms: AtomicU64,
    start: Instant,
}

const OUT_AFTER: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Health {
    fn new() -> Self {
        let (failures, out_until_ms) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { failures, out_until_ms, start: Instant::now() }
    }

    fn is_healthy(&self) -> bool {
        let until_ms = self.out_until_ms.load(Ordering::Relaxed);
        until_ms == 0 || self.now_ms() >= until_ms
    }

    fn succeeded(&self) {
        // Read first: all requests share this, and nearly always it is zero.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.out_until_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Returns for how long the server is marked unhealthy, if it now is.
    fn failed(&self) -> Option<Duration> {
        // Failures of requests that were in flight then count only once.
        if !self.is_healthy() {
            return None;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let times = failures.checked_sub(OUT_AFTER)?;
        let pause = FIRST_PAUSE.saturating_mul(1 << times.min(5)).min(LONGEST_PAUSE);
        let until_ms = self.now_ms().saturating_add(millis(pause));
        self.out_until_ms.store(until_ms, Ordering::Relaxed);
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

    #[test]
    fn one_failure_in_a_while_is_logged() {
        let log = FailureLog::default();
        let due = [0, 1, 9_999, 10_000, 10_001, 500_000].map(|now_ms| log.due(now_ms));
        assert_eq!(due, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_pause_it_for_longer_and_longer() {
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
