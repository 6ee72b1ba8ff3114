//! What is not wrong, but probably not meant.

use std::fmt;

use crate::config::spot::Spot;

/// Something that is probably not meant, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warning {
    spot: Spot,
    text: String,
}

impl Warning {
    pub(super) fn new(spot: &Spot, text: impl Into<String>) -> Self {
        Self { spot: spot.clone(), text: text.into() }
    }

    pub(super) fn spot(&self) -> &Spot {
        &self.spot
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.spot, self.text)
    }
}
