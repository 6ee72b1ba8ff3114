//! Lengths of time as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A length of time, written as quotas write their windows: `50ms`, `90s`, `1min`, `7d`.
///
/// It is shown in the largest unit of which it is a multiple. The alternate form leaves out a count of
/// one, as a quota does after its slash.
///
/// ```
/// use std::time::Duration;
/// use slidegate::limit::Period;
///
/// let minute = Period(Duration::from_secs(60));
/// assert_eq!("60s".parse(), Ok(minute));
/// assert_eq!(minute.to_string(), "1min");
/// assert_eq!(format!("{minute:#}"), "min");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(pub Duration);

/// A text that is not a length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a length of time such as 50ms, 10s, 5min, 1h or 7d, at most 366 days")]
pub struct PeriodError;

pub(super) const SECOND_MS: u64 = 1000;
pub(super) const MINUTE_MS: u64 = 60 * SECOND_MS;
pub(super) const HOUR_MS: u64 = 60 * MINUTE_MS;
pub(super) const DAY_MS: u64 = 24 * HOUR_MS;

impl Period {
    /// The longest one, and the longest window of a quota: a leap year.
    pub const MAX: Self = Self(Duration::from_millis(366 * DAY_MS));

    /// Whole seconds, rounded up, so that a client that waits for them is never early.
    #[inline]
    pub const fn ceil_seconds(self) -> u64 {
        let has_rest = self.0.subsec_nanos() > 0;
        self.0.as_secs().saturating_add(has_rest as u64)
    }

    /// Whole milliseconds, rounded up: what ends after them has ended.
    pub fn ceil_milliseconds(self) -> u64 {
        u64::try_from(self.0.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// The length to a precision that suits people: `1min 30s`, `2.5s`, `40ms`.
    pub fn rounded(self) -> impl fmt::Display {
        RoundedPeriod(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.ceil_milliseconds();
        if ms == 0 {
            return f.write_str("0s");
        }
        if Duration::from_millis(ms) != self.0 {
            return write!(f, "{:?}", self.0);
        }
        let units = [(DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s")];
        let whole = units.into_iter().find(|(unit_ms, _)| ms.is_multiple_of(*unit_ms));
        let (unit_ms, unit) = whole.unwrap_or((1, "ms"));
        match ms / unit_ms {
            1 if f.alternate() => f.write_str(if unit == "d" { "day" } else { unit }),
            count => write!(f, "{count}{unit}"),
        }
    }
}

/// Reads a count and a unit: more than nothing, and at most what a quota's window can be.
impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        // A quota's window may be written without a count; a length of time may not.
        let has_count = text.starts_with(|c: char| c.is_ascii_digit());
        let ms = has_count.then(|| parse_window(text)).flatten();
        let period = ms.map(|ms| Self(Duration::from_millis(ms)));
        period.filter(|period| !period.0.is_zero() && *period <= Self::MAX).ok_or(PeriodError)
    }
}

/// `min`, `60s`, `500ms`: a count, which may be left out, and a unit of time.
pub(super) fn parse_window(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_at);
    let count: u64 = if count.is_empty() { 1 } else { count.parse().ok()? };
    let length_ms = match unit.trim_start() {
        "ms" => 1,
        "s" | "sec" | "second" | "seconds" => SECOND_MS,
        "m" | "min" | "minute" | "minutes" => MINUTE_MS,
        "h" | "hour" | "hours" => HOUR_MS,
        "d" | "day" | "days" => DAY_MS,
        "w" | "week" | "weeks" => 7 * DAY_MS,
        "year" => 365 * DAY_MS,
        _ => return None,
    };
    count.checked_mul(length_ms)
}

/// Milliseconds in the two largest units, rounded up to a second from ten seconds on.
struct RoundedPeriod(u64);

impl fmt::Display for RoundedPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0;
        let seconds = ms.div_ceil(1000);
        let (large, unit, small, smaller_unit) = match seconds {
            _ if ms < 1000 => return write!(f, "{ms}ms"),
            _ if ms < 10_000 && ms.is_multiple_of(1000) => return write!(f, "{}s", ms / 1000),
            _ if ms < 10_000 => return write!(f, "{}.{}s", ms / 1000, ms % 1000 / 100),
            0..60 => return write!(f, "{seconds}s"),
            60..3600 => (seconds / 60, "min", seconds % 60, "s"),
            3600..86_400 => (seconds / 3600, "h", seconds % 3600 / 60, "min"),
            _ => (seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
        };
        match small {
            0 => write!(f, "{large}{unit}"),
            small => write!(f, "{large}{unit} {small}{smaller_unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(ms: u64) -> Period {
        Period(Duration::from_millis(ms))
    }

    #[test]
    fn periods_are_read_and_written_as_in_quotas() {
        for (text, ms, shown) in [
            ("50ms", 50, "50ms"),
            ("10s", 10_000, "10s"),
            ("60s", 60_000, "1min"),
            ("5min", 300_000, "5min"),
            ("1h", 3_600_000, "1h"),
            ("2 days", 172_800_000, "2d"),
        ] {
            assert_eq!(text.parse(), Ok(period(ms)), "{text}");
            assert_eq!(period(ms).to_string(), shown);
        }
        let long = "9".repeat(40);
        for text in ["", "min", "0s", "-1s", "1.5s", "10", "10 parsecs", "367d", "+1s", &long] {
            assert_eq!(text.parse::<Period>(), Err(PeriodError), "{text}");
        }
    }

    #[test]
    fn every_period_has_a_text() {
        assert_eq!(period(0).to_string(), "0s");
        assert_eq!(Period(Duration::from_micros(1500)).to_string(), "1.5ms");
        assert_eq!(Period(Duration::from_micros(5)).to_string(), "5\u{b5}s");
        assert_eq!(format!("{:#} {:#} {:#}", period(1), period(2), period(DAY_MS)), "ms 2ms day");
        assert!(!Period(Duration::MAX).to_string().is_empty());
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (time, seconds) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_secs(1), 1),
            (Duration::new(1, 1), 2),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(Period(time).ceil_seconds(), seconds, "{time:?}");
        }
    }

    #[test]
    fn rounded_periods_have_at_most_two_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1s"),
            (1234, "1.2s"),
            (9999, "9.9s"),
            (12_001, "13s"),
            (59_999, "1min"),
            (60_000, "1min"),
            (61_000, "1min 1s"),
            (3_600_000, "1h"),
            (5_400_000, "1h 30min"),
            (86_400_000, "1d"),
            (31_622_400_000, "366d"),
        ] {
            assert_eq!(period(ms).rounded().to_string(), text);
        }
    }
}
