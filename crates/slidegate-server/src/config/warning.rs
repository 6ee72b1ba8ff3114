//! What is not wrong, but probably not meant.

use std::fmt;

use crate::config::location::Location;

/// Something that is probably not meant, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigWarning {
    location: Location,
    text: String,
}

impl ConfigWarning {
    pub(super) fn new(location: &Location, text: impl Into<String>) -> Self {
        Self { location: location.clone(), text: text.into() }
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.text)
    }
}
