//! The stream of an upstream connection, which counts the bytes received before a response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::BoxIo;

/// Maximum bytes read before a response starts: informational responses and the head. hyper reads up
/// to 256 KiB at once, including part of the body, before it reports the head, so this does not
/// limit the head itself.
const MAX_BYTES_BEFORE_RESPONSE: usize = 1024 * 1024;

/// The stream of a connection to upstream.
pub(crate) struct UpstreamStream {
    io: BoxIo,
    meter: Arc<Meter>,
}

/// Counts the bytes read since the state of a connection last changed.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    read: AtomicUsize,
    /// `usize::MAX` while a response's body is read.
    max_read: AtomicUsize,
}

impl Meter {
    /// Called when a request is sent. Upstream may send informational responses and a head.
    pub(crate) fn await_response(&self) {
        self.read.store(0, Ordering::Relaxed);
        self.max_read.store(MAX_BYTES_BEFORE_RESPONSE, Ordering::Relaxed);
    }

    /// Called when the response has started. Its body is not limited.
    pub(crate) fn begin_response(&self) {
        self.max_read.store(usize::MAX, Ordering::Relaxed);
    }

    /// Called when the response has ended. Upstream should not send before the next request.
    pub(crate) fn become_idle(&self) {
        self.read.store(0, Ordering::Relaxed);
    }

    /// The bytes read since then.
    pub(crate) fn read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }
}

impl UpstreamStream {
    pub(crate) fn new(io: BoxIo) -> (Self, Arc<Meter>) {
        let meter = Arc::<Meter>::default();
        meter.begin_response();
        (Self { io, meter: Arc::clone(&meter) }, meter)
    }
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.meter.read() > self.meter.max_read.load(Ordering::Relaxed) {
            let error = "too many informational responses, or response head too large";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        let filled = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.meter.read.fetch_add(buffer.filled().len() - filled, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
