//! What a client is answered.

use std::sync::Arc;

use ::http::{HeaderName, HeaderValue, Response};
use bytes::Bytes;
use http_body_util::{Either, Full};
use slidegate_tower::SharedRefusal;

/// What a client is answered.
#[derive(Debug)]
pub(crate) enum Message<B> {
    Response {
        /// In a box, because it is large and passes many hands.
        response: Box<Response<B>>,
        /// More fields, as lines of HTTP/1.
        lines: Vec<u8>,
    },
    /// What others are told too, ready to be sent.
    Refusal(Arc<SharedRefusal>),
}

impl<B> From<Response<B>> for Message<B> {
    fn from(response: Response<B>) -> Self {
        Self::Response { response: Box::new(response), lines: Vec::new() }
    }
}

impl<B> Message<B> {
    /// The whole response, for whoever sends it in another form.
    pub(super) fn into_response(self) -> Response<Either<B, Full<Bytes>>> {
        match self {
            Self::Response { mut response, lines } => {
                response.headers_mut().extend(fields(&lines));
                (*response).map(Either::Left)
            }
            Self::Refusal(refusal) => {
                refusal.response().clone().map(|bytes| Either::Right(Full::new(bytes)))
            }
        }
    }
}

/// The fields of lines.
fn fields(lines: &[u8]) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.trim_ascii();
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((name, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_fields_too() {
        let mut response = Response::new(());
        response.headers_mut().insert("server", HeaderValue::from_static("x"));
        let lines = b"ratelimit: \"a\";r=1;t=2\r\nx-ratelimit-limit: 5\r\n".to_vec();
        let message = Message::Response { response: Box::new(response), lines };
        let response = message.into_response();
        let fields =
            response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let expected: [(&str, &[u8]); 3] =
            [("server", b"x"), ("ratelimit", b"\"a\";r=1;t=2"), ("x-ratelimit-limit", b"5")];
        assert!(fields.eq(expected), "{:?}", response.headers());
        assert_eq!(super::fields(b"").count(), 0);
    }
}
