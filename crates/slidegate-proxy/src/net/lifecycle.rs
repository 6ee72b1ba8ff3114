//! The states of a client connection, and what ends each of them.
//!
//! | phase | deadline | at the deadline |
//! |---|---|---|
//! | `New`: nothing received yet | `head` after it was opened | cut |
//! | `Head`: part of a request head received | `head` after its first byte | cut |
//! | `Busy`: requests in flight | `idle` after the client last read, if all of them wait for it to read | cut |
//! | `Idle`: between requests | `idle` after the last response | finish |
//! | `Idle`, finishing | `idle` + `head` after the last response | cut |
//! | `Closing`: the last bytes are written | none, the stream bounds its own end | |
//!
//! A connection that should close finishes at once if it is evicted, and [`DRAIN_GRACE`] later if the
//! listener drains, because a request may be in transit. While it is `Busy` it finishes at once in
//! both cases, so that the response carries `connection: close`. A `Head` that was begun is read.
//!
//! Finishing is hyper's graceful shutdown: requests in flight complete, no new ones are accepted.

use std::time::Duration;

use tokio::time::Instant;

use super::activity::{Phase, Unwanted};
use crate::Timeouts;

/// How long an idle connection stays open while draining, because a request may be in transit.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// Decides when a connection finishes and when it is cut.
#[derive(Debug)]
pub(super) struct Lifecycle {
    head_timeout: Duration,
    idle_timeout: Duration,
    is_finishing: bool,
    /// When a connection that should close finishes, unless a request arrives before.
    closes_at: Option<Instant>,
    /// The client has not read since then; the number is that of [`Phase::Busy`].
    stuck: Option<(u64, Instant)>,
}

/// When to act on a connection, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    pub(super) end: End,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// By a graceful shutdown.
    Finish,
    /// At once: the client has exceeded a timeout.
    Cut,
}

impl Lifecycle {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        Self {
            head_timeout: timeouts.head,
            idle_timeout: timeouts.idle,
            is_finishing: false,
            closes_at: None,
            stuck: None,
        }
    }

    /// Notes that the connection should close. Returns whether it has to finish now, before the
    /// response of a request in flight is written.
    pub(super) fn close(&mut self, why: Unwanted, phase: Phase) -> bool {
        let grace = match why {
            Unwanted::Evicted => Duration::ZERO,
            Unwanted::Draining => DRAIN_GRACE,
        };
        self.closes_at.get_or_insert_with(|| Instant::now() + grace);
        matches!(phase, Phase::Busy { .. }) && self.finish()
    }

    /// Notes that the connection finishes. Returns whether it did not before.
    pub(super) fn finish(&mut self) -> bool {
        !std::mem::replace(&mut self.is_finishing, true)
    }

    /// The next deadline of a connection in this phase.
    pub(super) fn deadline(&mut self, phase: Phase) -> Option<Deadline> {
        self.stuck = match (phase, self.stuck) {
            (Phase::Busy { stuck_at: Some(at) }, Some(stuck)) if stuck.0 == at => Some(stuck),
            (Phase::Busy { stuck_at: Some(at) }, _) => Some((at, Instant::now())),
            _ => None,
        };
        let timeout = match phase {
            Phase::New { since } | Phase::Head { since } => cut(since + self.head_timeout),
            Phase::Busy { .. } => cut(self.stuck?.1 + self.idle_timeout),
            Phase::Idle { since } if self.is_finishing => {
                cut(since + self.idle_timeout + self.head_timeout)
            }
            Phase::Idle { since } => finish(since + self.idle_timeout),
            Phase::Closing => return None,
        };
        let is_waiting = matches!(phase, Phase::New { .. } | Phase::Idle { .. });
        let closes = self.closes_at.filter(|_| is_waiting && !self.is_finishing);
        Some(match closes {
            Some(at) if at < timeout.at => finish(at),
            _ => timeout,
        })
    }
}

fn finish(at: Instant) -> Deadline {
    Deadline { at, end: End::Finish }
}

