//! How a ledger is kept in Redis.

use std::fmt;
use std::str::FromStr;

/// How a ledger is kept in Redis. Both decide alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// A string: a header and a ring of stamps. Small and fast.
    #[default]
    Packed,
    /// A sorted set with a member for each unit, whose score is the stamp, in milliseconds or another
    /// [unit](crate::ScoreUnit). It is what most sliding logs on Redis are, so those and this store can count on the same key, and
    /// `redis-cli` shows it. It takes a hundred bytes or more for each unit.
    SortedSet,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packed => "packed",
            Self::SortedSet => "sorted-set",
        })
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        [Self::Packed, Self::SortedSet]
            .into_iter()
            .find(|layout| layout.to_string() == text)
            .ok_or_else(|| LayoutError(text.to_owned()))
    }
}

/// A text that names no layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no layout: expected packed or sorted-set")]
pub struct LayoutError(String);
