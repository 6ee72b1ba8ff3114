//! The body of a question.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};

use super::problem::refuse;

/// The most bytes of a body: a hundred questions with long headers.
pub(crate) const MOST_BYTES: usize = 256 * 1024;
/// For all of a body. Callers are near, and what they send is small.
const DEADLINE: Duration = Duration::from_secs(10);

/// Reads a whole JSON body, or says why not.
pub(crate) async fn read<B>(headers: &HeaderMap, body: B) -> Result<Bytes, Response<Full<Bytes>>>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    // It also keeps web pages out: a browser sends this type elsewhere only after asking.
    if !is_json(headers) {
        let detail = "expected Content-Type: application/json";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    if body.size_hint().lower() > MOST_BYTES as u64 {
        return Err(too_large());
    }
    let whole = Limited::new(body, MOST_BYTES).collect();
    match tokio::time::timeout(DEADLINE, whole).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(refuse(StatusCode::BAD_REQUEST, "the body broke off")),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
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
