//! Connections of protocols other than HTTP, with the same limits and timeouts.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::activity::{Activity, InFlight, Unwanted};
use super::connection::{OpenConnection, Socket};
use super::connections::{Admitted, ConnectionSlot, count};
use super::idle::IdleTimeout;
use super::lifecycle::DRAIN_GRACE;
use super::stream::BoxIo;
use super::{Accepted, Protocol, Settings};
use crate::Timeouts;

/// Size of one read.
const READ_BYTES: usize = 8 * 1024;

/// How long to read from a client that still sends after the last reply: if the socket were closed
/// at once, the client could lose that reply.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves the raw connections of one worker.
pub trait RawHandler: Send + Sync + 'static {
    /// Serves a connection until it should close. An error closes it immediately.
    fn serve(&self, connection: &mut RawConnection) -> impl Future<Output = io::Result<()>> + Send;
}

/// A client's connection.
pub struct RawConnection {
    /// What is known about the connection.
    pub accepted: Accepted,
    /// The timeouts of the listener.
    pub timeouts: Timeouts,
    io: BoxIo,
    activity: Arc<Activity>,
    timeout: IdleTimeout,
    /// When the connection closes if it stays idle. Set while the listener drains.
    drained_at: Option<Instant>,
    _slot: ConnectionSlot,
}

impl RawConnection {
    /// Reads more bytes until `deadline`. Returns 0 at EOF, and for an idle connection (one with an
    /// empty `buffer`) also when it is evicted or drained.
    pub async fn read(
        &mut self,
        buffer: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        let is_idle = buffer.is_empty();
        if !is_idle {
            self.activity.received();
        }
        buffer.reserve(READ_BYTES);
        let Self { io, activity, timeout, drained_at, .. } = self;
        poll_fn(|cx| {
            if is_idle && drained_at.is_some_and(|at| at <= Instant::now()) {
                return Poll::Ready(Ok(0));
            }
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *io), cx, buffer) {
                return Poll::Ready(read);
            }
            match activity.driven_by(cx.waker()) {
                Some(Unwanted::Evicted) if is_idle => return Poll::Ready(Ok(0)),
                Some(Unwanted::Draining) => {
                    drained_at.get_or_insert_with(|| Instant::now() + DRAIN_GRACE);
                }
                Some(Unwanted::Evicted) | None => {}
            }
            let drained_at = drained_at.filter(|_| is_idle);
            match drained_at.into_iter().chain(deadline).min() {
                Some(deadline) => timeout.set(deadline),
                None => timeout.stop(),
            }
            timeout.poll(cx).map(|()| match drained_at {
                Some(at) if deadline.is_none_or(|deadline| at <= deadline) => Ok(0),
                _ => Err(io::ErrorKind::TimedOut.into()),
            })
        })
        .await
    }

    /// Records that requests were read. They are in flight until the result is dropped.
    pub fn begin(&self) -> InFlight {
        self.activity.begin()
    }

    /// Writes all bytes. Fails if the client reads nothing for the idle timeout.
    pub async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Self { io, timeout, timeouts, .. } = self;
        while !bytes.is_empty() {
            let mut is_waiting = false;
            let written = poll_fn(|cx| {
                if let Poll::Ready(written) = Pin::new(&mut *io).poll_write(cx, bytes) {
                    return Poll::Ready(written);
                }
                if !is_waiting {
                    is_waiting = true;
                    timeout.set(Instant::now() + timeouts.idle);
                }
                timeout.poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            });
            match written.await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                length => bytes = &bytes[length..],
            }
        }
        io.flush().await
    }

    /// Closes the connection, discarding what the client sends within the linger timeout.
    pub async fn close(&mut self) -> io::Result<()> {
        self.io.shutdown().await?;
        let deadline = Some(Instant::now() + LINGER_TIMEOUT);
        let mut dropped = BytesMut::new();
        while let Ok(1..) = self.read(&mut dropped, deadline).await {
            dropped.clear();
        }
        Ok(())
    }
}

/// Serves the connections of one worker.
pub(super) struct RawServer<H> {
    pub(super) settings: Settings,
    pub(super) handler: H,
}

impl<H: RawHandler> Protocol for RawServer<H> {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    async fn serve(self: Arc<Self>, socket: Socket, admitted: Admitted) {
        let activity = Arc::new(Activity::new());
        let OpenConnection { io, accepted, slot, .. } =
            match self.settings.open(socket, admitted, &activity).await {
                Ok(open) => open,
                Err(error) => return self.settings.report(error),
            };
        let mut connection = RawConnection {
            accepted,
            timeouts: self.settings.timeouts.clone(),
            io,
            activity,
            timeout: IdleTimeout::default(),
            drained_at: None,
            _slot: slot,
        };
        match self.handler.serve(&mut connection).await {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                count(&self.settings.connections.counts.timeouts);
            }
            Err(error) => tracing::debug!(%error, "connection failed"),
            Ok(()) => {}
        }
    }
}
