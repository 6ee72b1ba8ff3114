//! Instants of the calendar, as text.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use slidegate::Timestamp;

/// An instant of the calendar as RFC 3339 has it: written in UTC, to a millisecond, such as
/// `2026-01-01T12:00:00.000Z`; read with `Z` or any other offset from UTC, from 1970 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rfc3339(
    /// The instant.
    pub Timestamp,
);

/// A text that is not an instant of RFC 3339 from 1970 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an instant such as 2026-01-01T12:00:00Z")]
pub struct ParseInstantError;

impl Rfc3339 {
    /// The instant so many milliseconds after the beginning of 1970.
    pub fn from_millis(ms: u64) -> Self {
        Self(Timestamp::from_millis(ms))
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX);
        let instant = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{instant:.3}")
    }
}

impl FromStr for Rfc3339 {
    type Err = ParseInstantError;

    fn from_str(text: &str) -> Result<Self, ParseInstantError> {
        let instant: jiff::Timestamp = text.parse().map_err(|_| ParseInstantError)?;
        let since_epoch =
            Duration::try_from(instant.as_duration()).map_err(|_| ParseInstantError)?;
        Ok(Self(Timestamp::default() + since_epoch))
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_the_calendar_has_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let at = Timestamp::default() + Duration::from_millis(ms);
            assert_eq!(Rfc3339(at).to_string(), text);
            assert_eq!(text.parse(), Ok(Rfc3339(at)));
        }
        assert!(Rfc3339::from_millis(u64::MAX).to_string().starts_with("2554-"), "the last one");
    }

    #[test]
    fn instants_are_read_with_an_offset_from_utc() {
        let at = |ms| Ok(Rfc3339(Timestamp::from_millis(ms)));
        assert_eq!("2026-01-01T00:00:00Z".parse(), at(1_767_225_600_000));
        assert_eq!("2026-01-01T00:00:00.5Z".parse(), at(1_767_225_600_500));
        assert_eq!("2026-01-01T00:00:00.123000000Z".parse(), at(1_767_225_600_123));
        assert_eq!("2026-01-01T02:00:00+02:00".parse(), at(1_767_225_600_000));
        for text in [
            "",
            "Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-1-1T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01T00:00:00Z ",
            "\u{662}026-01-01T00:00:00Z",
        ] {
            assert_eq!(text.parse::<Rfc3339>(), Err(ParseInstantError), "{text}");
        }
    }
}
