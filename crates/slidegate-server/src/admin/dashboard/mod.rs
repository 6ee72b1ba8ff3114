//! The page for browsers. It holds no data: what it shows and does goes through the API, with the
//! API's own checks.

use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::endpoint::problem::Problem;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const PAGE: &str = include_str!("index.html");

/// What the page is made of, by name.
const FILES: [(&str, &str, &str); 14] = [
    ("style.css", CSS, include_str!("style.css")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("account.js", SCRIPT, include_str!("account.js")),
    ("accounts.js", SCRIPT, include_str!("accounts.js")),
    ("act.js", SCRIPT, include_str!("act.js")),
    ("api.js", SCRIPT, include_str!("api.js")),
    ("app.js", SCRIPT, include_str!("app.js")),
    ("chart.js", SCRIPT, include_str!("chart.js")),
    ("density.js", SCRIPT, include_str!("density.js")),
    ("dom.js", SCRIPT, include_str!("dom.js")),
    ("format.js", SCRIPT, include_str!("format.js")),
    ("now.js", SCRIPT, include_str!("now.js")),
    ("policies.js", SCRIPT, include_str!("policies.js")),
    ("try.js", SCRIPT, include_str!("try.js")),
];

const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Whether a request is a browser's that wants to show a page. Others get the index as text.
pub(super) fn wants_dashboard(request: &Request) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|types| types.to_ascii_lowercase().contains("text/html"))
}

/// `GET /`
pub(super) fn page() -> Response {
    ([(header::VARY, "accept")], headers(HTML), PAGE).into_response()
}

/// `GET /dashboard/{file}`
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.into_iter().find(|(file, ..)| *file == name) {
        Some((_, kind, text)) => (headers(kind), text).into_response(),
        None => Problem::not_found("There is no such file of the dashboard.").into_response(),
    }
}

fn headers(kind: &'static str) -> HeaderMap {
    let headers = HEADERS.into_iter().chain([(header::CONTENT_TYPE, kind)]);
    headers.map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
}
