//! Bodies on their way through: never whole in memory, and never waited for without end.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, mem};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};

use super::http1::IncomingBody;
use super::pool::PooledConnection;
use super::progress::{BodyProgress, UploadError};
use crate::listener::RequestBody;

/// A body with a timeout for each part.
#[derive(Debug)]
pub(crate) struct Timed<B = RequestBody> {
    body: B,
    idle: Duration,
    /// Made when a piece is waited for the first time: most bodies never are.
    patience: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    /// Shared with the task that awaits the response.
    progress: Option<Arc<BodyProgress>>,
}

impl<B: Body> Timed<B> {
    pub(crate) fn new(body: B, idle: Duration) -> Self {
        Self { body, idle, patience: None, waiting: false, progress: None }
    }

    /// How far it comes from now on; none if there is nothing to come.
    pub(crate) fn progress(&mut self) -> Option<Arc<BodyProgress>> {
        if self.progress.is_none() && !self.body.is_end_stream() {
            self.progress = Some(Arc::new(BodyProgress::new()));
        }
        self.progress.clone()
    }

    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle = self.idle;
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(idle)));
        if !self.waiting {
            self.waiting = true;
            patience.as_mut().reset(Instant::now() + idle);
        }
        patience.as_mut().poll(cx)
    }
}

/// Why a body ended before its end.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The sender closed the connection.
    Broken(Box<dyn Error + Send + Sync>),
    /// Upstream closed its connection.
    Cut,
    /// Upstream sends what are no chunks.
    Malformed,
    /// It is longer or shorter than its declared length.
    Length,
    /// The client broke off its request while the response came.
    Upload,
    /// The sender stalled with the connection open.
    Stalled,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => error.fmt(f),
            Self::Cut => f.write_str("the connection was closed before the end of the body"),
            Self::Malformed => f.write_str("the body is not in chunks"),
            Self::Length => f.write_str("the body does not have the length that was said"),
            Self::Upload => f.write_str("the request body ended early"),
            Self::Stalled => f.write_str("the rest of the body did not come in time"),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Broken(error) => Some(&**error),
            Self::Cut | Self::Malformed | Self::Length | Self::Upload | Self::Stalled => None,
        }
    }
}

impl BodyError {
    /// What the client did, if it is a request's body.
    pub(crate) fn flaw(&self) -> UploadError {
        if matches!(self, Self::Stalled) { UploadError::Stalled } else { UploadError::Broken }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.waiting = false;
            if let Some(progress) = &self.progress {
                progress.made();
                if matches!(frame, Some(Err(_))) {
                    progress.spoil(UploadError::Broken);
                }
            }
            return Poll::Ready(
                frame.map(|frame| frame.map_err(|error| BodyError::Broken(error.into()))),
            );
        }
        if let Some(progress) = &self.progress {
            progress.await_client();
        }
        ready!(self.poll_patience(cx));
        if let Some(progress) = &self.progress {
            progress.spoil(UploadError::Stalled);
        }
        Poll::Ready(Some(Err(BodyError::Stalled)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response: upstream's, or the gateway's own.
pub(crate) struct UpstreamBody(UpstreamBodyKind);

enum UpstreamBodyKind {
    /// With the connection that it comes over, which is free for others at its end.
    Http1 {
        body: IncomingBody,
        pooled: PooledConnection,
    },
    Http2 {
        body: Timed<Incoming>,
        pooled: PooledConnection,
    },
    Full(Option<Bytes>),
}

impl UpstreamBody {
    pub(crate) fn http1(body: IncomingBody, pooled: PooledConnection) -> Self {
        Self(UpstreamBodyKind::Http1 { body, pooled })
    }

    pub(crate) fn http2(body: Timed<Incoming>, pooled: PooledConnection) -> Self {
        Self(UpstreamBodyKind::Http2 { body, pooled })
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        Self(UpstreamBodyKind::Full(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    pub(crate) fn empty() -> Self {
        Self(UpstreamBodyKind::Full(None))
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let (frame, pooled) = match &mut self.0 {
            UpstreamBodyKind::Http1 { body, pooled } => {
                (ready!(Pin::new(body).poll_frame(cx)), pooled)
            }
            UpstreamBodyKind::Http2 { body, pooled } => {
                (ready!(Pin::new(body).poll_frame(cx)), pooled)
            }
            UpstreamBodyKind::Full(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
        };
        if matches!(&frame, Some(Err(error)) if !matches!(error, BodyError::Upload)) {
            pooled.fail();
        }
        if matches!(frame, None | Some(Err(_))) || self.is_end_stream() {
            self.let_go();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            UpstreamBodyKind::Http1 { body, .. } => body.is_end_stream(),
            UpstreamBodyKind::Http2 { body, .. } => body.is_end_stream(),
            UpstreamBodyKind::Full(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            UpstreamBodyKind::Http1 { body, .. } => body.size_hint(),
            UpstreamBodyKind::Http2 { body, .. } => body.size_hint(),
            UpstreamBodyKind::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

impl UpstreamBody {
    /// Gives the connection back once nothing more comes over it.
    fn let_go(&mut self) {
        let UpstreamBodyKind::Http1 { body, pooled } =
            mem::replace(&mut self.0, UpstreamBodyKind::Full(None))
        else {
            return;
        };
        if body.is_end_stream() && body.is_sending() {
            finish_sending(body, pooled);
        } else if let Some(connection) = body.into_connection() {
            pooled.end(connection);
        }
    }
}

/// Lets upstream have the rest of a request that it has answered already.
fn finish_sending(body: IncomingBody, pooled: PooledConnection) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            body.finish_sending().await;
            drop(pooled);
        });
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // An empty body, as of a response to HEAD, is never polled.
        if self.is_end_stream() {
            self.let_go();
        }
    }
}
