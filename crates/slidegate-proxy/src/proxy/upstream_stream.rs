//! The stream of a connection to upstream, which counts what upstream sends before its response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::BoxIo;

/// What is read of a connection before a response begins: informational responses and the head.
/// hyper reads up to 256 KiB at once and a little of the body before it reports the head, so this is
/// no bound of the head itself.
const MAX_BYTES_BEFORE_RESPONSE: usize = 1024 * 1024;

/// The stream of a connection to upstream.
pub(crate) struct UpstreamStream {
    io: BoxIo,
    meter: Arc<Meter>,
}

/// What the stream of a connection has read since its state last changed.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    read: AtomicUsize,
    /// `usize::MAX` while a response's body is read.
    most: AtomicUsize,
}

impl Meter {
    /// A request is sent: upstream may send its head, and informational responses before it.
    pub(crate) fn await_response(&self) {
        self.read.store(0, Ordering::Relaxed);
        self.most.store(MAX_BYTES_BEFORE_RESPONSE, Ordering::Relaxed);
    }

    /// The response has begun: its body has no bound.
    pub(crate) fn begin_response(&self) {
        self.most.store(usize::MAX, Ordering::Relaxed);
    }

    /// The response has ended: upstream has nothing to send before the next request.
    pub(crate) fn become_idle(&self) {
        self.read.store(0, Ordering::Relaxed);
    }

    /// The bytes that were read since.
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
        if self.meter.read() > self.meter.most.load(Ordering::Relaxed) {
            let error = "too many informational responses, or a head that is too large";
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
