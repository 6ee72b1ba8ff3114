//! The body of a question.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Full};

use super::validation::refuse;

/// The most bytes of a body: a hundred questions with long headers.
pub(crate) const MOST_BYTES: usize = 256 * 1024;
/// For all of a body. Callers are near, and what they send is small.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why there is no whole body.
enum BodyReadError {
    TooLarge,
    BrokenOff,
}

/// Reads a whole JSON body.
pub(crate) async fn read<B>(headers: &HeaderMap, body: B) -> Result<Bytes, Response<Full<Bytes>>>
where
    B: Body<Data = Bytes>,
{
    // It also keeps web pages out: a browser sends this type elsewhere only after asking.
    if !is_json(headers) {
        let detail = "expected Content-Type: application/json";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    if body.size_hint().lower() > MOST_BYTES as u64 {
        return Err(too_large());
    }
    let mut whole = pin!(whole(body));
    // A body that is there already needs no timer.
    let read = match poll_fn(|context| Poll::Ready(whole.as_mut().poll(context))).await {
        Poll::Ready(read) => Ok(read),
        Poll::Pending => tokio::time::timeout(DEADLINE, whole).await,
    };
    match read {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(BodyReadError::TooLarge)) => Err(too_large()),
        Ok(Err(BodyReadError::BrokenOff)) => {
            Err(refuse(StatusCode::BAD_REQUEST, "the body ended early"))
        }
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

/// All of a body. The usual one comes in one part, and is not copied.
async fn whole<B: Body<Data = Bytes>>(body: B) -> Result<Bytes, BodyReadError> {
    let mut body = pin!(body);
    let first = part(body.as_mut()).await?.unwrap_or_default();
    if body.is_end_stream() && first.len() <= MOST_BYTES {
        return Ok(first);
    }
    let mut whole = BytesMut::from(first);
    while whole.len() <= MOST_BYTES {
        match part(body.as_mut()).await? {
            Some(part) => whole.extend_from_slice(&part),
            None => return Ok(whole.freeze()),
        }
    }
    Err(BodyReadError::TooLarge)
}

/// The next part of a body.
async fn part<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
) -> Result<Option<Bytes>, BodyReadError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyReadError::BrokenOff)?;
        if let Ok(part) = frame.into_data() {
            return Ok(Some(part));
        }
    }
    Ok(None)
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return false };
    let essence = value.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn too_large() -> Response<Full<Bytes>> {
    let detail = format!("the body has more than {MOST_BYTES} bytes");
    refuse(StatusCode::PAYLOAD_TOO_LARGE, &detail)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Context;

    use http::HeaderValue;
    use http_body::Frame;

    use super::*;

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
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, json)]);
        let read = read(&headers, Parts(parts.iter().copied().collect())).await;
        read.map(|body| body.len()).map_err(|refusal| refusal.status().as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn all_parts_are_read_and_no_more_than_may_be() {
        use Part::{Break, Data, Silence, Trailers, Wait};
        for (parts, expected) in [
            (&[][..], Ok(0)),
            (&[Data(7)], Ok(7)),
            (&[Wait, Data(7), Wait], Ok(7)),
            (&[Data(7), Wait, Data(0), Data(5), Trailers], Ok(12)),
            (&[Data(MOST_BYTES)], Ok(MOST_BYTES)),
            (&[Data(MOST_BYTES + 1)], Err(413)),
            (&[Data(MOST_BYTES), Data(1), Silence], Err(413)),
            (&[Data(7), Break], Err(400)),
            (&[Wait, Break], Err(400)),
            (&[Silence], Err(408)),
            (&[Data(7), Silence], Err(408)),
        ] {
            assert_eq!(outcome(parts).await, expected, "{} parts", parts.len());
        }
    }
}
