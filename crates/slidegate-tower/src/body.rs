//! The body of a response: the inner service's, or a refusal's.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use slidegate::Decision;

use crate::shared::SharedRefusal;

pin_project! {
    /// The inner service's body, or the bytes of a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
        pub(crate) decision: Option<Box<Decision>>,
        refusal: Option<Arc<SharedRefusal>>,
        pub(crate) lines: Vec<u8>,
    }
}

pin_project! {
    #[project = KindProj]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Refusal { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self::of(Kind::Inner { body })
    }

    pub(crate) fn refusal(bytes: Bytes) -> Self {
        Self::of(Kind::Refusal { bytes })
    }

    pub(crate) fn shared(refusal: Arc<SharedRefusal>) -> Self {
        Self { refusal: Some(refusal), ..Self::refusal(Bytes::new()) }
    }

    fn of(kind: Kind<B>) -> Self {
        Self { kind, decision: None, refusal: None, lines: Vec::new() }
    }

    /// The gate's decision, if the service was called [for a server](crate::RateLimit::for_server)
    /// and the decision was not taken yet.
    pub fn take_decision(&mut self) -> Option<Box<Decision>> {
        self.decision.take()
    }

    /// The refusal that the response is, if the service was called
    /// [for a server](crate::RateLimit::for_server) and many are told the same.
    ///
    /// Then it is all that there is of the response but for the status: there are no headers, and
    /// the body is empty.
    pub fn take_refusal(&mut self) -> Option<Arc<SharedRefusal>> {
        self.refusal.take()
    }

    /// The fields that tell where the client stands, if the service was called
    /// [for a server](crate::RateLimit::for_server) with a request of HTTP/1: lines, each with its
    /// end, that belong to the head of the response. They are among its headers if the inner service
    /// has sent such fields itself.
    pub fn take_lines(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lines)
    }
}

/// Of a response that the layer had no part in.
impl<B> From<B> for ResponseBody<B> {
    fn from(body: B) -> Self {
        Self::inner(body)
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(cx),
            KindProj::Refusal { bytes } if bytes.has_remaining() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes).into()))))
            }
            KindProj::Refusal { .. } => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Refusal { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
