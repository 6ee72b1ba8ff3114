//! A request's body on its way from the connection to whoever reads it.
//!
//! The reader may be another task, and may read while the answer is already on its way. So the
//! connection alone reads from the socket, a piece at a time and only when one is wanted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite};

use super::request::RequestLength;
use super::wire::Wire;
use crate::http1::{Chunks, Found, Malformed};
use crate::listener::body::{RequestBody, RequestBodyError};

type UploadPart = Result<Frame<Bytes>, RequestBodyError>;

/// What the reader and the connection tell each other.
#[derive(Debug, Default)]
struct Shared {
    /// There to be taken.
    piece: Option<UploadPart>,
    /// Whether nothing comes after that.
    has_ended: bool,
    is_wanted: bool,
    has_reader_left: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

/// The reader's side of a body.
#[derive(Debug)]
pub(in crate::listener) struct Upload {
    shared: Arc<Mutex<Shared>>,
    /// How much is still to be read, if it is known.
    left: Option<u64>,
}

/// The connection's side of a body.
#[derive(Debug)]
pub(super) struct Intake {
    shared: Arc<Mutex<Shared>>,
    framing: UploadFraming,
    /// Whether the client waits for a word before it sends anything.
    owes_word: bool,
    /// Whether the body ended early, or is none.
    is_spoilt: bool,
}

#[derive(Debug)]
enum UploadFraming {
    Length(u64),
    Chunks(Chunks),
}

/// The word.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Gives a request its body. Returns the connection's side of it unless all of it is there already.
pub(super) fn begin(
    length: RequestLength,
    owes_word: bool,
    unread: &mut BytesMut,
    body: &mut RequestBody,
) -> Option<Intake> {
    let (framing, left) = match length {
        RequestLength::Bytes(0) => return None,
        RequestLength::Bytes(count) => match usize::try_from(count) {
            Ok(count) if count <= unread.len() => {
                *body = RequestBody::whole(unread.split_to(count).freeze());
                return None;
            }
            _ => (UploadFraming::Length(count), Some(count)),
        },
        RequestLength::Chunked => (UploadFraming::Chunks(Chunks::default()), None),
    };
    let shared = Arc::<Mutex<Shared>>::default();
    *body = RequestBody::upload(Upload { shared: Arc::clone(&shared), left });
    Some(Intake { shared, framing, owes_word, is_spoilt: false })
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upload {
    pub(in crate::listener) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<UploadPart>> {
        let mut shared = lock(&self.shared);
        if let Some(piece) = shared.piece.take() {
            if let (Some(left), Ok(Some(data))) =
                (&mut self.left, piece.as_ref().map(Frame::data_ref))
            {
                *left = left.saturating_sub(data.len() as u64);
            }
            return Poll::Ready(Some(piece));
        }
        if shared.has_ended {
            return Poll::Ready(None);
        }
        shared.is_wanted = true;
        shared.reader = Some(cx.waker().clone());
        if let Some(connection) = shared.connection.take() {
            connection.wake();
        }
        Poll::Pending
    }

    pub(in crate::listener) fn has_ended(&self) -> bool {
        let shared = lock(&self.shared);
        shared.has_ended && shared.piece.is_none()
    }

    pub(in crate::listener) fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.has_reader_left = true;
        if let Some(connection) = shared.connection.take() {
            connection.wake();
        }
    }
}

impl Intake {
    /// Whether nothing more is to be read for anybody.
    pub(super) fn is_over(&self) -> bool {
        self.is_spoilt || self.has_ended() || lock(&self.shared).has_reader_left
    }

    /// Reads a piece if one is wanted. Returns whether the reader has something new; if not, the
    /// task is woken when there is something to do.
    pub(super) fn pump<S>(&mut self, wire: &mut Wire<S>, cx: &mut Context<'_>) -> bool
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if !self.is_asked(cx) {
            return false;
        }
        let Poll::Ready(piece) = self.poll_piece(wire, cx) else { return false };
        self.is_spoilt = matches!(piece, Some(Err(_)));
        let mut shared = lock(&self.shared);
        shared.is_wanted = false;
        shared.has_ended = self.is_spoilt || self.has_ended();
        shared.piece = piece;
        if let Some(reader) = shared.reader.take() {
            reader.wake();
        }
        true
    }

    /// The answer begins: it is the client's word.
    pub(super) fn be_answered(&mut self) {
        self.owes_word = false;
    }

    /// Throws away what is there of a body that nobody reads. Returns whether that is all of it, so
    /// that the next request can follow.
    pub(super) fn finish(&mut self, unread: &mut BytesMut) -> bool {
        while !self.is_spoilt {
            match self.framing.take(unread) {
                Ok(Found::Data(_) | Found::Trailers(_)) => {}
                Ok(Found::End) => return true,
                Ok(Found::More) => return false,
                Err(Malformed) => self.is_spoilt = true,
            }
        }
        false
    }

    fn has_ended(&self) -> bool {
        match &self.framing {
            UploadFraming::Length(left) => *left == 0,
            UploadFraming::Chunks(chunks) => chunks.has_ended(),
        }
    }

    fn is_asked(&self, cx: &Context<'_>) -> bool {
        let mut shared = lock(&self.shared);
        if !shared.connection.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            shared.connection = Some(cx.waker().clone());
        }
        shared.is_wanted && shared.piece.is_none()
    }

    fn poll_piece<S>(
        &mut self,
        wire: &mut Wire<S>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<UploadPart>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        loop {
            match self.framing.take(&mut wire.unread) {
                Ok(Found::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Found::Trailers(fields)) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(fields))));
                }
                Ok(Found::End) => return Poll::Ready(None),
                Err(Malformed) => return Poll::Ready(Some(Err(RequestBodyError::Malformed))),
                Ok(Found::More) => {}
            }
            if self.owes_word {
                self.owes_word = false;
                wire.unsent.extend_from_slice(CONTINUE);
            }
            if !wire.unsent.is_empty() {
                // That it does not go is noticed when the answer is sent.
                let _ = wire.poll_flush(cx);
            }
            match ready!(wire.poll_fill(cx)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(Some(Err(RequestBodyError::Cut))),
            }
        }
    }
}

impl UploadFraming {
    fn take(&mut self, unread: &mut BytesMut) -> Result<Found, Malformed> {
        match self {
            Self::Length(0) => Ok(Found::End),
            Self::Length(_) if unread.is_empty() => Ok(Found::More),
            Self::Length(left) => {
                let count = unread.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                Ok(Found::Data(unread.split_to(count).freeze()))
            }
            Self::Chunks(chunks) => chunks.take(unread),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use http_body::Body;
    use tokio::io::duplex;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_connection_hears_when_the_reader_leaves_whatever_it_waits_for() {
        for is_wanted in [false, true] {
            let (_client, stream) = duplex(64);
            let mut wire = Wire::new(stream);
            let mut body = RequestBody::default();
            let intake = begin(RequestLength::Bytes(9), false, &mut wire.unread, &mut body);
            let mut intake = intake.expect("nothing has come yet");
            if is_wanted {
                let mut reader = Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut body).poll_frame(&mut reader).is_pending());
            }
            let woken = Arc::<Woken>::default();
            let waker = Waker::from(Arc::clone(&woken));
            assert!(!intake.pump(&mut wire, &mut Context::from_waker(&waker)));
            assert!(!intake.is_over());
            drop(body);
            assert!(intake.is_over());
            assert_eq!(woken.0.load(Ordering::Relaxed), 1, "{is_wanted}");
        }
    }
}
