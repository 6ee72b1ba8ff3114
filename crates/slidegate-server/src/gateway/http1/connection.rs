//! One connection to upstream.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::stream::UpstreamStream;
use crate::http1::Alarm;

/// A connection to upstream, with what has come over it and what is to go.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    stream: UpstreamStream,
    pub(super) unread: BytesMut,
    pub(super) unsent: Vec<u8>,
    sent: usize,
    /// In all its life.
    written: u64,
    /// Whether the last response had no body: an upstream in error may still send one.
    had_no_body: bool,
    /// Whether anything has come since the last request was begun.
    pub(super) has_heard: bool,
    pub(super) alarm: Alarm,
    /// Room for the next read: more once reads fill it.
    room: usize,
}

/// Enough for most responses.
const LEAST_ROOM: usize = 8 * 1024;
/// What a large body is read by.
const MOST_ROOM: usize = 64 * 1024;

impl Http1Connection {
    pub(crate) fn new(stream: UpstreamStream) -> Self {
        Self {
            stream,
            unread: BytesMut::new(),
            unsent: Vec::new(),
            sent: 0,
            written: 0,
            had_no_body: false,
            has_heard: false,
            alarm: Alarm::default(),
            room: LEAST_ROOM,
        }
    }

    /// Whether upstream has said nothing since the last response. What it says unasked, such as that
    /// it closes the connection, makes the connection useless.
    ///
    /// The kernel is asked, unless little is at stake: then it is enough to know what it has told
    /// already.
    pub(crate) fn is_reusable(&mut self, at_a_glance: bool) -> bool {
        let mut byte = [0];
        let is_nothing =
            |read: io::Result<usize>| read.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
        let at_a_glance = at_a_glance && !self.had_no_body;
        let is_silent = |stream: &TcpStream| {
            at_a_glance || is_nothing(SockRef::from(stream).peek(&mut [MaybeUninit::new(0)]))
        };
        self.unread.is_empty()
            && match &mut self.stream {
                UpstreamStream::Plain(stream) if at_a_glance => {
                    is_nothing(stream.try_read(&mut byte))
                }
                UpstreamStream::Plain(stream) => is_silent(stream),
                UpstreamStream::Tls(stream) if !is_silent(stream.get_ref().0) => false,
                UpstreamStream::Tls(stream) => {
                    let mut context = Context::from_waker(Waker::noop());
                    let mut buffer = ReadBuf::new(&mut byte);
                    Pin::new(stream).poll_read(&mut context, &mut buffer).is_pending()
                }
            }
    }

    /// The stream, and what has been read of it too early.
    pub(crate) fn into_stream(self) -> (UpstreamStream, BytesMut) {
        (self.stream, self.unread)
    }

    /// Whether any of what was to go has gone.
    pub(super) fn has_sent(&self) -> bool {
        self.sent > 0
    }

    /// A number that changes when something goes.
    pub(super) fn progress(&self) -> u64 {
        self.written
    }

    /// Sends all that is to go.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.unsent.len() {
            let unsent = &self.unsent[self.sent..];
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, unsent))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
            self.written += count as u64;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.unsent.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads more; zero bytes are the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.unread.reserve(self.room);
        let count = ready!(pin!(self.stream.read_buf(&mut self.unread)).poll(cx))?;
        self.has_heard |= count > 0;
        if count >= self.room {
            self.room = MOST_ROOM;
        }
        Poll::Ready(Ok(count))
    }

    /// Makes ready for another request, after a response with or without a body.
    pub(super) fn rest(&mut self, had_body: bool) {
        self.alarm.stop();
        self.room = LEAST_ROOM;
        self.had_no_body = !had_body;
        self.unsent.shrink_to(MOST_ROOM);
        if self.unread.capacity() > MOST_ROOM {
            self.unread = BytesMut::new();
        }
    }
}
