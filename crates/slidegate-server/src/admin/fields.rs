//! The members of a JSON body and the parameters of a query: everything that is wrong with them is
//! reported at once.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::Request;
use serde_json::Value;

use crate::json_body::{self, shortened};
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
/// Enough to see what is wrong.
const MAX_INVALID: usize = 20;

impl Fields {
    pub(super) fn of_query(parameters: Vec<(String, String)>) -> Self {
        let values = parameters.into_iter().map(|(name, value)| (name, value.into())).collect();
        Self::new(values, "parameter")
    }

    /// Reads a body, which has to be a JSON object.
    pub(super) async fn of_body(request: Request) -> Result<Self, Problem> {
        let body = json_body::read(request, MAX_BODY_BYTES).await?;
        // Unlike a map, it keeps duplicates.
        let json: serde_json_borrow::Value<'_> =
            serde_json::from_slice(&body).map_err(|error| json_body::syntax_error(&error))?;
        let serde_json_borrow::Value::Object(members) = json else {
            return Err(Problem::bad_request(expected("an object", &json.into())));
        };
        let values = members.into_vec().into_iter();
        let values = values.map(|(name, value)| (name.to_string(), value.into())).collect();
        Ok(Self::new(values, "member"))
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
        let given: Vec<_> = self.values.extract_if(.., |(given, _)| given == name).collect();
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
            let (member, problem) = (shortened(name).into_owned(), problem.to_string());
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
