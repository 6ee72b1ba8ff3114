//! What a client is answered.

use std::sync::Arc;

use ::http::Response;
use bytes::Bytes;
use http_body_util::{Either, Full};
use slidegate_tower::SharedRefusal;

/// What a client is answered.
#[derive(Debug)]
pub(crate) enum Message<B> {
    Response(Response<B>),
    /// What others are told too, ready to be sent.
    Refusal(Arc<SharedRefusal>),
}

impl<B> From<Response<B>> for Message<B> {
    fn from(response: Response<B>) -> Self {
        Self::Response(response)
    }
}

impl<B> Message<B> {
    /// The whole response, for whoever sends it in another form.
    pub(super) fn into_response(self) -> Response<Either<B, Full<Bytes>>> {
        match self {
            Self::Response(response) => response.map(Either::Left),
            Self::Refusal(refusal) => {
                refusal.response().clone().map(|bytes| Either::Right(Full::new(bytes)))
            }
        }
    }
}
