//! Validation errors of a JSON body.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;

/// Where in a question something is: `[2].charges[0].identity`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonPath<'p> {
    parent: Option<&'p JsonPath<'p>>,
    step: Step<'p>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'p> {
    Root,
    Member(&'p str),
    Item(usize),
}

impl<'p> JsonPath<'p> {
    pub(crate) const ROOT: Self = Self { parent: None, step: Step::Root };

    pub(crate) fn member(&'p self, name: &'p str) -> Self {
        Self { parent: Some(self), step: Step::Member(name) }
    }

    pub(crate) fn item(&'p self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Item(index) }
    }

    fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Item(index) => write!(f, "[{index}]"),
            Step::Member(name) => {
                let dot = if self.parent.is_some_and(|p| !p.is_root()) { "." } else { "" };
                write!(f, "{dot}{}", super::json::shortened(name))
            }
        }
    }
}

/// Everything that is wrong with a question.
#[derive(Debug, Default)]
pub(crate) struct ValidationErrors(Vec<ValidationError>);

#[derive(Debug, Serialize)]
struct ValidationError {
    #[serde(skip_serializing_if = "String::is_empty")]
    member: String,
    problem: String,
}

/// Enough to see what is wrong; a caller that has more wrong than this asks again.
const MOST_PROBLEMS: usize = 20;

impl ValidationErrors {
    pub(crate) fn add(&mut self, place: &JsonPath<'_>, problem: impl fmt::Display) {
        if self.0.len() < MOST_PROBLEMS {
            let (member, problem) = (place.to_string(), problem.to_string());
            self.0.push(ValidationError { member, problem });
        }
    }

    /// Reports an invalid value.
    pub(crate) fn expected(
        &mut self,
        place: &JsonPath<'_>,
        what: impl fmt::Display,
        value: &super::json::Json<'_>,
    ) {
        self.add(place, format_args!("expected {what}, not {value}"));
    }

    pub(crate) fn one(problem: impl fmt::Display) -> Self {
        let mut problems = Self::default();
        problems.add(&JsonPath::ROOT, problem);
        problems
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn detail(&self) -> String {
        let lines =
            self.0.iter().map(|ValidationError { member, problem }| match member.as_str() {
                "" => problem.clone(),
                member => format!("{member}: {problem}"),
            });
        lines.collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        problem(StatusCode::BAD_REQUEST, &self.detail(), &self.0)
    }
}

#[derive(Serialize)]
struct ProblemDetails<'a> {
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "<[ValidationError]>::is_empty")]
    problems: &'a [ValidationError],
}

/// An answer to a question that cannot be decided, in the form of RFC 9457.
pub(crate) fn refuse(status: StatusCode, detail: &str) -> Response<Full<Bytes>> {
    problem(status, detail, &[])
}

fn problem(
    status: StatusCode,
    detail: &str,
    problems: &[ValidationError],
) -> Response<Full<Bytes>> {
    let title = status.canonical_reason().unwrap_or_default();
    let details = ProblemDetails { title, status: status.as_u16(), detail, problems };
    let body = serde_json::to_vec(&details).expect("strings and numbers can be JSON");
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
