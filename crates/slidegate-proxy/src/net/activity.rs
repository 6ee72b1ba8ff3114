//! The state of one connection, shared by its stream, its requests and the task that drives it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::time::Instant;

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The task that drives the connection.
    driver: Option<Waker>,
    in_flight: usize,
    /// Requests in flight whose response has a frame that hyper has not asked for yet.
    ahead: usize,
    /// Incremented whenever the client reads some bytes.
    taken: u64,
    has_served: bool,
    /// When the connection was opened, or its last request ended.
    idle_since: Instant,
    head_since: Option<Instant>,
    /// The bytes are not HTTP/1.1 requests: the connection is HTTP/2 or upgraded.
    is_opaque: bool,
    /// The last response was sent before its request was read completely.
    has_unread_body: bool,
    unwanted: Option<Unwanted>,
    is_closing: bool,
}

/// Why a connection should close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwanted {
    /// Evicted to free a slot; closed at once if idle.
    Evicted,
    /// The listener is draining; a request in transit is still answered.
    Draining,
}

/// The phase of a connection, which selects its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests are in flight. `stuck_at` is set if all of them wait for the client to read, and
    /// changes whenever it does.
    Busy { stuck_at: Option<u64> },
    /// Part of a request head was received.
    Head { since: Instant },
    /// Nothing was received yet.
    New { since: Instant },
    /// Between requests.
    Idle { since: Instant },
    /// The last bytes were written.
    Closing,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            driver: None,
            in_flight: 0,
            ahead: 0,
            taken: 0,
            has_served: false,
            idle_since: Instant::now(),
            head_since: None,
            is_opaque: false,
            has_unread_body: false,
            unwanted: None,
            is_closing: false,
        }))
    }

    pub(super) fn phase(&self) -> Phase {
        let state = self.0.lock();
        if state.is_closing {
            return Phase::Closing;
        }
        if state.in_flight > 0 {
            let is_stuck = state.ahead == state.in_flight;
            return Phase::Busy { stuck_at: is_stuck.then_some(state.taken) };
        }
        let since = state.idle_since;
        match state.head_since {
            Some(head_since) => Phase::Head { since: head_since.max(since) },
            None if state.has_served => Phase::Idle { since },
            None => Phase::New { since },
        }
    }

    /// Sets the task to wake when the connection should close. Returns why, if it already should.
    pub(super) fn driven_by(&self, waker: &Waker) -> Option<Unwanted> {
        let mut state = self.0.lock();
        if !state.driver.as_ref().is_some_and(|driver| driver.will_wake(waker)) {
            state.driver = Some(waker.clone());
        }
        state.unwanted
    }

    /// Asks the connection to close once it has no request in flight.
    pub(super) fn close(&self, why: Unwanted) {
        let mut state = self.0.lock();
        state.unwanted.get_or_insert(why);
        if let Some(driver) = &state.driver {
            driver.wake_by_ref();
        }
    }

    /// Completes when the connection is evicted to free its slot.
    pub(super) async fn evicted(&self) {
        poll_fn(|cx| match self.driven_by(cx.waker()) {
            Some(Unwanted::Evicted) => Poll::Ready(()),
            Some(Unwanted::Draining) | None => Poll::Pending,
        })
        .await;
    }

    /// Since when the connection has been idle and can be evicted. `None` if it cannot.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.0.lock();
        let is_idle =
            state.in_flight == 0 && state.head_since.is_none() && state.unwanted.is_none();
        is_idle.then_some(state.idle_since)
    }

    /// Records that a request was read. It is in flight until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        let mut state = self.0.lock();
        state.in_flight += 1;
        state.has_served = true;
        state.head_since = None;
        InFlight { activity: Arc::clone(self), is_ahead: false }
    }

    /// Marks all further bytes as not HTTP/1.1.
    pub(super) fn set_opaque(&self) {
        self.0.lock().is_opaque = true;
    }

    pub(super) fn is_opaque(&self) -> bool {
        self.0.lock().is_opaque
    }

    pub(super) fn has_in_flight(&self) -> bool {
        self.0.lock().in_flight > 0
    }

    /// Records that bytes were received. Without a request in flight, they start the next one.
    pub(super) fn received(&self) {
        let mut state = self.0.lock();
        if state.in_flight == 0 {
            state.head_since.get_or_insert_with(Instant::now);
        }
    }

    /// Records that the rest of the request body is not read; the client may still send it.
    pub(super) fn leave_body_unread(&self) {
        self.0.lock().has_unread_body = true;
    }

    /// Whether the client may still be sending its last request.
    pub(super) fn is_mid_request(&self) -> bool {
        let state = self.0.lock();
        state.has_unread_body || state.head_since.is_some()
    }

    /// Records that the last bytes were written.
    pub(super) fn begin_closing(&self) {
        self.0.lock().is_closing = true;
    }

    /// Records that the client has read some bytes.
    pub(super) fn took(&self) {
        self.0.lock().taken += 1;
    }
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    activity: Arc<Activity>,
    is_ahead: bool,
}

impl InFlight {
    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Sets whether the response has a frame that hyper has not asked for yet.
    pub(super) fn set_ahead(&mut self, is_ahead: bool) {
        if self.is_ahead == is_ahead {
            return;
        }
        self.is_ahead = is_ahead;
        let mut state = self.activity.0.lock();
        if is_ahead {
            state.ahead += 1;
        } else {
            state.ahead -= 1;
            state.taken += 1;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.set_ahead(false);
        let mut state = self.activity.0.lock();
        state.in_flight -= 1;
        state.idle_since = Instant::now();
    }
}

pin_project! {
    /// The body of a response. Its request is in flight until the body is dropped.
    #[derive(Debug)]
    pub(super) struct TrackedBody<B> {
        #[pin]
        body: B,
        in_flight: InFlight,
        is_hidden: bool,
    }
}

impl<B> TrackedBody<B> {
    pub(super) fn new(body: B, mut in_flight: InFlight) -> Self {
        in_flight.set_ahead(true);
        Self { body, in_flight, is_hidden: false }
    }

    /// The same for a response that must not carry its body.
    pub(super) fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        if *this.is_hidden {
            return Poll::Ready(None);
        }
        let frame = this.body.poll_frame(cx);
        this.in_flight.set_ahead(false);
        this.in_flight.set_ahead(frame.is_ready());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.is_hidden || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
