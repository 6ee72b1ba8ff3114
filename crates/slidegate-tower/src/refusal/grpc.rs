//! Refusals as gRPC has them: status 200, and the truth in `grpc-status`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::{BufMut, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};

use crate::refusal::refused::Refused;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Whether the request is a gRPC call: `application/grpc`, or with a suffix such as `+proto`.
pub(crate) fn is_call(request: &HeaderMap) -> bool {
    let content_type = request.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// A response of headers only, which are trailers at once.
pub(super) fn response(refused: &Refused<'_>) -> Response<Bytes> {
    let status = refused.reason().wording().grpc_status;
    // Our messages have no character that would have to be percent-encoded.
    let message = refused.message();
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, CONTENT_TYPE);
    headers.insert(GRPC_STATUS, u16::from(status).into());
    if let Some(after_s) = refused.retry_after_s() {
        // gRPC wants binary headers in Base64 without padding.
        let details = STANDARD_NO_PAD.encode(details(status, &message, after_s));
        headers.insert(GRPC_STATUS_DETAILS, value(&details));
    }
    headers.insert(GRPC_MESSAGE, value(&message));
    response
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("messages and Base64 are visible ASCII")
}

/// A `google.rpc.Status` with a `google.rpc.RetryInfo` in it.
fn details(status: u8, message: &str, retry_after_s: u64) -> Vec<u8> {
    let mut delay = Vec::new();
    put_varint_field(&mut delay, 1, retry_after_s);
    let mut retry_info = Vec::new();
    put_bytes_field(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    put_bytes_field(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    put_bytes_field(&mut any, 2, &retry_info);
    let mut details = Vec::new();
    put_varint_field(&mut details, 1, status.into());
    put_bytes_field(&mut details, 2, message.as_bytes());
    put_bytes_field(&mut details, 3, &any);
    details
}

fn put_varint_field(message: &mut Vec<u8>, field: u8, value: u64) {
    message.put_u8(field << 3);
    put_varint(message, value);
}

fn put_bytes_field(message: &mut Vec<u8>, field: u8, value: &[u8]) {
    message.put_u8(field << 3 | 2);
    put_varint(message, value.len() as u64);
    message.put_slice(value);
}

fn put_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    message.put_u8(value as u8);
}
