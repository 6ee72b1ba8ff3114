//! What a client is answered.

use std::sync::Arc;

use ::http::Response;
use bytes::Bytes;
use http_body_util::{Either, Full};
use slidegate_tower::SharedRefusal;

/// What a client is answered.
#[derive(Debug)]
pub(crate) enum ServerResponse<B> {
    Response {
        /// In a box, because it is large and passes many hands.
        response: Box<Response<B>>,
        /// More fields, as lines. Only requests of HTTP/1 are answered with them.
        lines: Vec<u8>,
    },
    /// What others are told too, ready to be sent.
    Refusal(Arc<SharedRefusal>),
}

impl<B> From<Response<B>> for ServerResponse<B> {
    fn from(response: Response<B>) -> Self {
        Self::Response { response: Box::new(response), lines: Vec::new() }
    }
}

impl<B> ServerResponse<B> {
    /// The whole response, for HTTP/2.
    pub(super) fn into_response(self) -> Response<Either<B, Full<Bytes>>> {
        match self {
            Self::Response { response, lines } => {
                debug_assert!(lines.is_empty(), "lines are for HTTP/1");
                (*response).map(Either::Left)
            }
            Self::Refusal(refusal) => {
                refusal.response().clone().map(|bytes| Either::Right(Full::new(bytes)))
            }
        }
    }
}
