//! Errors and warnings, each with the place that it is about.

use std::fmt;
use std::sync::Arc;

/// The source of a value: a line of the file, a flag, an environment variable, or the default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The file, at a line counted from 1; without a line, all of it.
    File {
        name: Arc<str>,
        line: Option<usize>,
    },
    Flag(&'static str),
    Variable(&'static str),
    Default,
}

/// An origin and the key there, such as `policy[2].quotas[0]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) origin: Origin,
    /// Empty if the origin alone identifies the value.
    pub(crate) key: String,
}

impl Location {
    pub(super) fn of(origin: Origin) -> Self {
        Self { origin, key: String::new() }
    }

    pub(super) fn flag(name: &'static str) -> Self {
        Self::of(Origin::Flag(name))
    }

    pub(super) fn variable(name: &'static str) -> Self {
        Self::of(Origin::Variable(name))
    }

    pub(super) fn is_in_file(&self) -> bool {
        matches!(self.origin, Origin::File { .. })
    }

    /// A key below this one, at the same origin.
    pub(super) fn below(&self, key: &str) -> Self {
        let is_bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let key = match key {
            _ if !key.is_empty() && key.bytes().all(is_bare) => key.to_owned(),
            _ => quoted(key),
        };
        let key = if self.key.is_empty() { key } else { format!("{}.{key}", self.key) };
        Self { origin: self.origin.clone(), key }
    }
}

/// A string in quotes, cut off after 80 characters.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { name, line: Some(line) } => write!(f, "{name}:{line}"),
            Origin::File { name, line: None } => f.write_str(name),
            Origin::Flag(name) => write!(f, "flag {name}"),
            Origin::Variable(name) => write!(f, "environment: {name}"),
            Origin::Default => f.write_str("default"),
        }?;
        if self.key.is_empty() { Ok(()) } else { write!(f, ": {}", self.key) }
    }
}

/// One error: where, with which value, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConfigError {
    pub(super) location: Location,
    /// As it was written; none if there is no value, or it is not to be shown.
    pub(super) value: Option<String>,
    expected: String,
}

impl ConfigError {
    pub(super) fn new(location: Location, expected: impl fmt::Display) -> Self {
        Self { location, value: None, expected: expected.to_string() }
    }

    /// The value as it is shown.
    pub(super) fn with_value(self, value: String) -> Self {
        Self { value: Some(value), ..self }
    }

    /// The value as a string in quotes, if there is one.
    pub(super) fn with_text(self, text: Option<&str>) -> Self {
        Self { value: text.map(quoted), ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, value, expected } = self;
        match value {
            Some(value) => write!(f, "{location} = {value}: {expected}"),
            None => write!(f, "{location}: {expected}"),
        }
    }
}

/// All errors, a line each, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigErrors(Vec<ConfigError>);

/// The most errors shown at once.
const SHOWN: usize = 100;

impl ConfigErrors {
    pub(super) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort();
        errors.dedup();
        Self(errors)
    }

    /// The text of each error, up to the number that is shown.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.iter().take(SHOWN).map(ToString::to_string).collect()
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [error] = self.0.as_slice() {
            return error.fmt(f);
        }
        write!(f, "{} problems:", self.0.len())?;
        self.0.iter().take(SHOWN).try_for_each(|error| write!(f, "\n{error}"))?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// Something that is valid but probably not meant, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConfigWarning {
    pub(super) location: Location,
    pub(super) text: String,
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.text)
    }
}
