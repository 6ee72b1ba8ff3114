//! Where a configuration value comes from, for error messages.

use std::fmt;
use std::ops::Deref;
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

/// A value and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) location: Location,
}

impl Location {
    pub(crate) fn flag(name: &'static str) -> Self {
        Self { origin: Origin::Flag(name), key: String::new() }
    }

    pub(crate) fn variable(name: &'static str) -> Self {
        Self { origin: Origin::Variable(name), key: String::new() }
    }

    pub(crate) fn default_of(key: &str) -> Self {
        Self { origin: Origin::Default, key: key.to_owned() }
    }

    pub(crate) fn is_in_file(&self) -> bool {
        matches!(self.origin, Origin::File { .. })
    }

    /// A key below this one, at the same origin.
    pub(crate) fn below(&self, key: &str) -> Self {
        let key = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { origin: self.origin.clone(), key }
    }

    pub(crate) fn with_value<T>(self, value: T) -> Sourced<T> {
        Sourced { value, location: self }
    }
}

impl<T> Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line: Some(line) } => write!(f, "{name}:{line}"),
            Self::File { name, line: None } => f.write_str(name),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Variable(name) => write!(f, "environment: {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin.fmt(f)?;
        if self.key.is_empty() { Ok(()) } else { write!(f, ": {}", self.key) }
    }
}
