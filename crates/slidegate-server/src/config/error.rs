//! Errors of the configuration, reported all at once.

use std::fmt;

use crate::config::location::Location;

/// One thing that is wrong: where, with which value, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConfigError {
    location: Location,
    /// As it was written; none if there is no value, or it is not to be shown.
    value: Option<String>,
    expected: String,
}

impl ConfigError {
    pub(crate) fn new(location: Location, expected: impl fmt::Display) -> Self {
        Self { location, value: None, expected: expected.to_string() }
    }

    pub(crate) fn with_value(self, value: impl Into<String>) -> Self {
        Self { value: Some(value.into()), ..self }
    }

    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    pub(crate) fn has_value(&self) -> bool {
        self.value.is_some()
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

/// Everything that is wrong, a line each, in the order in which it stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigErrors(Vec<ConfigError>);

/// The most errors shown at once.
const SHOWN: usize = 100;

impl ConfigErrors {
    pub(crate) fn new(mut problems: Vec<ConfigError>) -> Self {
        problems.sort();
        problems.dedup();
        Self(problems)
    }

    /// The text of each error, up to the number that is shown.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.iter().take(SHOWN).map(ToString::to_string).collect()
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return problem.fmt(f);
        }
        write!(f, "{} problems:", self.0.len())?;
        self.0.iter().take(SHOWN).try_for_each(|problem| write!(f, "\n{problem}"))?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}
