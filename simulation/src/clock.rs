//! A clock that shows the virtual time.

use std::time::Duration;

use slidegate::{Clock, Timestamp};
use tokio::time::Instant;

/// The time of tokio's paused clock, at a distance, which grows if the rates differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VirtualClock {
    start: Instant,
    shows: Timestamp,
    rate: f64,
}

/// What the clock of Redis shows at the start.
const EPOCH: Timestamp = Timestamp::from_millis(1_000_000_000);

impl VirtualClock {
    /// A clock that is this much ahead of the one of Redis.
    pub fn new(start: Instant, ahead: Duration) -> Self {
        Self { start, shows: EPOCH + ahead, rate: 1.0 }
    }

    /// The same clock, running this many times as fast as timers do.
    #[must_use]
    pub fn with_rate(self, rate: f64) -> Self {
        Self { rate, ..self }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.shows + self.start.elapsed().mul_f64(self.rate)
    }
}
