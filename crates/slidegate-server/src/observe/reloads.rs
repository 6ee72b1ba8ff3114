//! How reloads of the configuration went.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use slidegate::Timestamp;

use super::exposition::Page;
use super::stripe::count;

#[derive(Debug)]
pub(super) struct Reloads {
    good: AtomicU64,
    failed: AtomicU64,
    /// When the configuration in force was read, in milliseconds of the calendar.
    last_good_ms: AtomicU64,
}

impl Reloads {
    /// The first reading counts as no reload, but it has a time.
    pub(super) fn new(started: Timestamp) -> Self {
        let last_good_ms = AtomicU64::new(started.as_millis());
        Self { good: AtomicU64::new(0), failed: AtomicU64::new(0), last_good_ms }
    }

    pub(super) fn succeeded(&self, now: Timestamp) {
        count(&self.good);
        self.last_good_ms.store(now.as_millis(), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        count(&self.failed);
    }

    pub(super) fn expose(&self, page: &mut Page<'_>) -> fmt::Result {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counters(
            "slidegate_config_reloads",
            "Times that the configuration was read again: ok, or failed and left as it was.",
            [
                ([("outcome", "ok")], read(&self.good)),
                ([("outcome", "failed")], read(&self.failed)),
            ],
        )?;
        page.gauge(
            "slidegate_config_last_reload_timestamp_seconds",
            "When the configuration in force was read, in Unix time.",
            read(&self.last_good_ms) as f64 / 1000.0,
        )
    }
}
