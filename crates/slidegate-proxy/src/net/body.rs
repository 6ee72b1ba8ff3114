//! The body of a request, with limits on its size, rate and time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::idle::IdleTimeout;
use super::joined_frames::JoinedFrames;
use crate::{Bounds, Timeouts};

/// Time before the minimum rate of a body applies.
const BODY_RATE_GRACE: Duration = Duration::from_secs(10);

/// Limits of a request body.
#[derive(Debug, Clone)]
pub(super) struct BodyLimits {
    /// Timeout for the next bytes.
    idle: Duration,
    /// Timeout for the complete body.
    total: Duration,
    /// Minimum bytes per second after `BODY_RATE_GRACE`; 0 disables the check.
    rate: u32,
    max_bytes: u64,
}

impl BodyLimits {
    pub(super) fn new(timeouts: &Timeouts, bounds: &Bounds) -> Self {
        Self {
            idle: timeouts.idle,
            total: timeouts.body,
            rate: bounds.body_rate,
            max_bytes: bounds.body_bytes.unwrap_or(u64::MAX),
        }
    }

    /// When a body with `received` bytes times out if no more bytes arrive.
    fn deadline(&self, began: Instant, received: u64) -> Instant {
        let deadline = (Instant::now() + self.idle).min(began + self.total);
        match received.checked_div(u64::from(self.rate)) {
            Some(seconds) => deadline.min(began + BODY_RATE_GRACE + Duration::from_secs(seconds)),
            None => deadline,
        }
    }
}

/// The body of a request.
#[derive(Debug, Default)]
pub struct RequestBody(Option<Arc<Mutex<Received>>>);

/// A handle to a request body that observes its progress while upstream reads it.
#[derive(Debug, Clone)]
pub(crate) struct Upload(Arc<Mutex<Received>>);

#[derive(Debug)]
struct Received {
    incoming: Incoming,
    limits: Arc<BodyLimits>,
    received: u64,
    /// When the first bytes were awaited.
    began: Option<Instant>,
    timeout: IdleTimeout,
    joined: JoinedFrames,
    moved_at: Instant,
    /// All received bytes were read; `timeout` limits the wait for more.
    waits_for_client: bool,
    has_ended: bool,
    error: Option<RequestBodyError>,
}

/// Why a request body ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestBodyError {
    /// It is malformed, or the client disconnected.
    #[error("the request's body is malformed or ended early")]
    Broken,
    /// It stalled, or is slower than the minimum rate.
    #[error("the request's body stalled or is too slow")]
    TooSlow,
    /// It exceeds the size limit.
    #[error("the request's body is too large")]
    TooLarge,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, limits: &Arc<BodyLimits>) -> Self {
        if incoming.is_end_stream() {
            return Self(None);
        }
        Self(Some(Arc::new(Mutex::new(Received {
            incoming,
            limits: Arc::clone(limits),
            received: 0,
            began: None,
            timeout: IdleTimeout::default(),
            joined: JoinedFrames::default(),
            moved_at: Instant::now(),
            waits_for_client: false,
            has_ended: false,
            error: None,
        }))))
    }

    /// Returns `None` if there is no body.
    pub(crate) fn upload(&self) -> Option<Upload> {
        self.0.as_ref().map(|body| Upload(Arc::clone(body)))
    }

    /// Whether its announced length is too large.
    pub fn is_too_large(&self) -> bool {
        self.0.as_ref().is_some_and(|body| {
            let body = body.lock();
            body.incoming.size_hint().lower() > body.limits.max_bytes
        })
    }
}

