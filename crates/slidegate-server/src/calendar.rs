//! Instants as people and programs write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use slidegate::Timestamp;

/// An instant of the calendar in UTC, to a millisecond, such as `2026-01-01T12:00:00.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rfc3339(pub(crate) Timestamp);

const MILLIS_PER_DAY: u64 = 24 * 3600 * 1000;
/// The calendar repeats itself after 400 years.
const DAYS_PER_ERA: u64 = 146_097;
/// From the first of March of the year 0 to 1970.
const DAYS_BEFORE_EPOCH: u64 = 719_468;

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let (year, month, day) = date(ms / MILLIS_PER_DAY);
        let ms = ms % MILLIS_PER_DAY;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        write!(f, ".{:03}Z", ms % 1000)
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// Reads what it writes, and the same without a fraction or with fewer or more digits of it: always
/// in UTC, with a `T` and a `Z`, so that there is no ambiguity of time zones.
impl FromStr for Rfc3339 {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let (whole, fraction) = text
            .strip_suffix('Z')
            .map(|text| text.split_once('.').unwrap_or((text, "0")))
            .ok_or(CalendarError)?;
        let is_shaped = whole.len() == SHAPE.len()
            && whole.bytes().zip(SHAPE.bytes()).all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                mark => byte == mark,
            });
        let is_fraction =
            (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
        if !is_shaped || !is_fraction {
            return Err(CalendarError);
        }
        let number = |from: usize, to: usize| whole[from..to].parse::<u64>().ok();
        let part = |from, to| number(from, to).ok_or(CalendarError);
        let days = days((part(0, 4)?, part(5, 7)?, part(8, 10)?)).ok_or(CalendarError)?;
        let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
        if hour > 23 || minute > 59 || second > 59 {
            return Err(CalendarError);
        }
        let seconds = days * (MILLIS_PER_DAY / 1000) + hour * 3600 + minute * 60 + second;
        let nanos: u32 = format!("{fraction:0<9}").parse().map_err(|_| CalendarError)?;
        Ok(Self(Timestamp::default() + Duration::new(seconds, nanos)))
    }
}

const SHAPE: &str = "0000-00-00T00:00:00";

/// A text that is no instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an instant in UTC such as 2026-01-01T12:00:00Z")]
pub(crate) struct CalendarError;

/// How many days after the first of January 1970 this day is, if there is such a day and it is not
/// before that.
fn days(day: (u64, u64, u64)) -> Option<u64> {
    let (year, month, day_of_month) = day;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let (year, month_from_march) =
        if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month_from_march + 2) / 5 + day_of_month.checked_sub(1)?;
    let (era, year) = (year / 400, year % 400);
    let day_of_era = year * 365 + year / 4 - year / 100 + day_of_year;
    let days = (era * DAYS_PER_ERA + day_of_era).checked_sub(DAYS_BEFORE_EPOCH)?;
    // The thirtieth of February is another day.
    (date(days) == day).then_some(days)
}

/// Year, month and day, so many days after the first of January 1970. Years are taken to begin in
/// March, so that the day that only some of them have is the last one.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_EPOCH;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let first_of_year = 365 * year_of_era + year_of_era / 4 - year_of_era / 100;
    let day_of_year = day_of_era - first_of_year;
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_the_calendar_has_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let at = Timestamp::default() + Duration::from_millis(ms);
            assert_eq!(Rfc3339(at).to_string(), text);
            assert_eq!(text.parse(), Ok(Rfc3339(at)));
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut last = date(0);
        for days in 1..=DAYS_PER_ERA {
            let (year, month, day) = date(days);
            assert_eq!(super::days((year, month, day)), Some(days));
            let is_next = match day {
                1 => (year, month) == (last.0 + u64::from(last.1 == 12), last.1 % 12 + 1),
                _ => (year, month, day) == (last.0, last.1, last.2 + 1),
            };
            assert!(is_next && day <= 31, "{year}-{month}-{day} after {last:?}");
            last = (year, month, day);
        }
        assert_eq!(last, (2370, 1, 1));
    }

    #[test]
    fn instants_are_read_strictly() {
        let at = |ms| Ok(Rfc3339(Timestamp::from_millis(ms)));
        assert_eq!("2026-01-01T00:00:00Z".parse(), at(1_767_225_600_000));
        assert_eq!("2026-01-01T00:00:00.5Z".parse(), at(1_767_225_600_500));
        assert_eq!("2026-01-01T00:00:00.123000000Z".parse(), at(1_767_225_600_123));
        for text in [
            "",
            "Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+00:00",
            "2026-01-01 00:00:00Z",
            "2026-01-01t00:00:00z",
            "2026-1-1T00:00:00Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567890Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z ",
            "\u{662}026-01-01T00:00:00Z",
            "2026-01-01T00:00:0\u{e9}Z",
        ] {
            assert_eq!(text.parse::<Rfc3339>(), Err(CalendarError), "{text}");
        }
    }
}
