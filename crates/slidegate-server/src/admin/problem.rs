//! Problem details (RFC 9457).

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

/// A response with problem details.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let body = json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    let media_type = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, media_type, body.to_string()).into_response()
}

pub(super) async fn not_found() -> Response {
    problem(StatusCode::NOT_FOUND, "There is no such page. GET / tells what there is.")
}

pub(super) async fn method_not_allowed() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "This cannot be done here. GET / tells what can.")
}