impl Received {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        loop {
            if let Some(frame) = self.joined.take_trailers() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                if let Some(frame) = ready!(self.joined.poll_incomplete(cx)) {
                    return Poll::Ready(Some(Ok(frame)));
                }
                return self.poll_timeout(cx);
            };
            self.timeout.stop();
            self.moved_at = Instant::now();
            self.waits_for_client = false;
            match frame {
                Some(Ok(mut frame)) => {
                    if let Some(trailers) = frame.trailers_mut() {
                        keep_trailers(trailers);
                    }
                    self.received += frame.data_ref().map_or(0, Bytes::len) as u64;
                    if self.received > self.limits.max_bytes {
                        return Poll::Ready(Some(Err(RequestBodyError::TooLarge)));
                    }
                    self.has_ended = frame.is_trailers() || self.incoming.is_end_stream();
                    if let Some(frame) = self.joined.push(frame, self.has_ended) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "request body failed"
                    );
                    return Poll::Ready(Some(Err(RequestBodyError::Broken)));
                }
                None => {
                    self.has_ended = true;
                    return Poll::Ready(self.joined.take().map(Ok));
                }
            }
        }
    }

    fn poll_timeout(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        self.waits_for_client = true;
        if !self.timeout.is_set() {
            let began = *self.began.get_or_insert_with(Instant::now);
            self.timeout.set(self.limits.deadline(began, self.received));
        }
        self.timeout.poll(cx).map(|()| Some(Err(RequestBodyError::TooSlow)))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Some(body) = &self.0 else { return Poll::Ready(None) };
        let mut body = body.lock();
        let frame = ready!(body.poll_frame(cx));
        if let Some(Err(error)) = &frame {
            body.error = Some(*error);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| {
            let body = body.lock();
            body.joined.is_empty() && body.incoming.is_end_stream()
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |body| {
            let body = body.lock();
            body.joined.add_to(body.incoming.size_hint())
        })
    }
}

impl Upload {
    pub(crate) fn error(&self) -> Option<RequestBodyError> {
        self.0.lock().error
    }

    /// When upstream last read bytes of the body, or now while upstream waits for the client.
    pub(crate) fn moved_at(&self) -> Instant {
        let body = self.0.lock();
        if body.waits_for_client { Instant::now() } else { body.moved_at }
    }

    /// Drains the rest of the body if it is small and arrives soon. Returns whether all of the body
    /// was read.
    ///
    /// With `Expect: 100-continue`, the client sends the body only after `100 Continue`. Reading it
    /// here would send that.
    pub(super) async fn finish(self, awaits_continue: bool) -> bool {
        match Arc::try_unwrap(self.0).map(Mutex::into_inner) {
            Err(upload) => upload.lock().has_ended,
            Ok(body) if body.has_ended => true,
            Ok(_) if awaits_continue => false,
            Ok(body) => drain(body.incoming).await,
        }
    }
}

/// Limits for draining a body that the handler did not read: enough for an ordinary API call, so
/// that a refused client keeps its connection.
const MAX_DRAINED_BYTES: u64 = 64 * 1024;
const BODY_DRAIN_TIMEOUT: Duration = Duration::from_millis(5);

async fn drain(mut body: Incoming) -> bool {
    let all = async {
        let mut left = MAX_DRAINED_BYTES;
        while body.size_hint().lower() <= left {
            match body.frame().await {
                Some(Ok(frame)) => {
                    let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                    // Counts empty frames too; trailers are always the last frame.
                    left = left.saturating_sub(length.max(1));
                }
                Some(Err(_)) => return false,
                None => return true,
            }
        }
        false
    };
    timeout(BODY_DRAIN_TIMEOUT, all).await.unwrap_or(false)
}

/// Drops trailers that affect framing, routing, identity or the origin of a request: the decision
/// used the values in the head.
fn keep_trailers(trailers: &mut HeaderMap) {
    const DROPPED_TRAILERS: [&str; 20] = [
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
        DROPPED_TRAILERS.contains(&name.as_str()) || name.starts_with("x-forwarded-")
    };
    let dropped: Vec<HeaderName> = trailers.keys().filter(|n| is_dropped(n)).cloned().collect();
    for name in dropped {
        trailers.remove(name);
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
        assert_eq!(left(0), BODY_RATE_GRACE, "no bytes");
        assert_eq!(left(1_000), Duration::from_secs(20), "slow for ten seconds");
        assert_eq!(left(1_000_000), timeouts.idle, "limited by the idle timeout");
        tokio::time::advance(Duration::from_secs(3590)).await;
        let left = limits.deadline(began, 1_000_000_000) - Instant::now();
        assert_eq!(left, Duration::from_secs(10), "limited by the total timeout");
        let without = BodyLimits::new(&timeouts, &Bounds { body_rate: 0, ..bounds });
        let began = Instant::now();
        assert_eq!(without.deadline(began, 0) - began, timeouts.idle);
    }
}
