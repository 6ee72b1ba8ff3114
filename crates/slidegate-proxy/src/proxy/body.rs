//! The body of a response, which drives its upstream connection.

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

/// Bytes of a response forwarded before the task yields.
const YIELD_AFTER_BYTES: usize = 64 * 1024;

/// The body of a response: from upstream or from the gateway.
pub enum ProxyBody {
    /// Streamed from upstream.
    Upstream(Box<UpstreamBody>),
    /// A complete body; `None` if it is empty or was sent.
    Full(Option<Bytes>),
}

/// The body of upstream's response.
pub struct UpstreamBody {
    incoming: Incoming,
    /// `None` if another task drives it, as with HTTP/2.
    connection: Option<PooledConnection>,
    idle: Duration,
    timeout: IdleTimeout,
    /// Bytes forwarded since the task last yielded.
    bytes_since_yield: usize,
    on_broken: Arc<dyn Fn() + Send + Sync>,
    permit: Option<InFlightPermit>,
    /// Returned after hyper has written the frames before it.
    error: Option<UpstreamBodyError>,
}

/// Why a response ended early.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamBodyError {
    /// The connection failed, or the body is malformed.
    #[error("upstream's response ended early")]
    Broken(#[source] hyper::Error),
    /// It stalled for longer than the idle timeout.
    #[error("upstream's response stalled")]
    Stalled,
}

impl ProxyBody {
    /// A complete body.
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
        Self {
            incoming,
            connection,
            idle,
            timeout,
            bytes_since_yield: 0,
            on_broken,
            permit,
            error: None,
        }
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
        if self.bytes_since_yield >= YIELD_AFTER_BYTES {
            self.bytes_since_yield = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match ready!(self.poll_incoming(cx)) {
            Some(Ok(frame)) => {
                self.bytes_since_yield += frame.data_ref().map_or(0, Bytes::len);
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
                // When a body fails, hyper drops its write buffer. It flushes the buffer before it
                // polls the body again.
                self.error = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Called when the response is complete. Returns the connection to the pool once upstream has
    /// read all of the request.
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
        // An empty body, such as that of a response to HEAD, is never polled.
        if self.incoming.is_end_stream() {
            self.end();
        }
    }
}
