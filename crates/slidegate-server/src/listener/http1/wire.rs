//! A client's connection as bytes.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// A stream with what has come over it and what is to go.
#[derive(Debug)]
pub(super) struct Wire<S> {
    pub(super) stream: S,
    pub(super) unread: BytesMut,
    /// Room for the next read: more once reads fill it.
    room: usize,
    pub(super) unsent: Vec<u8>,
    sent: usize,
    /// What goes after all that: a piece that is too large to be copied.
    piece: Bytes,
}

/// Enough for most heads.
const LEAST_ROOM: usize = 4 * 1024;
/// What a large body is read by.
const MOST_ROOM: usize = 64 * 1024;
/// With less than this, it is not worth a read.
const SMALLEST_READ: usize = 1024;
/// So much is gathered before it is sent.
const ENOUGH: usize = 16 * 1024;

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            unread: BytesMut::new(),
            room: LEAST_ROOM,
            unsent: Vec::new(),
            sent: 0,
            piece: Bytes::new(),
        }
    }

    /// Reads more; zero bytes are the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.unread.capacity() - self.unread.len() < SMALLEST_READ.max(self.room / 4) {
            self.unread.reserve(self.room);
        }
        let count = ready!(pin!(self.stream.read_buf(&mut self.unread)).poll(cx))?;
        if self.unread.len() == self.unread.capacity() {
            self.room = MOST_ROOM;
        }
        Poll::Ready(Ok(count))
    }

    /// Empty lines between requests are nothing.
    pub(super) fn skip_blank_lines(&mut self) {
        while let [b'\r', b'\n', ..] | [b'\n', ..] = self.unread[..] {
            let length = if self.unread[0] == b'\r' { 2 } else { 1 };
            self.unread.advance(length);
        }
    }

    /// Whether more is to be gathered before it is sent.
    pub(super) fn has_room(&self) -> bool {
        self.unsent.len() < ENOUGH && self.piece.is_empty()
    }

    /// Lets a piece follow what is to go. Only if there is room.
    pub(super) fn put(&mut self, piece: &Bytes) {
        if piece.len() < ENOUGH {
            self.unsent.extend_from_slice(piece);
        } else {
            self.piece = piece.clone();
        }
    }

    /// Sends all that is to go.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.unsent.len() || !self.piece.is_empty() {
            let front = &self.unsent[self.sent..];
            let stream = Pin::new(&mut self.stream);
            let count = if self.piece.is_empty() {
                ready!(stream.poll_write(cx, front))?
            } else {
                let slices = [IoSlice::new(front), IoSlice::new(&self.piece)];
                ready!(stream.poll_write_vectored(cx, &slices))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_front = count.min(front.len());
            self.sent += of_front;
            self.piece.advance(count - of_front);
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.unsent.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Makes ready for another request. Buffers that have become large are not kept: it may be long
    /// until the next one comes.
    pub(super) fn rest(&mut self) {
        if self.unsent.capacity() > ENOUGH {
            self.unsent = Vec::new();
        }
        if self.room > LEAST_ROOM && self.unread.is_empty() {
            self.unread = BytesMut::new();
        }
        self.room = LEAST_ROOM;
    }
}
