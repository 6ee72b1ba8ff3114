//! Answers to an operator.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use http_body_util::Full;
use serde::Serialize;

use crate::admin::problem::problem;
use crate::decisions::validation::ValidationErrors;
use crate::overrides::OverrideError;

/// Why an operator's request was not done.
#[derive(Debug)]
pub(super) enum OperatorError {
    /// Its body could not be read, or was none.
    Body(Box<Response<Full<Bytes>>>),
    /// It is wrong.
    Invalid(ValidationErrors),
    /// It is about something that there is not.
    Nothing(String),
    /// The override or reset failed.
    Override(OverrideError),
}

/// A JSON response that must not be cached.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    (status, [(header::CACHE_CONTROL, "no-store")], axum::Json(value)).into_response()
}

impl OperatorError {
    pub(super) fn one(text: impl std::fmt::Display) -> Self {
        Self::Invalid(ValidationErrors::one(text))
    }

    /// The problem's detail text.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Body(_) => "the body could not be read".to_owned(),
            Self::Invalid(problems) => problems.detail(),
            Self::Nothing(what) => what.clone(),
            Self::Override(error) => chain(error),
        }
    }

    /// The response's status.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Body(response) => response.status(),
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Nothing(_) => StatusCode::NOT_FOUND,
            Self::Override(error) => match error {
                OverrideError::UnknownPolicy { .. } | OverrideError::UnknownOverride(_) => {
                    StatusCode::NOT_FOUND
                }
                OverrideError::Past { .. } | OverrideError::TooLong | OverrideError::Network => {
                    StatusCode::BAD_REQUEST
                }
                OverrideError::Full => StatusCode::CONFLICT,
                OverrideError::SharedMap(_)
                | OverrideError::Bans(_)
                | OverrideError::Disk(_)
                | OverrideError::Account(_) => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }
}

/// An error with its causes.
fn chain(error: &OverrideError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        // Some errors repeat the text of their cause.
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

impl From<OverrideError> for OperatorError {
    fn from(error: OverrideError) -> Self {
        Self::Override(error)
    }
}

impl From<ValidationErrors> for OperatorError {
    fn from(problems: ValidationErrors) -> Self {
        Self::Invalid(problems)
    }
}

impl IntoResponse for OperatorError {
    fn into_response(self) -> Response {
        match self {
            Self::Body(response) => response.map(Body::new),
            Self::Invalid(problems) => problems.response().map(Body::new),
            other => problem(other.status(), &other.detail()),
        }
    }
}
