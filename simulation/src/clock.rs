//! A clock that shows the virtual time.

use std::time::Duration;

use slidegate::{Clock, Timestamp};
use tokio::time::Instant;

/// The time of tokio's paused clock, at a fixed distance.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    start: Instant,
    shows: Timestamp,
}

/// What the clock of Redis shows at the start.
const EPOCH: Timestamp = Timestamp::from_millis(1_000_000_000);

impl VirtualClock {
    /// A clock that is this much ahead of the one of Redis.
    pub fn new(start: Instant, ahead: Duration) -> Self {
        Self { start, shows: EPOCH + ahead }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.shows + self.start.elapsed()
    }
}
