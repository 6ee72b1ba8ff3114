//! The members of a JSON body and the parameters of a query: everything that is wrong with them is
//! reported at once.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use http::{HeaderMap, StatusCode, header};
use http_body::Body as _;
use http_body_util::LengthLimitError;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use crate::problem::{InvalidMember, Problem};

/// Named values. Each is read by its name; what has not been read in the end is unknown.
#[derive(Debug)]
pub(super) struct Fields {
    /// In the order they came, duplicates included.
    values: Vec<(String, Value)>,
    /// What one of them is called.
    noun: &'static str,
    known: Vec<&'static str>,
    invalid: Vec<InvalidMember>,
}

/// No valid body has a tenth of it.
const MAX_BODY_BYTES: usize = 64 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Enough to see what is wrong.
const MAX_INVALID: usize = 20;
/// The most characters of a value that a message repeats.
const MAX_SHOWN_CHARS: usize = 64;

impl Fields {
    pub(super) fn of_query(parameters: Vec<(String, String)>) -> Self {
        let values = parameters.into_iter().map(|(name, value)| (name, value.into())).collect();
        Self::new(values, "parameter")
    }

    /// Reads a body, which has to be a JSON object.
    pub(super) async fn of_body(request: Request) -> Result<Self, Problem> {
        // It also keeps web pages out: browsers ask before they send this type to another site.
        if !is_json(request.headers()) {
            let detail = "expected Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let body = read(request.into_body()).await?;
        match serde_json::from_slice(&body) {
            Ok(Members(values)) => Ok(Self::new(values, "member")),
            Err(error) => Err(Problem::bad_request(match error.classify() {
                Category::Data => {
                    let value = serde_json::from_slice(&body).unwrap_or_default();
                    expected("an object", &value)
                }
                Category::Eof => format!("incomplete JSON, at line {}", error.line()),
                _ => format!("not JSON, at line {} column {}", error.line(), error.column()),
            })),
        }
    }

    fn new(values: Vec<(String, Value)>, noun: &'static str) -> Self {
        Self { values, noun, known: Vec::new(), invalid: Vec::new() }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.values.iter().any(|(given, _)| given == name)
    }

    /// The value of this name; none if it is missing or invalid.
    pub(super) fn read<T, E: Display>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, E>,
    ) -> Option<T> {
        self.known.push(name);
        let (given, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.values).into_iter().partition(|(given, _)| given == name);
        self.values = others;
        let parsed = match given.as_slice() {
            [] => return None,
            [(_, value)] => parse(value).map_err(|error| error.to_string()),
            _ => Err("given twice".to_owned()),
        };
        parsed.map_err(|problem| self.reject(name, problem)).ok()
    }

    /// The same for a value that must not be missing.
    pub(super) fn require<T, E: Display>(
        &mut self,
        name: &'static str,
        meaning: &str,
        parse: impl FnOnce(&Value) -> Result<T, E>,
    ) -> Option<T> {
        if !self.has(name) {
            self.reject(name, format_args!("missing; expected {meaning}"));
        }
        self.read(name, parse)
    }

    pub(super) fn reject(&mut self, name: &str, problem: impl Display) {
        if self.invalid.len() < MAX_INVALID {
            let (member, problem) = (shortened(name), problem.to_string());
            self.invalid.push(InvalidMember { member, problem });
        }
    }

    /// What was read, unless anything was wrong or unknown.
    pub(super) fn finish<T>(mut self, read: Option<T>) -> Result<T, Problem> {
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        let noun = self.noun;
        for (name, _) in std::mem::take(&mut self.values) {
            self.reject(&name, format_args!("unknown {noun}; expected {known}"));
        }
        match read {
            Some(read) if self.invalid.is_empty() => Ok(read),
            _ => Err(Problem::invalid(self.invalid)),
        }
    }
}

/// Parses a string; messages repeat it.
pub(super) fn parsed<T: FromStr<Err: Display>>(value: &Value) -> Result<T, String> {
    let text = text(value)?;
    text.parse().map_err(|error| format!("{:?}: {error}", shortened(text)))
}

pub(super) fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| expected("a string", value))
}

pub(super) fn expected(what: impl Display, value: &Value) -> String {
    match value {
        Value::String(text) => format!("expected {what}, not {:?}", shortened(text)),
        Value::Array(_) => format!("expected {what}, not a list"),
        Value::Object(_) => format!("expected {what}, not an object"),
        other => format!("expected {what}, not {other}"),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

async fn read(body: Body) -> Result<bytes::Bytes, Problem> {
    let too_large = || {
        let detail = format!("the body has more than {MAX_BODY_BYTES} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) => {
            let source = std::error::Error::source(&error);
            let is_too_large = source.is_some_and(|source| source.is::<LengthLimitError>());
            Err(if is_too_large {
                too_large()
            } else {
                Problem::bad_request("the body ended early")
            })
        }
        Err(_) => {
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 10 s"))
        }
    }
}

/// The members of a JSON object. A map would hide duplicates.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members, A::Error> {
        let mut values = Vec::new();
        while let Some(member) = members.next_entry()? {
            values.push(member);
        }
        Ok(Members(values))
    }
}
