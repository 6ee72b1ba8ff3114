//! Whether a question is for real.

use super::problem::Problems;

/// Whether a question is for real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    Spend,
    Peek,
}

impl Intent {
    /// Reads a query: nothing, or `peek=true`.
    pub(super) fn of(query: Option<&str>) -> Result<Self, Problems> {
        match query.unwrap_or_default() {
            "" | "peek=false" => Ok(Self::Spend),
            "peek=true" => Ok(Self::Peek),
            _ => Err(Problems::one("the query can only be peek=true or peek=false")),
        }
    }
}
