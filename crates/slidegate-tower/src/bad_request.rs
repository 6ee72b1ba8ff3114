//! The answer to a request that could be read in several ways.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use slidegate::policy::BadRequest;

/// The response to a request that [`Gate::check`](slidegate::Gate::check) refuses: `400`, with
/// problem details of RFC 9457. The middleware sends it by itself.
pub fn bad_request(error: &BadRequest) -> Response<Bytes> {
    let status = StatusCode::BAD_REQUEST;
    let body = serde_json::json!({
        "type": "about:blank",
        "title": "Bad Request",
        "status": status.as_u16(),
        "detail": error.to_string(),
    });
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let json = HeaderValue::from_static("application/problem+json");
    headers.insert(header::CONTENT_TYPE, json);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
