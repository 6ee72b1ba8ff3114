//! Problem details (RFC 9457): the body of error responses of the admin and decision APIs.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Display};

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use slidegate_replay::described_request::{shortened, truncated};
use slidegate_tower::ProblemDetails;

/// An error response.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    problems: Vec<InvalidMember>,
}

/// What the problem details of a bad request have besides those of RFC 9457.
#[derive(Serialize)]
struct InvalidMembers {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<InvalidMember>,
}

/// What is wrong with one member of a JSON body, or one parameter of a query.
#[derive(Debug, Serialize)]
pub(crate) struct InvalidMember {
    /// Empty if it is the body as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) member: String,
    pub(crate) problem: String,
}

/// The most characters of what is wrong with a member.
const MAX_PROBLEM_CHARS: usize = 256;

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Display) -> Self {
        Self { status, detail: detail.to_string(), problems: Vec::new() }
    }

    pub(crate) fn bad_request(detail: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// A bad request whose body or query is wrong as a whole.
    pub(crate) fn invalid_body(problem: impl Display) -> Self {
        Self::invalid_member("", problem)
    }

    pub(crate) fn invalid_member(member: &str, problem: impl Display) -> Self {
        let (member, problem) = (member.to_owned(), problem.to_string());
        Self::invalid(vec![InvalidMember { member, problem }])
    }

    /// A bad request with everything that is wrong with its members.
    pub(crate) fn invalid(problems: Vec<InvalidMember>) -> Self {
        let texts: Vec<String> = problems.iter().map(InvalidMember::to_string).collect();
        Self { problems, ..Self::bad_request(texts.join("; ")) }
    }
}

impl Display for InvalidMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member.as_str() {
            "" => f.write_str(&self.problem),
            member => write!(f, "{member}: {}", self.problem),
        }
    }
}

impl<E: Display> From<&serde_path_to_error::Error<E>> for Problem {
    fn from(error: &serde_path_to_error::Error<E>) -> Self {
        let member = error.path().to_string();
        let member = if member == "." { Cow::Borrowed("") } else { shortened(&member) };
        Self::invalid_member(&member, truncated(&error.inner().to_string(), MAX_PROBLEM_CHARS))
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        type QueryError = serde_path_to_error::Error<serde_urlencoded::de::Error>;
        // Below axum's own errors is the one that names the parameter.
        let cause = rejection.source().and_then(Error::source);
        match cause.and_then(|cause| cause.downcast_ref::<QueryError>()) {
            Some(error) => error.into(),
            None => Self::invalid_body(rejection.body_text()),
        }
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<Problem> for http::Response<Bytes> {
    fn from(problem: Problem) -> Self {
        let Problem { status, detail, problems } = problem;
        ProblemDetails::new(status, detail).with(InvalidMembers { problems }).response()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        http::Response::<Bytes>::from(self).map(Body::from)
    }
}

/// An error with its causes. Some repeat the text of their own cause, which is left out then.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let own = error.to_string();
        if !text.ends_with(&own) {
            text += &format!(": {own}");
        }
        cause = error.source();
    }
    text
}
