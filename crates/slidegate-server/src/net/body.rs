//! The body of a request: never larger, slower or later than the configuration allows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::activity::Activity;
use super::idle::IdleTimeout;
use crate::config::{Bounds, Timeouts};

/// For how long a body may be slower than it has to be.
const RATE_GRACE: Duration = Duration::from_secs(10);

/// What a request's body may cost.
#[derive(Debug, Clone)]
pub(super) struct BodyLimits {
    /// For the next bytes.
    idle: Duration,
    /// For all of it.
    total: Duration,
    /// Bytes per second, after the first seconds; 0 is no minimum.
    rate: u32,
    most_bytes: u64,
}

impl BodyLimits {
    pub(super) fn new(timeouts: &Timeouts, bounds: &Bounds) -> Self {
        Self {
            idle: timeouts.idle,
            total: timeouts.body,
            rate: bounds.body_rate,
            most_bytes: bounds.body_bytes.unwrap_or(u64::MAX),
        }
    }

    /// When a body is too late, of which this much has come, if no more comes.
    fn deadline(&self, began: Instant, received: u64) -> Instant {
        let deadline = (Instant::now() + self.idle).min(began + self.total);
        match received.checked_div(u64::from(self.rate)) {
            Some(seconds) => deadline.min(began + RATE_GRACE + Duration::from_secs(seconds)),
            None => deadline,
        }
    }
}

/// The body of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestBody(Option<Box<Received>>);

#[derive(Debug)]
struct Received {
    incoming: Incoming,
    limits: Arc<BodyLimits>,
    /// Of the connection, if it has to know where a chunked body ends.
    activity: Option<Arc<Activity>>,
    received: u64,
    /// When the first bytes were waited for.
    began: Option<Instant>,
    timeout: IdleTimeout,
    upload: Arc<Upload>,
}

/// Why a request's body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestBodyError {
    #[error("the request's body is malformed or ended early")]
    Broken,
    #[error("the request's body stopped or is too slow")]
    TooSlow,
    #[error("the request's body is too large")]
    TooLarge,
}

impl RequestBody {
    pub(super) fn new(
        incoming: Incoming,
        limits: &Arc<BodyLimits>,
        activity: Option<&Arc<Activity>>,
    ) -> Self {
        if incoming.is_end_stream() {
            return Self(None);
        }
        Self(Some(Box::new(Received {
            incoming,
            limits: Arc::clone(limits),
            activity: activity.cloned(),
            received: 0,
            began: None,
            timeout: IdleTimeout::default(),
            upload: Arc::default(),
        })))
    }

    /// How far it has come, for the one who waits for the response. None if there is no body.
    pub(crate) fn upload(&self) -> Option<Arc<Upload>> {
        self.0.as_ref().map(|body| Arc::clone(&body.upload))
    }

    /// Whether it says itself that it is too large.
    pub(crate) fn is_too_large(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|body| body.incoming.size_hint().lower() > body.limits.most_bytes)
    }
}

impl Received {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            self.upload.wait_for_client();
            if let Some(activity) = &self.activity {
                activity.want_body();
            }
            if !self.timeout.is_set() {
                let began = *self.began.get_or_insert_with(Instant::now);
                self.timeout.set(self.limits.deadline(began, self.received));
            }
            ready!(self.timeout.poll(cx));
            return Poll::Ready(Some(Err(RequestBodyError::TooSlow)));
        };
        self.timeout.stop();
        self.upload.move_on();
        match frame {
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    keep_trailers(trailers);
                }
                self.received += frame.data_ref().map_or(0, Bytes::len) as u64;
                if self.received > self.limits.most_bytes {
                    return Poll::Ready(Some(Err(RequestBodyError::TooLarge)));
                }
                self.look_for_end(frame.is_trailers());
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "request body failed");
                Poll::Ready(Some(Err(RequestBodyError::Broken)))
            }
            None => {
                self.look_for_end(true);
                Poll::Ready(None)
            }
        }
    }

    fn look_for_end(&self, has_ended: bool) {
        if let Some(activity) = &self.activity
            && (has_ended || self.incoming.is_end_stream())
        {
            activity.end_body();
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let frame = ready!(body.poll_frame(cx));
        if let Some(Err(error)) = &frame {
            body.upload.fail(*error);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |body| body.incoming.size_hint())
    }
}

/// Drops trailers that would be more than that: that say how to read a message, whose it is or
/// where it came from. Those were decided on by the head.
fn keep_trailers(trailers: &mut HeaderMap) {
    const DROPPED: [&str; 20] = [
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "max-forwards",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-api-key",
        "x-real-ip",
    ];
    let is_dropped = |name: &HeaderName| {
        let name = name.as_str().replace('_', "-");
        DROPPED.contains(&name.as_str()) || name.starts_with("x-forwarded-")
    };
    let dropped: Vec<HeaderName> = trailers.keys().filter(|n| is_dropped(n)).cloned().collect();
    for name in dropped {
        trailers.remove(name);
    }
}

/// How far a request's body has come on its way to upstream.
#[derive(Debug)]
pub(crate) struct Upload(Mutex<UploadState>);

#[derive(Debug)]
struct UploadState {
    moved_at: Instant,
    /// The client has not sent more. How long it may take is the body's own affair.
    waits_for_client: bool,
    error: Option<RequestBodyError>,
}

impl Default for Upload {
    fn default() -> Self {
        let moved_at = Instant::now();
        Self(Mutex::new(UploadState { moved_at, waits_for_client: false, error: None }))
    }
}

impl Upload {
    fn move_on(&self) {
        let mut state = self.0.lock();
        state.moved_at = Instant::now();
        state.waits_for_client = false;
    }

    fn wait_for_client(&self) {
        self.0.lock().waits_for_client = true;
    }

    fn fail(&self, error: RequestBodyError) {
        self.0.lock().error = Some(error);
    }

    pub(crate) fn error(&self) -> Option<RequestBodyError> {
        self.0.lock().error
    }

    /// When upstream was last seen to take something: now, if it cannot because of the client.
    pub(crate) fn moved_at(&self) -> Instant {
        let state = self.0.lock();
        if state.waits_for_client { Instant::now() } else { state.moved_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_has_to_keep_up_a_rate() {
        let bounds = Bounds { body_rate: 100, ..Bounds::default() };
        let timeouts = Timeouts::default();
        let limits = BodyLimits::new(&timeouts, &bounds);
        let began = Instant::now();
        let left = |received| limits.deadline(began, received) - Instant::now();
        assert_eq!(left(0), RATE_GRACE, "nothing at all");
        assert_eq!(left(1_000), Duration::from_secs(20), "it may be slow for a moment");
        assert_eq!(left(1_000_000), timeouts.idle, "and stop for a while");
        tokio::time::advance(Duration::from_secs(3590)).await;
        let left = limits.deadline(began, 1_000_000_000) - Instant::now();
        assert_eq!(left, Duration::from_secs(10), "but all of it has an end");
        let without = BodyLimits::new(&timeouts, &Bounds { body_rate: 0, ..bounds });
        let began = Instant::now();
        assert_eq!(without.deadline(began, 0) - began, timeouts.idle);
    }
}
