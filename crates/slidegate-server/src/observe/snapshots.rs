//! How the saving of accounts went.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use slidegate::Timestamp;

use super::exposition::Page;
use super::stripe::count;

#[derive(Debug, Default)]
pub(super) struct Snapshots {
    saved: AtomicU64,
    failed: AtomicU64,
    /// In milliseconds of the calendar.
    last_saved_ms: AtomicU64,
}

impl Snapshots {
    pub(super) fn saved(&self, now: Timestamp) {
        count(&self.saved);
        self.last_saved_ms.store(now.as_millis(), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        count(&self.failed);
    }

    pub(super) fn expose(&self, page: &mut Page<'_>) -> fmt::Result {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counters(
            "slidegate_snapshots",
            "Times that the accounts in memory were saved: ok, or failed and left as they were.",
            [
                ([("outcome", "ok")], read(&self.saved)),
                ([("outcome", "failed")], read(&self.failed)),
            ],
        )?;
        page.gauge(
            "slidegate_snapshot_last_timestamp_seconds",
            "When the accounts in memory were saved, in Unix time; 0 if not since the start.",
            read(&self.last_saved_ms) as f64 / 1000.0,
        )
    }
}
