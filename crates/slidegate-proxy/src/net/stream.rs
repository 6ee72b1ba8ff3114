//! The stream of a client: records reads and writes, and closes connections so that the client can
//! read its last response.
//!
//! Only hyper parses requests. The stream forwards every byte unchanged; it delays only the end of
//! the client's side while a request is in flight.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::activity::Activity;
use super::connections::ConnectionSlot;
use super::idle::IdleTimeout;

/// A socket, or TLS over one.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Io for T {}

pub(crate) type BoxIo = Box<dyn Io>;

/// How long a client that has closed its side can wait for a response. A disconnected client looks
/// the same until something is written to it, and its request should not occupy upstream for long.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(5);

/// Size of one read while lingering.
const LINGER_READ_BYTES: usize = 8192;

/// Limits for reading from a client that still sends after the last response. If the socket were
/// closed at once, the kernel would reset the connection, and the client could lose the response
/// that it has not read yet.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 64 << 20;

/// The stream of a client. It holds the connection's slot, also after an upgrade.
pub(super) struct ClientStream {
    io: BoxIo,
    /// Read to detect the HTTP version, and not forwarded yet.
    read_ahead: BytesMut,
    activity: Arc<Activity>,
    /// Set when the client has closed its side.
    half_closed: Option<IdleTimeout>,
    linger: Option<Linger>,
    _slot: ConnectionSlot,
}

struct Linger {
    timeout: IdleTimeout,
    dropped: BytesMut,
    left: usize,
}

impl ClientStream {
    pub(super) fn new(
        io: BoxIo,
        read_ahead: BytesMut,
        activity: Arc<Activity>,
        slot: ConnectionSlot,
    ) -> Self {
        Self { io, read_ahead, activity, half_closed: None, linger: None, _slot: slot }
    }

    fn poll_io(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let filled = buffer.filled().len();
        if self.read_ahead.is_empty() {
            ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        } else {
            let length = self.read_ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.read_ahead[..length]);
            self.read_ahead.advance(length);
        }
        Poll::Ready(Ok(buffer.filled().len() - filled))
    }

    /// Reports EOF once no request is in flight, or after `HALF_CLOSED_TIMEOUT`. On EOF hyper drops
    /// a request in flight immediately.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let timeout =
            self.half_closed.get_or_insert_with(|| IdleTimeout::after(HALF_CLOSED_TIMEOUT));
        if self.activity.has_in_flight() {
            ready!(timeout.poll(cx));
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and discards received bytes; waits for more if the last request is incomplete.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| Linger {
            timeout: IdleTimeout::after(LINGER_TIMEOUT),
            dropped: BytesMut::with_capacity(LINGER_READ_BYTES),
            left: MAX_LINGER_BYTES,
        });
        loop {
            linger.dropped.clear();
            match poll_read_buf(Pin::new(&mut self.io), cx, &mut linger.dropped) {
                Poll::Ready(Ok(length)) if length > 0 && length <= linger.left => {
                    linger.left -= length;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.activity.is_mid_request() => return linger.timeout.poll(cx),
                Poll::Pending => return Poll::Ready(()),
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
        if self.activity.is_opaque() {
            return self.poll_io(cx, buffer).map_ok(drop);
        }
        if self.half_closed.is_none() {
            let length = ready!(self.poll_io(cx, buffer))?;
            if length > 0 || buffer.remaining() == 0 {
                self.activity.received();
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_end(cx)
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
        if self.activity.is_opaque() {
            return Poll::Ready(Ok(()));
        }
        self.poll_linger(cx).map(Ok)
    }
}
