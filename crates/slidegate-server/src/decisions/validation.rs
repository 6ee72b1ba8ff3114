//! Reading JSON so that everything that is wrong with it is reported at once.

use std::fmt::{self, Write};
use std::num::NonZeroU32;

use serde_json_borrow::{ObjectAsVec, Value};

use crate::json_body::shortened;
use crate::problem::{InvalidMember, Problem};

/// Everything that is wrong with a request. Members are named by their path, such as
/// `[2].charges[0].identity`.
#[derive(Debug, Default)]
pub(super) struct ValidationErrors {
    /// The object that is being read.
    path: String,
    invalid: Vec<InvalidMember>,
}

/// The most problems that are reported.
const MAX_PROBLEMS: usize = 20;

/// The most members of an object, which no valid request comes near.
const MAX_MEMBERS: usize = 64;

impl ValidationErrors {
    /// Adds a problem of a member of the current object, or of the object itself if the name is
    /// empty.
    pub(super) fn add(&mut self, member: &str, problem: impl fmt::Display) {
        if self.invalid.len() >= MAX_PROBLEMS {
            return;
        }
        let dot = if self.path.is_empty() || member.is_empty() { "" } else { "." };
        let member = format!("{}{dot}{}", self.path, shortened(member));
        self.invalid.push(InvalidMember { member, problem: problem.to_string() });
    }

    /// Adds that a member has another value than expected.
    pub(super) fn expected(&mut self, member: &str, what: impl fmt::Display, value: &Value<'_>) {
        self.add(member, format_args!("expected {what}, not {}", Shown(value)));
    }

    /// Reads an object that is a member or an item of the current one.
    pub(super) fn within<T>(
        &mut self,
        step: impl fmt::Display,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let parent = self.path.len();
        let dot = if parent == 0 { "" } else { "." };
        write!(self.path, "{dot}{step}").expect("a string takes all");
        let read = read(self);
        self.path.truncate(parent);
        read
    }

    /// The members of the current value, which must be an object. Repeated ones are ambiguous.
    pub(super) fn object<'v>(&mut self, value: &'v Value<'v>) -> Option<&'v ObjectAsVec<'v>> {
        let Value::Object(members) = value else {
            self.expected("", "an object", value);
            return None;
        };
        if members.len() > MAX_MEMBERS {
            let count = members.len();
            self.add("", format_args!("{count} members; expected at most {MAX_MEMBERS}"));
            return None;
        }
        for (index, (name, _)) in members.iter().enumerate() {
            if members.iter().take(index).any(|(other, _)| other == name) {
                self.add(name, "given twice");
            }
        }
        Some(members)
    }

    /// A member that must be a string.
    pub(super) fn string<'v>(&mut self, member: &str, value: &'v Value<'_>) -> Option<&'v str> {
        let text = value.as_str();
        if text.is_none() {
            self.expected(member, "a string", value);
        }
        text
    }

    /// A member that must be a string of this form.
    pub(super) fn parsed<T>(
        &mut self,
        member: &str,
        value: &Value<'_>,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let parsed = parse(self.string(member, value)?);
        if parsed.is_none() {
            self.expected(member, what, value);
        }
        parsed
    }

    /// A member that must be a number of units.
    pub(super) fn units(&mut self, member: &str, value: &Value<'_>) -> Option<NonZeroU32> {
        let units = value.as_u64().and_then(|units| u32::try_from(units).ok());
        let units = units.and_then(NonZeroU32::new);
        if units.is_none() {
            let what = format_args!("a whole number from 1 to {}", u32::MAX);
            self.expected(member, what, value);
        }
        units
    }

    /// What was read, unless anything is wrong.
    pub(super) fn finish<T>(self, read: T) -> Result<T, Problem> {
        if self.invalid.is_empty() { Ok(read) } else { Err(Problem::invalid(self.invalid)) }
    }
}

/// A value in a message: long texts are cut, and of lists and objects only the kind is shown.
struct Shown<'v>(&'v Value<'v>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Str(text) => write!(f, "{:?}", shortened(text)),
            Value::Array(_) => f.write_str("a list"),
            Value::Object(_) => f.write_str("an object"),
            other => other.fmt(f),
        }
    }
}
