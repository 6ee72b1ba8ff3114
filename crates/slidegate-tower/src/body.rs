//! The body of a response: the inner service's, or a refusal's.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::aside::Aside;

pin_project! {
    /// The inner service's body, or the bytes of a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
        pub(crate) aside: Option<Box<Aside>>,
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

    fn of(kind: Kind<B>) -> Self {
        Self { kind, aside: None }
    }

    /// What a server is to send and to know beside the headers and the body, if the service was
    /// called [for a server](crate::RateLimit::for_server) and it was not taken yet.
    pub fn take_aside(&mut self) -> Option<Box<Aside>> {
        self.aside.take()
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
