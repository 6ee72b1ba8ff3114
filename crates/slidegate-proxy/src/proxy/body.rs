//! The body of a response, which drives the connection that it comes over.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::in_flight::InFlightPermit;
use super::pool::PooledConnection;
use crate::net::IdleTimeout;

/// How much of a response is passed on before other connections have a turn.
const TURN_BYTES: usize = 64 * 1024;

/// The body of a response: upstream's, or the gateway's own.
pub enum ProxyBody {
    /// Upstream's, as it comes.
    Upstream(Box<UpstreamBody>),
    /// All of one that is known; none if it is empty or was sent.
    Full(Option<Bytes>),
}

/// The body of upstream's response.
pub struct UpstreamBody {
    incoming: Incoming,
    /// None if another task drives it, as with HTTP/2.
    connection: Option<PooledConnection>,
    idle: Duration,
    timeout: IdleTimeout,
    /// Passed on since other connections had a turn.
    turn_bytes: usize,
    on_broken: Arc<dyn Fn() + Send + Sync>,
    permit: Option<InFlightPermit>,
    /// Passed on after what came before it.
    error: Option<UpstreamBodyError>,
}

/// Why a response ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamBodyError {
    /// It broke off.
    #[error("upstream broke off its response")]
    Broken(#[source] hyper::Error),
    /// It stopped for longer than the idle timeout.
    #[error("upstream stopped in the middle of its response")]
    Stalled,
}

impl ProxyBody {
    /// A body that is known.
    pub fn full(bytes: Bytes) -> Self {
        Self::Full(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// No body.
    pub(crate) fn empty() -> Self {
        Self::Full(None)
    }
}

impl UpstreamBody {
    pub(crate) fn new(
        incoming: Incoming,
        connection: Option<PooledConnection>,
        idle: Duration,
        on_broken: Arc<dyn Fn() + Send + Sync>,
        permit: InFlightPermit,
    ) -> Self {
        let timeout = IdleTimeout::default();
        let permit = Some(permit);
        Self { incoming, connection, idle, timeout, turn_bytes: 0, on_broken, permit, error: None }
    }

    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let mut frame = Pin::new(&mut self.incoming).poll_frame(cx);
        if frame.is_pending()
            && let Some(connection) = &mut self.connection
        {
            connection.poll(cx);
            frame = Pin::new(&mut self.incoming).poll_frame(cx);
        }
        if let Poll::Ready(frame) = frame {
            self.timeout.stop();
            return Poll::Ready(frame.map(|frame| frame.map_err(UpstreamBodyError::Broken)));
        }
        if !self.timeout.is_set() {
            self.timeout.set(Instant::now() + self.idle);
        }
        self.timeout.poll(cx).map(|()| Some(Err(UpstreamBodyError::Stalled)))
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match ready!(self.poll_incoming(cx)) {
            Some(Ok(frame)) => {
                self.turn_bytes += frame.data_ref().map_or(0, Bytes::len);
                if self.incoming.is_end_stream() || frame.is_trailers() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            None => {
                self.end();
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                (self.on_broken)();
                self.connection = None;
                self.permit = None;
                // When a body fails, hyper drops what it has not written. It writes before it polls
                // the body again.
                self.error = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// The response is complete: its connection is free for others, once upstream has all of the
    /// request.
    fn end(&mut self) {
        let permit = self.permit.take();
        let Some(mut connection) = self.connection.take() else { return };
        if connection.finish() {
            return;
        }
        let idle = self.idle;
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let rest = poll_fn(|cx| connection.poll_rest(cx));
                let _ = timeout(idle, rest).await;
                drop(permit);
            });
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        match &mut *self {
            Self::Upstream(body) => body.poll_frame(cx),
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Upstream(body) => body.incoming.is_end_stream(),
            Self::Full(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Upstream(body) => body.incoming.size_hint(),
            Self::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // An empty body, as of a response to HEAD, is never polled.
        if self.incoming.is_end_stream() {
            self.end();
        }
    }
}
