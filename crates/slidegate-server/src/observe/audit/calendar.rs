//! Instants as people and programs write them.

use std::fmt;

use serde::{Serialize, Serializer};
use slidegate::Timestamp;

/// An instant of the calendar in UTC, to a millisecond, such as `2026-01-01T12:00:00.000Z`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rfc3339(pub(super) Timestamp);

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
    use std::time::Duration;

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
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut last = date(0);
        for days in 1..=DAYS_PER_ERA {
            let (year, month, day) = date(days);
            let is_next = match day {
                1 => (year, month) == (last.0 + u64::from(last.1 == 12), last.1 % 12 + 1),
                _ => (year, month, day) == (last.0, last.1, last.2 + 1),
            };
            assert!(is_next && day <= 31, "{year}-{month}-{day} after {last:?}");
            last = (year, month, day);
        }
        assert_eq!(last, (2370, 1, 1));
    }
}
