//! Whether a question is for real.

use super::validation::ValidationErrors;

/// Whether a question is for real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecideMode {
    Spend,
    Peek,
}

impl DecideMode {
    /// Reads a query: nothing, or `peek=true`, in whatever case a language writes its booleans.
    pub(super) fn of(query: Option<&str>) -> Result<Self, ValidationErrors> {
        let query = query.unwrap_or_default();
        let value = query.strip_prefix("peek=").map(str::to_ascii_lowercase);
        match value.as_deref() {
            None if query.is_empty() => Ok(Self::Spend),
            Some("false" | "0") => Ok(Self::Spend),
            Some("true" | "1") => Ok(Self::Peek),
            _ => Err(ValidationErrors::one("the query can only be peek=true or peek=false")),
        }
    }
}
