//! A client's stream under guard: it holds its place among the connections, and a client that does
//! not read is given up.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, Sleep, sleep};

use super::counts::ConnectionCounts;

/// A connection's place among those that there may be at once. Its stream holds it, so that an
/// upgraded connection does so too.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    counts: Arc<ConnectionCounts>,
    _permit: OwnedSemaphorePermit,
    /// Signals the worker, when all are dropped, that no connection is left.
    _worker: mpsc::Sender<Infallible>,
}

impl ConnectionSlot {
    pub(super) fn new(
        counts: &Arc<ConnectionCounts>,
        permit: OwnedSemaphorePermit,
        worker: mpsc::Sender<Infallible>,
    ) -> Self {
        counts.opened();
        Self { counts: Arc::clone(counts), _permit: permit, _worker: worker }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.counts.closed();
    }
}

/// A stream under guard.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    stall: Stall,
    ended: bool,
    _place: ConnectionSlot,
}

impl<S> Guarded<S> {
    /// Writes fail after this time without progress.
    pub(super) fn new(stream: S, longest_stall: Duration, place: ConnectionSlot) -> Self {
        Self { stream, stall: Stall::new(longest_stall), ended: false, _place: place }
    }

    /// Whether the client has closed its side.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.ended = read.is_ready() && buffer.filled().len() == before;
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.stall.bound(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.stall.bound(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.stall.bound(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.stall.bound(cx, shut)
    }
}

/// Bounds how long writing makes no headway. Costs nothing while it does.
#[derive(Debug)]
struct Stall {
    longest: Duration,
    /// Kept after the first stall, for the next.
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
}

impl Stall {
    fn new(longest: Duration) -> Self {
        Self { longest, timer: None, stalled: false }
    }

    fn bound<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = false;
            return result;
        }
        self.wait(cx).map(|()| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answers"))
        })
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.longest)));
        if !self.stalled {
            self.stalled = true;
            timer.as_mut().reset(Instant::now() + self.longest);
        }
        timer.as_mut().poll(cx)
    }
}
