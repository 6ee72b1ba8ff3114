//! Joins small frames of a body into larger ones.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::idle::IdleTimeout;

/// Frames of at least this size are forwarded unchanged; smaller ones are joined up to it.
const JOINED_BYTES: usize = 4096;

/// How long a small frame waits for more: the resolution of the runtime's timers. hyper yields one
/// frame at a time, so it is unknown whether more are buffered.
const JOIN_DELAY: Duration = Duration::from_millis(1);

/// Joins small frames. A client can send a chunk for every byte, and each would cost a chunk header
/// and a system call on the way to upstream.
#[derive(Debug, Default)]
pub(super) struct JoinedFrames {
    data: BytesMut,
    trailers: Option<HeaderMap>,
    delay: IdleTimeout,
}

impl JoinedFrames {
    /// Adds a frame. Returns a frame that is ready to forward.
    pub(super) fn push(&mut self, frame: Frame<Bytes>, is_last: bool) -> Option<Frame<Bytes>> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) if self.data.is_empty() => return Some(frame),
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                return self.take();
            }
        };
        if self.data.is_empty() {
            if is_last || data.len() >= JOINED_BYTES {
                return Some(Frame::data(data));
            }
            self.delay = IdleTimeout::after(JOIN_DELAY);
        }
        self.data.extend_from_slice(&data);
        if is_last || self.data.len() >= JOINED_BYTES { self.take() } else { None }
    }

    /// Takes the frames joined so far.
    pub(super) fn take(&mut self) -> Option<Frame<Bytes>> {
        (!self.data.is_empty()).then(|| Frame::data(self.data.split().freeze()))
    }

    /// Takes the trailers that followed joined frames.
    pub(super) fn take_trailers(&mut self) -> Option<Frame<Bytes>> {
        self.trailers.take().map(Frame::trailers)
    }

    /// Called when nothing more can be read now: ready with the joined frames after `JOIN_DELAY`, or
    /// with `None` if there are none.
    pub(super) fn poll_incomplete(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if !self.data.is_empty() {
            ready!(self.delay.poll(cx));
        }
        Poll::Ready(self.take())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    /// The size of the rest of the body, including these frames.
    pub(super) fn add_to(&self, left: SizeHint) -> SizeHint {
        let joined = self.data.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(left.lower() + joined);
        if let Some(upper) = left.upper() {
            hint.set_upper(upper + joined);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::Instant;

    use super::*;

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    fn text(frame: Option<Frame<Bytes>>) -> Option<String> {
        let data = frame?.into_data().expect("data");
        Some(String::from_utf8(data.to_vec()).expect("text"))
    }

    #[tokio::test(start_paused = true)]
    async fn small_frames_wait_for_a_millisecond() {
        let (mut joined, began) = (JoinedFrames::default(), Instant::now());
        assert!(joined.push(data("a"), false).is_none());
        assert!(joined.push(data("b"), false).is_none());
        assert_eq!(joined.add_to(SizeHint::with_exact(3)).exact(), Some(5));
        assert_eq!(text(poll_fn(|cx| joined.poll_incomplete(cx)).await).as_deref(), Some("ab"));
        assert_eq!(began.elapsed(), JOIN_DELAY);
        assert!(joined.is_empty());
        assert_eq!(text(poll_fn(|cx| joined.poll_incomplete(cx)).await), None, "at once");
        assert_eq!(began.elapsed(), JOIN_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn large_frames_and_the_end_do_not_wait() {
        let mut joined = JoinedFrames::default();
        assert_eq!(text(joined.push(data("all"), true)).as_deref(), Some("all"));
        let large = Bytes::from(vec![b'x'; JOINED_BYTES]);
        assert!(joined.push(Frame::data(large.clone()), false).is_some());
        assert!(joined.push(data("a"), false).is_none());
        let behind = joined.push(Frame::data(large), false).expect("both");
        assert_eq!(behind.data_ref().map(Bytes::len), Some(JOINED_BYTES + 1));
        assert!(joined.push(data("a"), false).is_none());
        let first = joined.push(Frame::trailers(HeaderMap::new()), true);
        assert_eq!(text(first).as_deref(), Some("a"));
        assert!(joined.take_trailers().is_some_and(|frame| frame.is_trailers()));
    }
}
