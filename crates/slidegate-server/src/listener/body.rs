//! The body of a request, however it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::http1::Upload;

/// The body of a request.
#[derive(Debug)]
pub(crate) struct RequestBody(RequestBodyKind);

#[derive(Debug)]
enum RequestBodyKind {
    /// All that there is has come with the head, and is not taken yet.
    Whole(Option<Bytes>),
    /// It comes piece by piece.
    Upload(Upload),
    Http2(Incoming),
}

/// Why a request's body ended before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestBodyError {
    #[error("the client closed the connection before the end of the body")]
    Cut,
    #[error("the body is not in chunks")]
    Malformed,
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

impl Default for RequestBody {
    /// An empty one.
    fn default() -> Self {
        Self(RequestBodyKind::Whole(None))
    }
}

impl RequestBody {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self(RequestBodyKind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    pub(super) fn upload(upload: Upload) -> Self {
        Self(RequestBodyKind::Upload(upload))
    }
}

impl From<Incoming> for RequestBody {
    fn from(body: Incoming) -> Self {
        Self(RequestBodyKind::Http2(body))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match &mut self.0 {
            RequestBodyKind::Whole(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            RequestBodyKind::Upload(upload) => upload.poll_frame(cx),
            RequestBodyKind::Http2(body) => {
                let frame = Pin::new(body).poll_frame(cx);
                frame.map(|frame| frame.map(|frame| frame.map_err(RequestBodyError::Http2)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            RequestBodyKind::Whole(bytes) => bytes.is_none(),
            RequestBodyKind::Upload(upload) => upload.has_ended(),
            RequestBodyKind::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            RequestBodyKind::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            RequestBodyKind::Upload(upload) => upload.size_hint(),
            RequestBodyKind::Http2(body) => body.size_hint(),
        }
    }
}
