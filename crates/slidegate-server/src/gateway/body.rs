//! Bodies on their way through: never whole in memory, and never waited for without end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::pool::Lease;
use super::progress::{Flaw, Progress};

/// A body whose next piece may take so long and no longer.
pub(crate) struct Timed {
    body: Incoming,
    idle: Duration,
    /// Made when a piece is waited for the first time: most bodies never are.
    patience: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    /// For whoever waits until it is sent.
    progress: Option<Arc<Progress>>,
}

impl Timed {
    pub(crate) fn new(body: Incoming, idle: Duration) -> Self {
        Self { body, idle, patience: None, waiting: false, progress: None }
    }

    /// How far it comes from now on; none if there is nothing to come.
    pub(crate) fn progress(&mut self) -> Option<Arc<Progress>> {
        if self.progress.is_none() && !self.body.is_end_stream() {
            self.progress = Some(Arc::new(Progress::new()));
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

impl Drop for Timed {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.end();
        }
    }
}

/// Why a body ended before its end.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// Whoever sends it broke off.
    Broken(hyper::Error),
    /// Whoever sends it has stopped, and keeps the connection.
    Stalled,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => error.fmt(f),
            Self::Stalled => f.write_str("the rest of the body did not come in time"),
        }
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken(error) => Some(error),
            Self::Stalled => None,
        }
    }
}

impl Body for Timed {
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
                    progress.spoil(Flaw::Broken);
                }
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        if let Some(progress) = &self.progress {
            progress.await_client();
        }
        ready!(self.poll_patience(cx));
        if let Some(progress) = &self.progress {
            progress.spoil(Flaw::Stalled);
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
pub(crate) struct UpstreamBody(Kind);

enum Kind {
    /// With the connection that it comes over, which is free for others at its end.
    Streaming {
        body: Timed,
        lease: Option<Lease>,
    },
    Full(Option<Bytes>),
}

impl UpstreamBody {
    pub(crate) fn streaming(body: Timed, lease: Lease) -> Self {
        Self(Kind::Streaming { body, lease: Some(lease) })
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        Self(Kind::Full(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    pub(crate) fn empty() -> Self {
        Self(Kind::Full(None))
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Streaming { body, lease } => {
                let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                match &frame {
                    Some(Ok(_)) if !body.is_end_stream() => {}
                    Some(Err(_)) => lease.take().into_iter().for_each(Lease::fail),
                    _ => lease.take().into_iter().for_each(Lease::end),
                }
                Poll::Ready(frame)
            }
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Streaming { body, .. } => body.is_end_stream(),
            Kind::Full(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Streaming { body, .. } => body.size_hint(),
            Kind::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // Nobody reads a body that is empty, as of a response to HEAD.
        if let Kind::Streaming { body, lease } = &mut self.0
            && body.is_end_stream()
        {
            lease.take().into_iter().for_each(Lease::end);
        }
    }
}
