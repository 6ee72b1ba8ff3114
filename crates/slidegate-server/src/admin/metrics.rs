//! The page of metrics.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use super::problem::problem;
use crate::observe::{CONTENT_TYPE, Observer};

pub(super) fn answer(observer: &Observer) -> Response {
    match observer.page() {
        Ok(page) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot encode metrics");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "The metrics could not be encoded.")
        }
    }
}
