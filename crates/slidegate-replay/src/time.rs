//! Instants as logs write them.

use std::time::Duration;

use jiff::Timestamp as Instant;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::Offset;
use slidegate::Timestamp;

/// Reads instants, and remembers the last: in a busy log, many lines have the same second.
#[derive(Debug, Default)]
pub(crate) struct TimeReader {
    last_text: String,
    last: Timestamp,
    /// Whether an instant was not a whole second.
    has_fractions: bool,
}

/// A text that is not an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a time from 1970 to 2554, such as 10/Oct/2026:13:55:36 +0000, \
     2026-10-10T13:55:36.123Z or 1791640536.123"
)]
pub(crate) struct ParseTimeError;

impl TimeReader {
    /// Whether all instants so far are whole seconds.
    pub(crate) fn is_whole_seconds(&self) -> bool {
        !self.has_fractions
    }

    pub(crate) fn read(&mut self, text: &str) -> Result<Timestamp, ParseTimeError> {
        if text == self.last_text && !text.is_empty() {
            return Ok(self.last);
        }
        let at = parse(text).ok_or(ParseTimeError)?;
        self.has_fractions |= !at.as_nanos().is_multiple_of(1_000_000_000);
        self.last_text.clear();
        self.last_text.push_str(text);
        self.last = at;
        Ok(at)
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    match text.as_bytes() {
        [_, _, b'/', ..] => {
            since_epoch(strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?.to_timestamp().ok()?)
        }
        bytes if bytes.iter().all(|b| b.is_ascii_digit() || *b == b'.') => parse_number(text),
        _ => {
            let instant = text.parse::<Instant>().ok();
            // Without an offset it is UTC, as databases write it.
            let civil = || Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok();
            since_epoch(instant.or_else(civil)?)
        }
    }
}

fn since_epoch(instant: Instant) -> Option<Timestamp> {
    let nanos = u64::try_from(instant.as_nanosecond()).ok()?;
    Some(Timestamp::from_nanos(nanos))
}

/// Seconds since the epoch, or milliseconds, microseconds or nanoseconds if there are too many digits
/// for that.
fn parse_number(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole_number: u64 = whole.parse().ok()?;
    let unit_ns = match whole.len() {
        0..=10 => 1_000_000_000,
        11..=13 => 1_000_000,
        14..=16 => 1000,
        _ => 1,
    };
    let fraction: f64 =
        if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().ok()? };
    let fraction_ns = (fraction * unit_ns as f64).round() as u64;
    let nanos = whole_number.checked_mul(unit_ns)?.checked_add(fraction_ns)?;
    Some(Timestamp::default() + Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_instant_means_the_same() {
        let whole = 1_791_640_536_000_000_000;
        for (text, ns) in [
            ("10/Oct/2026:13:55:36 +0000", whole),
            ("10/Oct/2026:15:55:36 +0200", whole),
            ("2026-10-10T13:55:36+00:00", whole),
            ("2026-10-10T13:55:36Z", whole),
            ("2026-10-10T13:55:36", whole),
            ("2026-10-10 13:55:36", whole),
            ("2026-10-10T13:55:36.123Z", whole + 123_000_000),
            ("2026-10-10T13:55:36.123456Z", whole + 123_456_000),
            ("1791640536", whole),
            ("1791640536.123", whole + 123_000_000),
            ("1791640536123", whole + 123_000_000),
            ("1791640536123456", whole + 123_456_000),
            ("1791640536123456789", whole + 123_456_789),
        ] {
            let mut times = TimeReader::default();
            assert_eq!(times.read(text), Ok(Timestamp::from_nanos(ns)), "{text}");
            assert_eq!(times.read(text), Ok(Timestamp::from_nanos(ns)), "{text}");
            assert_eq!(times.is_whole_seconds(), ns == whole);
        }
        for text in [
            "",
            "now",
            "10/Oct/2026",
            "32/Oct/2026:13:55:36 +0000",
            "1.2.3",
            "-5",
            "1960-01-01T00:00:00Z",
        ] {
            assert!(TimeReader::default().read(text).is_err(), "{text}");
        }
    }
}
