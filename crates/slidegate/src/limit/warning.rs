//! How often a warning is worth repeating.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limit::clock::Timestamp;

/// A warning that is due at most once a minute, whichever threads would give it.
#[derive(Debug, Default)]
pub(crate) struct Warning {
    last_ns: AtomicU64,
}

const EVERY: Duration = Duration::from_secs(60);

impl Warning {
    /// Whether to warn now; then nobody else has to for a while.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        now >= Timestamp::from_nanos(last_ns) + EVERY
            && self.last_ns.compare_exchange(last_ns, now.as_nanos(), set, fetch).is_ok()
    }
}
