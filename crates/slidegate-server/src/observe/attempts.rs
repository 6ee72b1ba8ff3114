//! How something went that is done now and then, and may fail: reloads and snapshots.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use slidegate::Timestamp;

use super::exposition::Page;
use super::per_thread::count;

/// Counts what went well and what did not, and remembers when it last went well.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    good: AtomicU64,
    failed: AtomicU64,
    /// In milliseconds of the calendar; 0 if never.
    last_good_ms: AtomicU64,
}

/// A metric's name and what it means.
type Described = (&'static str, &'static str);

impl Attempts {
    /// As if it had gone well at this moment, which does not count.
    pub(super) fn since(began: Timestamp) -> Self {
        Self { last_good_ms: AtomicU64::new(began.as_millis()), ..Self::default() }
    }

    pub(super) fn succeeded(&self, now: Timestamp) {
        count(&self.good);
        self.last_good_ms.store(now.as_millis(), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        count(&self.failed);
    }

    pub(super) fn expose(
        &self,
        page: &mut Page<'_>,
        counter: Described,
        last: Described,
    ) -> fmt::Result {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let by_outcome = [
            ([("outcome", "ok")], read(&self.good)),
            ([("outcome", "failed")], read(&self.failed)),
        ];
        page.counters(counter.0, counter.1, by_outcome)?;
        page.gauge(last.0, last.1, read(&self.last_good_ms) as f64 / 1000.0)
    }
}
