//! Where something was said, for whoever has to correct it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A place that says something: a line of the file, a flag, a variable of the environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The file, at a line counted from 1; without a line, all of it.
    File {
        name: Arc<str>,
        line: Option<usize>,
    },
    Flag(&'static str),
    Variable(&'static str),
    /// Nobody said it.
    Default,
}

/// A place, and the key there, such as `policy[2].quotas[0]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) place: Place,
    /// Empty if the place is key enough.
    pub(crate) key: String,
}

/// A value, and where it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said<T> {
    pub(crate) value: T,
    pub(crate) spot: Spot,
}

impl Spot {
    pub(crate) fn flag(name: &'static str) -> Self {
        Self { place: Place::Flag(name), key: String::new() }
    }

    pub(crate) fn variable(name: &'static str) -> Self {
        Self { place: Place::Variable(name), key: String::new() }
    }

    pub(crate) fn default_of(key: &str) -> Self {
        Self { place: Place::Default, key: key.to_owned() }
    }

    pub(crate) fn is_in_file(&self) -> bool {
        matches!(self.place, Place::File { .. })
    }

    /// A key below this one, of which only this one's place is known.
    pub(crate) fn below(&self, key: &str) -> Self {
        let key = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { place: self.place.clone(), key }
    }

    pub(crate) fn says<T>(self, value: T) -> Said<T> {
        Said { value, spot: self }
    }
}

impl<T> Deref for Said<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl fmt::Display for Place {
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

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)?;
        if self.key.is_empty() { Ok(()) } else { write!(f, ": {}", self.key) }
    }
}
