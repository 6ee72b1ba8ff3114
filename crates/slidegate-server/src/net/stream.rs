//! The stream of a client, which shows hyper one request's bytes at a time.
//!
//! hyper parses requests and reads their bodies. Three things it does not do, and they need a look
//! at the bytes: it takes a bare LF for the end of a line, it drops a length beside chunks without
//! a word, and it does not tell a connection on which nothing has come from one on which a head
//! has begun. So the stream hands out a head only when it is complete and was checked, and stops
//! where the head ends until the request says how its body is framed, as hyper understood it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::activity::{Activity, Chunks, Reading};
use super::connections::ConnectionSlot;
use super::head;
use super::idle::IdleTimeout;

/// A socket, or TLS over one.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Io for T {}

pub(crate) type BoxIo = Box<dyn Io>;

/// How much is read at once of a head, or of a body whose end has to be found.
const READ_BYTES: usize = 8192;

/// What hyper answers with 400: no request begins with it.
const REFUSED: &[u8] = b"\0";

/// For how long, and how much, is read of a client that sends after the end of its connection: if
/// the socket were closed at once, the client might never see its response.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 64 << 20;

/// The stream of a client. It holds the connection's slot, so that an upgraded connection does too.
pub(super) struct ClientStream {
    io: BoxIo,
    activity: Arc<Activity>,
    /// Bytes that were read and not handed out.
    unread: BytesMut,
    /// How far `unread` was searched for the end of a head.
    searched: usize,
    /// How much of `unread` belongs to a head that was checked.
    checked: usize,
    /// The last bytes handed out of a chunked body.
    tail: [u8; 2],
    most_head_bytes: usize,
    linger: Option<Linger>,
    _slot: ConnectionSlot,
}

#[derive(Debug)]
struct Linger {
    timeout: IdleTimeout,
    left: usize,
}

impl ClientStream {
    /// A stream of which some was read already.
    pub(super) fn new(
        io: BoxIo,
        read: BytesMut,
        activity: Arc<Activity>,
        most_head_bytes: usize,
        slot: ConnectionSlot,
    ) -> Self {
        Self {
            io,
            activity,
            unread: read,
            searched: 0,
            checked: 0,
            tail: [0; 2],
            most_head_bytes,
            linger: None,
            _slot: slot,
        }
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.checked == 0 {
            self.skip_empty_lines();
            if !self.unread.is_empty() {
                self.activity.begin_head();
            }
            if let Some(end) = head::find_end(&self.unread, self.searched) {
                self.searched = 0;
                if !head::has_one_meaning(&self.unread[..end]) {
                    self.unread = BytesMut::from(REFUSED);
                    self.activity.set_reading(Reading::Refused);
                    return self.poll_as_it_comes(cx, buffer);
                }
                self.checked = end;
                break;
            }
            if self.unread.len() > self.most_head_bytes {
                // For its size.
                self.activity.set_reading(Reading::Refused);
                return self.poll_as_it_comes(cx, buffer);
            }
            // The end of a head may have begun already.
            self.searched = self.unread.len().saturating_sub(3);
            if ready!(self.poll_fill(cx))? == 0 {
                // It is the end, or a head without one.
                self.activity.set_reading(Reading::Refused);
                return self.poll_as_it_comes(cx, buffer);
            }
        }
        let length = self.hand_out(buffer, self.checked);
        self.checked -= length;
        if self.checked == 0 {
            self.activity.set_reading(Reading::Paused);
        }
        Poll::Ready(Ok(()))
    }

    /// RFC 9112 2.2 asks to ignore them. A client that sends nothing else sends no request.
    fn skip_empty_lines(&mut self) {
        while self.searched == 0 && self.unread.starts_with(b"\r\n") {
            self.unread.advance(2);
        }
    }

    /// Hands out what comes next of a body, of which this much is left.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        left: u64,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            ready!(self.poll_fill(cx))?;
        }
        let length = self.hand_out(buffer, usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - length as u64;
        self.activity.set_reading(if left == 0 { Reading::Head } else { Reading::Body(left) });
        Poll::Ready(Ok(()))
    }

    /// Hands out what comes next of a chunked body, to the end of an empty line at most.
    fn poll_chunks(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            ready!(self.poll_fill(cx))?;
        }
        let available = self.unread.len().min(buffer.remaining());
        let empty_line = head::find_empty_line(self.tail, &self.unread[..available]);
        let length = empty_line.unwrap_or(available);
        match self.unread[..length] {
            [] => {}
            [last] => self.tail = [self.tail[1], last],
            [.., one, last] => self.tail = [one, last],
        }
        self.hand_out(buffer, length);
        if empty_line.is_some() {
            self.activity.set_reading(Reading::Chunks(Chunks::AtEmptyLine));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_as_it_comes(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        self.hand_out(buffer, usize::MAX);
        Poll::Ready(Ok(()))
    }

    /// Hands out what was read, this much at most. Returns how much it is.
    fn hand_out(&mut self, buffer: &mut ReadBuf<'_>, most: usize) -> usize {
        let length = self.unread.len().min(buffer.remaining()).min(most);
        buffer.put_slice(&self.unread[..length]);
        self.unread.advance(length);
        length
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.unread.reserve(READ_BYTES);
        poll_read_buf(Pin::new(&mut self.io), cx, &mut self.unread)
    }

    /// Reads and drops what the client still sends.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| Linger {
            timeout: IdleTimeout::after(LINGER),
            left: LINGER_BYTES,
        });
        loop {
            self.unread.clear();
            self.unread.reserve(READ_BYTES);
            match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.unread) {
                Poll::Ready(Ok(length)) if length > 0 && length <= linger.left => {
                    linger.left -= length;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return linger.timeout.poll(cx),
            }
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.activity.reading() {
            Reading::Head => self.poll_head(cx, buffer),
            Reading::Body(left) => self.poll_body(cx, buffer, left),
            Reading::Chunks(Chunks::Flowing) => self.poll_chunks(cx, buffer),
            Reading::Chunks(Chunks::AtEmptyLine) => {
                self.activity.set_reading(Reading::Chunks(Chunks::Held));
                self.activity.wait_to_read(cx);
                // Whoever reads the body asked before this, and has to ask again.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Reading::Paused | Reading::Chunks(Chunks::Held) => {
                self.activity.wait_to_read(cx);
                Poll::Pending
            }
            Reading::Refused | Reading::Opaque => self.poll_as_it_comes(cx, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes));
        self.activity.took();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices));
        self.activity.took();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.activity.begin_closing();
        }
        match self.activity.reading() {
            Reading::Opaque => Poll::Ready(Ok(())),
            Reading::Head if self.unread.is_empty() => Poll::Ready(Ok(())),
            _ => self.poll_linger(cx).map(Ok),
        }
    }
}
