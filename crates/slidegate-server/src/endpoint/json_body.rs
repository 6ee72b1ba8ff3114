//! JSON bodies of requests to the admin and decision APIs.

use std::pin::pin;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use crate::endpoint::problem::Problem;

/// For all of a body. Callers are near, and what they send is small.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Extracts an object from a JSON body of at most so many bytes.
#[derive(Debug)]
pub(crate) struct JsonObject<T, const MAX_BYTES: usize>(pub(crate) T);

impl<S, T, const MAX_BYTES: usize> FromRequest<S> for JsonObject<T, MAX_BYTES>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        read_object(request, MAX_BYTES).await.map(Self)
    }
}

/// Reads an object from a JSON body of at most `max_bytes`.
pub(crate) async fn read_object<B, T>(
    request: http::Request<B>,
    max_bytes: usize,
) -> Result<T, Problem>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    T: DeserializeOwned,
{
    let body = read(request, max_bytes).await?;
    if is_list(&body) {
        return Err(Problem::invalid_body("expected an object, not a list"));
    }
    parse(&body)
}

/// Reads a whole body of at most `max_bytes`, whose content type must be JSON.
pub(crate) async fn read<B>(request: http::Request<B>, max_bytes: usize) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    // It also keeps web pages out: a browser sends this type to another origin only after a
    // preflight request.
    if !is_json(request.headers()) {
        let detail = "expected Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let too_large = || {
        let detail = format!("the body has more than {max_bytes} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    // Before any of it is read, and before a client that waits for `100 Continue` gets one.
    if request.body().size_hint().lower() > max_bytes as u64 {
        return Err(too_large());
    }
    let body = pin!(Limited::new(request.into_body(), max_bytes));
    match timeout(TIMEOUT, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::bad_request("the body ended early")),
        Err(_) => {
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 10 s"))
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Whether a body is a list. Where an object is expected, serde reads a list as the values of the
/// object's members.
pub(crate) fn is_list(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"[")
}

/// Parses a body. The error names the member that is wrong: its path is tracked only when the body is
/// parsed again after a mistake.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if let Ok(parsed) = serde_json::from_slice(body) {
        return Ok(parsed);
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut json);
    let parsed = parsed.map_err(|error| match error.inner().classify() {
        Category::Data => Problem::from(&error),
        _ => syntax_error(error.inner()),
    })?;
    json.end().map_err(|error| syntax_error(&error))?;
    Ok(parsed)
}

/// Where a syntax error is, without any of the text, which may be a secret.
fn syntax_error(error: &serde_json::Error) -> Problem {
    let what = if error.classify() == Category::Eof { "incomplete JSON" } else { "not JSON" };
    let (line, column) = (error.line(), error.column());
    Problem::invalid_body(format_args!("{what}, at line {line} column {column}"))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    const MAX_BYTES: usize = 1000;

    /// A body that comes in parts, and does not say how long it is.
    struct Parts(VecDeque<Part>);

    #[derive(Clone, Copy)]
    enum Part {
        Data(usize),
        Trailers,
        Wait,
        Break,
        Silence,
    }

    impl Body for Parts {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(Part::Data(bytes)) => {
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'1'; bytes])))))
                }
                Some(Part::Trailers) => Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new())))),
                Some(Part::Break) => Poll::Ready(Some(Err("broken"))),
                Some(Part::Silence) => {
                    self.0.push_front(Part::Silence);
                    Poll::Pending
                }
                Some(Part::Wait) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        }
    }

    /// The bytes that were read, or the status of the refusal.
    async fn outcome(parts: &[Part]) -> Result<usize, u16> {
        let body = axum::body::Body::new(Parts(parts.iter().copied().collect()));
        let request = Request::post("/").header("content-type", "application/json");
        let read = read(request.body(body).unwrap(), MAX_BYTES).await;
        read.map(|body| body.len()).map_err(|refusal| refusal.status.as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn all_parts_are_read_and_no_more_than_may_be() {
        use Part::{Break, Data, Silence, Trailers, Wait};
        for (parts, expected) in [
            (&[][..], Ok(0)),
            (&[Data(7)], Ok(7)),
            (&[Wait, Data(7), Wait], Ok(7)),
            (&[Data(7), Wait, Data(0), Data(5), Trailers], Ok(12)),
            (&[Data(MAX_BYTES)], Ok(MAX_BYTES)),
            (&[Data(MAX_BYTES + 1)], Err(413)),
            (&[Data(MAX_BYTES), Data(1), Silence], Err(413)),
            (&[Data(7), Break], Err(400)),
            (&[Wait, Break], Err(400)),
            (&[Silence], Err(408)),
            (&[Data(7), Silence], Err(408)),
        ] {
            assert_eq!(outcome(parts).await, expected, "{} parts", parts.len());
        }
    }
}
