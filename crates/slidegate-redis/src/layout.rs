//! Layouts of a ledger in Redis, and the unit of the scores of a sorted set.

use std::fmt;
use std::str::FromStr;

/// The layout of a ledger in Redis. Decisions are the same in both.
///
/// ```
/// use slidegate_redis::{Layout, RedisStore};
///
/// let store = RedisStore::builder("redis://127.0.0.1:6379").layout("sorted-set".parse()?).build()?;
/// assert_eq!(store.layout(), Layout::SortedSet);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// A string: a header and a run of stamps. Small and fast.
    #[default]
    Packed,
    /// A sorted set with a member for each unit, whose score is the stamp, in milliseconds or another
    /// [unit](ScoreUnit). Most sliding logs on Redis use this layout, so they and this store can count on the
    /// same key, and `redis-cli` shows it. It takes a hundred bytes or more for each unit.
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

/// A text that is not the name of a layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown layout {0:?}: expected packed or sorted-set")]
pub struct LayoutError(String);

/// The unit of time that the scores of the layout `sorted-set` are in. All
/// limiters that count on the same keys must use the same unit.
///
/// Times since 1970 are not exact in every unit: of nanoseconds, a score has steps of 256. A spend
/// is rounded up to the next step, so it is held longer by less than a microsecond, never shorter.
///
/// ```
/// use slidegate_redis::ScoreUnit;
///
/// assert_eq!("ns".parse(), Ok(ScoreUnit::Nanoseconds));
/// assert_eq!("seconds".parse(), Ok(ScoreUnit::Seconds));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScoreUnit {
    /// With the milliseconds as a fraction, as in `1700000000.123`.
    Seconds,
    /// Used by most limiters.
    #[default]
    Milliseconds,
    /// The resolution of Redis `TIME`.
    Microseconds,
    /// The unit of Go's `UnixNano`.
    Nanoseconds,
}

impl ScoreUnit {
    pub(crate) const ALL: [Self; 4] =
        [Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Nanoseconds];

    /// The constants of the script, described in `sorted_set.lua`.
    pub(crate) fn constants(self) -> &'static str {
        match self {
            Self::Seconds => "local TIMES, PARTS, PAD, SLOP = 1, 1000, 2 ^ -21, 0.002",
            Self::Milliseconds => "local TIMES, PARTS, PAD, SLOP = 1, 1, 0, 0",
            Self::Microseconds => "local TIMES, PARTS, PAD, SLOP = 1000, 1, 0, 0",
            Self::Nanoseconds => "local TIMES, PARTS, PAD, SLOP = 1000000, 1, 256, 0.001",
        }
    }

    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Seconds => ["s", "seconds"],
            Self::Milliseconds => ["ms", "milliseconds"],
            Self::Microseconds => ["us", "microseconds"],
            Self::Nanoseconds => ["ns", "nanoseconds"],
        }
    }
}

impl fmt::Display for ScoreUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words()[0])
    }
}

impl FromStr for ScoreUnit {
    type Err = ScoreUnitError;

    fn from_str(text: &str) -> Result<Self, ScoreUnitError> {
        let found = Self::ALL.into_iter().find(|unit| unit.words().contains(&text));
        found.ok_or_else(|| ScoreUnitError(text.to_owned()))
    }
}

/// A text that is not the name of a score unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no unit of scores: expected s, ms, us or ns (or seconds, milliseconds, microseconds, \
     nanoseconds)"
)]
pub struct ScoreUnitError(String);
