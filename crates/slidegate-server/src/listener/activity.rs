//! What goes on on an HTTP/2 connection, for the one who watches the time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Only ever touched by tasks that wake one another, hence nothing but `Relaxed`.
#[derive(Debug, Default)]
pub(super) struct Activity {
    requests: AtomicUsize,
    in_flight: AtomicUsize,
    /// Of those in flight, how many have more of their answer to give than is asked for.
    ahead: AtomicUsize,
    frames: AtomicUsize,
}

impl Activity {
    /// A request's head is complete. The request lasts until the result is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { activity: Arc::clone(self), is_ahead: false }
    }

    /// How many requests there were.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Whether a request waits for its answer, or its answer for its end.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// If all requests wait for the client to take more of their answers: how many pieces it has
    /// taken yet.
    pub(super) fn stuck_at(&self) -> Option<usize> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let is_stuck = ahead > 0 && ahead == self.in_flight.load(Ordering::Relaxed);
        is_stuck.then(|| self.frames.load(Ordering::Relaxed))
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<Activity>,
    is_ahead: bool,
}

impl InFlight {
    /// There is more of the answer, if somebody asks.
    fn get_ahead(&mut self) {
        if !self.is_ahead {
            self.is_ahead = true;
            self.activity.ahead.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Somebody asks.
    fn be_asked(&mut self) {
        if self.is_ahead {
            self.is_ahead = false;
            self.activity.frames.fetch_add(1, Ordering::Relaxed);
            self.activity.ahead.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.be_asked();
        self.activity.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

pin_project! {
    /// The body of a response, and with it the end of a request.
    #[derive(Debug)]
    pub(super) struct LastPart<B> {
        #[pin]
        body: B,
        in_flight: InFlight,
    }
}

impl<B> LastPart<B> {
    pub(super) fn new(body: B, mut in_flight: InFlight) -> Self {
        in_flight.get_ahead();
        Self { body, in_flight }
    }
}

impl<B: Body> Body for LastPart<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        this.in_flight.be_asked();
        let frame = this.body.poll_frame(cx);
        if frame.is_ready() {
            this.in_flight.get_ahead();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