fn cut(at: Instant) -> Deadline {
    Deadline { at, end: End::Cut }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::advance;

    use super::super::activity::Activity;
    use super::*;

    const HEAD_S: u64 = 10;
    const IDLE_S: u64 = 60;

    /// A connection without a socket: the test reports events to its activity.
    struct Connection {
        activity: Arc<Activity>,
        lifecycle: Lifecycle,
    }

    impl Connection {
        fn new() -> Self {
            let timeouts = Timeouts {
                head: Duration::from_secs(HEAD_S),
                idle: Duration::from_secs(IDLE_S),
                ..Timeouts::default()
            };
            Self { activity: Arc::new(Activity::new()), lifecycle: Lifecycle::new(&timeouts) }
        }

        /// What ends it, and after how many milliseconds from now.
        fn ends(&mut self) -> Option<(End, u128)> {
            let deadline = self.lifecycle.deadline(self.activity.phase())?;
            Some((deadline.end, (deadline.at - Instant::now()).as_millis()))
        }

        fn close(&mut self, why: Unwanted) -> bool {
            self.lifecycle.close(why, self.activity.phase())
        }
    }

    fn s(seconds: u64) -> u128 {
        u128::from(seconds) * 1000
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_timeout() {
        let mut connection = Connection::new();
        assert_eq!(connection.ends(), Some((End::Cut, s(HEAD_S))), "new");
        advance(Duration::from_secs(4)).await;
        assert_eq!(connection.ends(), Some((End::Cut, s(6))), "new, and 4 s later");
        connection.activity.received();
        assert_eq!(connection.ends(), Some((End::Cut, s(HEAD_S))), "a head has begun");
        advance(Duration::from_secs(9)).await;
        connection.activity.received();
        assert_eq!(connection.ends(), Some((End::Cut, s(1))), "more bytes give no more time");
        let request = connection.activity.begin();
        assert_eq!(connection.ends(), None, "in flight: upstream's timeouts apply");
        drop(request);
        assert_eq!(connection.ends(), Some((End::Finish, s(IDLE_S))), "idle");
        assert!(connection.lifecycle.finish());
        assert_eq!(connection.ends(), Some((End::Cut, s(IDLE_S + HEAD_S))), "finishing");
        connection.activity.begin_closing();
        assert_eq!(connection.ends(), None, "closing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut() {
        let mut connection = Connection::new();
        let mut request = connection.activity.begin();
        request.set_ahead(true);
        assert_eq!(
            connection.ends(),
            Some((End::Cut, s(IDLE_S))),
            "a response waits for the client"
        );
        advance(Duration::from_secs(50)).await;
        assert_eq!(connection.ends(), Some((End::Cut, s(10))));
        connection.activity.took();
        assert_eq!(connection.ends(), Some((End::Cut, s(IDLE_S))), "it has read some bytes");
        let other = connection.activity.begin();
        assert_eq!(connection.ends(), None, "another request does not wait for the client");
        drop(other);
        request.set_ahead(false);
        assert_eq!(connection.ends(), None, "nothing waits for it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_leaves_time_for_a_request_in_transit() {
        let mut connection = Connection::new();
        let grace_ms = DRAIN_GRACE.as_millis();
        assert!(!connection.close(Unwanted::Draining), "no response to announce it with");
        assert_eq!(connection.ends(), Some((End::Finish, grace_ms)), "new");
        advance(Duration::from_millis(100)).await;
        assert!(!connection.close(Unwanted::Draining), "said again, it is no later");
        assert_eq!(connection.ends(), Some((End::Finish, grace_ms - 100)));
        connection.activity.received();
        assert_eq!(connection.ends(), Some((End::Cut, s(HEAD_S))), "the head is still read");
        let request = connection.activity.begin();
        assert!(connection.close(Unwanted::Draining), "the response announces the end");
        assert!(!connection.close(Unwanted::Draining), "once");
        drop(request);
        assert_eq!(connection.ends(), Some((End::Cut, s(IDLE_S + HEAD_S))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_that_is_evicted_finishes_at_once() {
        let mut connection = Connection::new();
        drop(connection.activity.begin());
        assert!(!connection.close(Unwanted::Evicted));
        assert_eq!(connection.ends(), Some((End::Finish, 0)));
    }
}
