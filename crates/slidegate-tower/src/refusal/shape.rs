//! The shapes of a refusal's body that come ready-made.

use std::fmt;
use std::str::FromStr;

use crate::problem::CONTENT_TYPE;
use crate::refusal::body::{Body, BodyTerms, BodyText, Wait};
use crate::refusal::refused::Reason;

/// A ready-made shape of a refusal's body.
///
/// Written down as `problem`, `error`, `plan`, `code`, `text` and `bare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Shape {
    /// Problem details of RFC 9457, with the types of the IETF draft.
    #[default]
    Problem,
    /// `{"error":"Too Many Requests"}`.
    Error,
    /// `{"error":"Rate limit exceeded","limit":60,"retryAfterMs":45000,"plan":"free",…}`, with an
    /// `upgradeUrl` if the plan has one.
    Plan,
    /// `{"error":{"code":"RATE_LIMIT_EXCEEDED","message":…,"retryAfter":45}}`, with the message `Too
    /// many requests. Please retry after 45 seconds.`
    Code,
    /// A sentence of plain text.
    Text,
    /// Only the status in words, which costs the least.
    Bare,
}

impl Shape {
    const ALL: [Self; 6] =
        [Self::Problem, Self::Error, Self::Plan, Self::Code, Self::Text, Self::Bare];

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Problem => CONTENT_TYPE,
            Self::Error | Self::Plan | Self::Code => "application/json",
            Self::Text | Self::Bare => "text/plain; charset=utf-8",
        }
    }

    pub(super) fn body(self, terms: &BodyTerms<'_>) -> Body {
        let wording = terms.reason.wording();
        let phrase = wording.status.canonical_reason().unwrap_or_default();
        let mut body = BodyText::default();
        match self {
            Self::Problem => return problem(terms),
            Self::Error => body.text("{\"error\":\"").text(phrase).text("\"}"),
            Self::Plan => {
                let error = match terms.reason {
                    Reason::QuotaExceeded => "Rate limit exceeded",
                    _ => phrase,
                };
                body.text("{\"error\":\"").text(error).text("\"");
                body.number_member("limit", terms.limit.map(u64::from));
                body.wait_member("retryAfterMs", terms, Wait::Milliseconds);
                body.string_member("plan", terms.plan_name());
                body.string_member("upgradeUrl", terms.upgrade_url()).text("}")
            }
            Self::Code => {
                body.text("{\"error\":{\"code\":\"").text(wording.code);
                body.text("\",\"message\":\"").message(terms, "Please retry after").text("\"");
                body.wait_member("retryAfter", terms, Wait::Seconds).text("}}")
            }
            Self::Text => body.message(terms, "Try again in").text("\n"),
            Self::Bare => return Body::fixed(phrase),
        }
        .finish()
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Error => "error",
            Self::Plan => "plan",
            Self::Code => "code",
            Self::Text => "text",
            Self::Bare => "bare",
        }
    }
}

/// Problem details of RFC 9457, in the order of [`ProblemDetails`](crate::ProblemDetails).
fn problem(terms: &BodyTerms<'_>) -> Body {
    let wording = terms.reason.wording();
    let mut body = BodyText::default();
    body.text("{\"type\":\"").text(wording.problem);
    body.text("\",\"title\":\"").text(wording.title);
    body.text("\",\"status\":").text(wording.status.as_str());
    body.text(",\"detail\":\"").message(terms, "Try again in").text("\"");
    let mut before = ",\"violated-policies\":[";
    for name in &terms.violated {
        body.text(std::mem::replace(&mut before, ",")).string(name);
    }
    if before == "," {
        body.text("]");
    }
    body.string_member("plan", terms.plan_name());
    body.string_member("upgrade_url", terms.upgrade_url()).text("}").finish()
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let found = Self::ALL.into_iter().find(|shape| shape.name() == text);
        found.ok_or_else(|| ShapeError { text: text.to_owned() })
    }
}

/// A text that names no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a shape of refusals: expected problem, error, plan, code, text or bare")]
pub struct ShapeError {
    text: String,
}
