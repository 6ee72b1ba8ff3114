//! The shapes of a refusal's body that come ready-made.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Serialize, Serializer};

use crate::problem::{CONTENT_TYPE, ProblemDetails, json};
use crate::refusal::refused::{Message, Reason, Refused};

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

/// What a refusal's problem details have besides those of RFC 9457.
#[derive(Serialize)]
struct RefusalMembers<'a> {
    #[serde(rename = "violated-policies", serialize_with = "violated_names")]
    #[serde(skip_serializing_if = "violates_none")]
    refused: &'a Refused<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrade_url: Option<&'a str>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct ErrorBody<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrade_url: Option<&'a str>,
}

#[derive(Serialize)]
struct CodeBody<'a> {
    error: Code<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Code<'a> {
    code: &'a str,
    message: Message,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn violated_names<S: Serializer>(refused: &Refused<'_>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(refused.violated_names())
}

fn violates_none(refused: &Refused<'_>) -> bool {
    refused.violated_names().next().is_none()
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

    pub(super) fn body(self, refused: &Refused<'_>) -> Bytes {
        let wording = refused.reason().wording();
        let phrase = wording.status.canonical_reason().unwrap_or_default();
        match self {
            Self::Problem => problem(refused),
            Self::Error => json(&ErrorBody { error: phrase, ..ErrorBody::default() }),
            Self::Plan => json(&ErrorBody {
                error: match refused.reason() {
                    Reason::QuotaExceeded => "Rate limit exceeded",
                    _ => phrase,
                },
                limit: refused.limit(),
                retry_after_ms: refused.retry_after_ms(),
                plan: refused.plan_name(),
                upgrade_url: refused.upgrade_url(),
            }),
            Self::Code => json(&CodeBody {
                error: Code {
                    code: wording.code,
                    message: refused.message_with("Please retry after"),
                    retry_after: refused.retry_after_s(),
                },
            }),
            Self::Text => (refused.message() + "\n").into(),
            Self::Bare => Bytes::from_static(phrase.as_bytes()),
        }
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

fn problem(refused: &Refused<'_>) -> Bytes {
    let wording = refused.reason().wording();
    let (plan, upgrade_url) = (refused.plan_name(), refused.upgrade_url());
    ProblemDetails::new(wording.status, refused.message_with("Try again in"))
        .typed(wording.problem, wording.title)
        .with(RefusalMembers { refused, plan, upgrade_url })
        .body()
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
