//! How long an HTTP/2 connection may go on as it is.

use std::time::Duration;

use tokio::time::Instant;

use super::activity::Activity;
use crate::config::Timeouts;

/// Looks at a connection now and then, and says until when it may stay as it is.
///
/// Reads the time at most once a request, and nobody has to set a timer for every request: the
/// timer of the last deadline goes off too early and is set anew.
#[derive(Debug)]
pub(super) struct Patience {
    head: Duration,
    idle: Duration,
    phase: Phase,
    since: Instant,
    requests: usize,
    /// How much a busy client had taken of its answers when it was seen to take no more, and when.
    stuck: Option<(usize, Instant)>,
}

/// What a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests are answered. How long that may take is for those to say who answer, unless all
    /// wait for the client.
    Busy,
    /// Between requests.
    Idle,
}

impl Patience {
    /// For a connection whose first bytes have come: they are no request yet.
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        let (head, idle) = (timeouts.head, timeouts.idle);
        let since = Instant::now();
        Self { head, idle, phase: Phase::Idle, since, requests: 0, stuck: None }
    }

    pub(super) fn look_at(&mut self, activity: &Activity) -> Phase {
        let requests = activity.requests();
        let has_answered = requests != self.requests || self.phase == Phase::Busy;
        self.requests = requests;
        if activity.is_busy() {
            self.phase = Phase::Busy;
            self.look_whether_stuck(activity);
        } else if has_answered {
            self.phase = Phase::Idle;
            self.renew();
        }
        self.phase
    }

    /// The phase that was last seen.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Until when the connection may stay in the phase that was last seen.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Busy => self.stuck.map(|(_, since)| since + self.idle),
            Phase::Idle => Some(self.since + self.idle),
        }
    }

    /// The same for a connection that is to end.
    pub(super) fn last_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Busy => self.deadline(),
            Phase::Idle => Some(self.since + self.head.min(self.idle)),
        }
    }

    /// Starts the time of the phase anew.
    pub(super) fn renew(&mut self) {
        self.since = Instant::now();
    }

    /// When to look again at a connection that is busy.
    pub(super) fn next_look(&self) -> Instant {
        Instant::now() + self.idle
    }

    /// A client can hold its answers up without holding up the connection.
    fn look_whether_stuck(&mut self, activity: &Activity) {
        self.stuck = match (activity.stuck_at(), self.stuck) {
            (None, _) => None,
            (Some(now_at), Some((at, since))) if now_at == at => Some((at, since)),
            (Some(now_at), _) => Some((now_at, Instant::now())),
        };
    }
}
