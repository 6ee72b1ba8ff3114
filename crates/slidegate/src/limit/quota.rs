//! How much may be spent in how long: the quota and its text form.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use crate::limit::clock::NANOS_PER_MILLI;

use crate::limit::period::{DAY_MS, HOUR_MS, MINUTE_MS, Period, SECOND_MS, parse_window};

/// At most `units` in any interval of length `window`.
///
/// ```
/// use slidegate::Quota;
///
/// let quota: Quota = "5/60s".parse()?;
/// assert_eq!(quota, Quota::per_minute(5));
/// assert_eq!(quota.to_string(), "5/min");
/// # Ok::<(), slidegate::QuotaError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    units: NonZeroU32,
    window_ms: u64,
}

/// Ledgers of up to this many units are kept to the millisecond; larger ones share this many
/// ticks a window, so that a million a day costs kilobytes.
pub(crate) const FINE_UNITS: u32 = 4096;

impl Quota {
    /// The longest window: a leap year.
    pub const MAX_WINDOW: Duration = Period::MAX.0;

    /// A quota over any window of whole milliseconds, up to [`Quota::MAX_WINDOW`].
    pub fn new(units: NonZeroU32, window: Duration) -> Result<Self, QuotaError> {
        let whole = window.subsec_nanos().is_multiple_of(NANOS_PER_MILLI as u32);
        if window.is_zero() || window > Self::MAX_WINDOW || !whole {
            return Err(QuotaError::Window(format!("{window:?}")));
        }
        Ok(Self { units, window_ms: window.as_millis() as u64 })
    }

    /// `units` in any second.
    ///
    /// # Panics
    /// If `units` is zero; in a `const` that is a compile error.
    pub const fn per_second(units: u32) -> Self {
        Self::of(units, SECOND_MS)
    }

    /// `units` in any minute.
    ///
    /// # Panics
    /// If `units` is zero; in a `const` that is a compile error.
    pub const fn per_minute(units: u32) -> Self {
        Self::of(units, MINUTE_MS)
    }

    /// `units` in any hour.
    ///
    /// # Panics
    /// If `units` is zero; in a `const` that is a compile error.
    pub const fn per_hour(units: u32) -> Self {
        Self::of(units, HOUR_MS)
    }

    /// `units` in any 24 hours.
    ///
    /// # Panics
    /// If `units` is zero; in a `const` that is a compile error.
    pub const fn per_day(units: u32) -> Self {
        Self::of(units, DAY_MS)
    }

    const fn of(units: u32, window_ms: u64) -> Self {
        let units = NonZeroU32::new(units).expect("a quota has at least one unit");
        Self { units, window_ms }
    }

    /// How much may be spent in any window.
    pub const fn units(self) -> NonZeroU32 {
        self.units
    }

    /// The length of the window.
    pub const fn window(self) -> Duration {
        Duration::from_millis(self.window_ms)
    }

    /// How finely spends are stamped: a spent unit is free again at most this long after `window`.
    ///
    /// One millisecond up to 4096 units, else a 4096th of the window rounded up to a millisecond.
    pub const fn tick(self) -> Duration {
        Duration::from_millis(self.tick_ms())
    }

    /// The latest reset that is sent to clients: the window, plus the [tick](Self::tick) if that is
    /// longer than a millisecond.
    ///
    /// A unit of `60/min` may be held for a part of a millisecond more than its minute. Rounded up
    /// to whole seconds that would be 61, which clients take for a mistake. Only the time to retry
    /// after a denial is never too early.
    pub const fn longest_reset(self) -> Duration {
        let tick_ms = self.tick_ms();
        Duration::from_millis(self.window_ms + if tick_ms > 1 { tick_ms } else { 0 })
    }

    #[inline]
    pub(crate) const fn window_ms(self) -> u64 {
        self.window_ms
    }

    /// Whether spends are stamped with ticks coarser than a millisecond, or could be.
    #[inline]
    pub(crate) const fn is_coarse(self) -> bool {
        self.units.get() > FINE_UNITS
    }

    #[inline]
    pub(crate) const fn tick_ms(self) -> u64 {
        if self.is_coarse() { coarse_tick_ms(self.window_ms) } else { 1 }
    }
}

/// The tick of quotas that are not kept to the millisecond.
#[inline]
pub(crate) const fn coarse_tick_ms(window_ms: u64) -> u64 {
    window_ms.div_ceil(FINE_UNITS as u64)
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:#}", self.units, Period(self.window()))
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

impl FromStr for Quota {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, QuotaError> {
        let (units, window) =
            text.split_once('/').ok_or_else(|| QuotaError::Format(text.to_owned()))?;
        let units = units.trim();
        let units = parse_units(units).ok_or_else(|| QuotaError::Units(units.to_owned()))?;
        let window = window.trim();
        let window_ms =
            parse_window(window).ok_or_else(|| QuotaError::Window(window.to_owned()))?;
        Self::new(units, Duration::from_millis(window_ms))
            .map_err(|_| QuotaError::Window(window.to_owned()))
    }
}

impl TryFrom<&str> for Quota {
    type Error = QuotaError;

    fn try_from(text: &str) -> Result<Self, QuotaError> {
        text.parse()
    }
}

/// A whole number, in which an underscore may stand between two digits.
fn parse_units(text: &str) -> Option<NonZeroU32> {
    if text.split('_').any(str::is_empty) {
        return None;
    }
    digits(&text.replace('_', ""))
}

/// What units with a suffix for thousands or millions would be in digits, as an addition to an error.
fn without_suffix(text: &str) -> String {
    let split = text.char_indices().next_back().map_or(0, |(at, _)| at);
    let (count, suffix) = text.split_at(split);
    let thousands = match suffix {
        "k" | "K" => 1000,
        "m" | "M" => 1_000_000,
        _ => return String::new(),
    };
    let units = digits::<u32>(count.trim_end()).and_then(|count| count.checked_mul(thousands));
    units.map_or_else(String::new, |units| format!("; did you mean {units}?"))
}

/// Only digits: `parse` alone would let a plus sign pass.
fn digits<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Why a quota could not be made, and what would have been one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// There is no `/` between units and window.
    #[error("{0:?} is not a quota: expected units/window, such as 60/min, 5/60s or 10000/day")]
    Format(String),
    /// The units are not a whole number from 1 to 4294967295.
    #[error(
        "{0:?} are not units: expected a whole number from 1 to 4294967295{meant}",
        meant = without_suffix(.0)
    )]
    Units(String),
    /// The window is not a length of time that can be kept.
    #[error(
        "{0:?} is not a window: expected a time such as s, min, h, day, 500ms, 90s or 7d, \
         in whole milliseconds and at most 366 days"
    )]
    Window(String),
}

/// The quotas that one account keeps together: at least one, each with a different window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quotas(Box<[Quota]>);

impl Quotas {
    /// Checks that there is a quota and that no two share a window.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Result<Self, QuotasError> {
        let list: Box<[Quota]> = quotas.into_iter().collect();
        if list.is_empty() {
            return Err(QuotasError::Empty);
        }
        for (i, quota) in list.iter().enumerate() {
            if let Some(twin) = list[..i].iter().find(|q| q.window_ms == quota.window_ms) {
                return Err(QuotasError::SameWindow(*twin, *quota));
            }
        }
        Ok(Self(list))
    }

    /// The quotas in the order they were given.
    pub fn as_slice(&self) -> &[Quota] {
        &self.0
    }

    /// One quota for each window of these, with the most units that it has; none if there are none.
    pub(crate) fn of_windows<'q>(quotas: impl Iterator<Item = &'q Quota>) -> Option<Self> {
        let mut list: Vec<Quota> = quotas.copied().collect();
        list.sort_unstable_by_key(|quota| (quota.window_ms, std::cmp::Reverse(quota.units)));
        list.dedup_by_key(|quota| quota.window_ms);
        Self::new(list).ok()
    }

    /// The same windows, each with as many more units as `by` has for it.
    pub(crate) fn raised(&self, by: impl Fn(Duration) -> u32) -> Self {
        let raise = |quota: &Quota| {
            let units = quota.units.saturating_add(by(quota.window()));
            Quota { units, ..*quota }
        };
        Self(self.0.iter().map(raise).collect())
    }

    /// The same units over windows that are longer, each by what `by` has for it.
    pub(crate) fn stretched(&self, by: impl Fn(Duration) -> Duration) -> Self {
        let stretch = |quota: &Quota| {
            let window_ms = quota.window_ms + by(quota.window()).as_millis() as u64;
            Quota { window_ms, ..*quota }
        };
        Self(self.0.iter().map(stretch).collect())
    }

    /// Whether each window of the others is the window of one of these.
    pub(crate) fn has_windows_of(&self, others: &Self) -> bool {
        let has = |window_ms| self.0.iter().any(|quota| quota.window_ms == window_ms);
        others.0.iter().all(|quota| has(quota.window_ms))
    }

    /// These quotas, and for each window of the others that none of them has one that limits nothing;
    /// none if they have all windows.
    pub(crate) fn with_windows_of(&self, others: &Self) -> Option<Self> {
        let has = |window_ms| self.0.iter().any(|quota| quota.window_ms == window_ms);
        let lacking = others.0.iter().filter(|quota| !has(quota.window_ms));
        let unlimited = lacking.map(|quota| Quota { units: NonZeroU32::MAX, ..*quota });
        let all: Box<[Quota]> = self.0.iter().copied().chain(unlimited).collect();
        (all.len() > self.0.len()).then_some(Self(all))
    }

    pub(crate) fn longest_window(&self) -> Duration {
        self.0.iter().map(|quota| quota.window()).max().expect("there is at least one")
    }

    /// The units of the tightest quota: no cost may be above it, or it could never be paid.
    pub fn fewest_units(&self) -> NonZeroU32 {
        self.0.iter().map(|quota| quota.units).min().expect("there is at least one")
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self(Box::new([quota]))
    }
}

/// Why quotas cannot stand together in one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotasError {
    /// There are none.
    #[error("no quotas: expected at least one, such as 60/min")]
    Empty,
    /// Two have one window, so the larger would never matter.
    #[error("{0} and {1} have the same window: keep the smaller")]
    SameWindow(Quota, Quota),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_from_texts_and_have_a_canonical_form() {
        for (text, canonical) in [
            ("60/min", "60/min"),
            ("5/60s", "5/min"),
            ("3/1h", "3/h"),
            ("3/3600s", "3/h"),
            ("10000/day", "10000/day"),
            ("10_000/day", "10000/day"),
            ("1_0_0/s", "100/s"),
            ("50/s", "50/s"),
            ("1/500ms", "1/500ms"),
            ("1/1500ms", "1/1500ms"),
            ("7/90s", "7/90s"),
            ("100/week", "100/7d"),
            ("1000/year", "1000/365d"),
            (" 60 / min ", "60/min"),
            ("4294967295/366d", "4294967295/366d"),
        ] {
            let quota: Quota = text.parse().unwrap();
            assert_eq!(quota.to_string(), canonical, "{text}");
            assert_eq!(canonical.parse(), Ok(quota), "{canonical} reads back");
        }
    }

    #[test]
    fn bad_texts_say_what_was_expected() {
        for (text, part, expected) in [
            ("", "\"\"", "units/window"),
            ("60", "\"60\"", "units/window"),
            ("60 per minute", "\"60 per minute\"", "units/window"),
            ("0/min", "\"0\"", "from 1 to 4294967295"),
            ("-1/min", "\"-1\"", "from 1 to 4294967295"),
            ("+5/min", "\"+5\"", "from 1 to 4294967295"),
            ("1.5/min", "\"1.5\"", "from 1 to 4294967295"),
            ("4294967296/min", "\"4294967296\"", "from 1 to 4294967295"),
            ("_1/min", "\"_1\"", "from 1 to 4294967295"),
            ("1_/min", "\"1_\"", "from 1 to 4294967295"),
            ("1__0/min", "\"1__0\"", "from 1 to 4294967295"),
            ("10k/day", "\"10k\"", "did you mean 10000?"),
            ("2 M/day", "\"2 M\"", "did you mean 2000000?"),
            ("5000M/day", "\"5000M\"", "to 4294967295"),
            ("60/", "\"\"", "s, min, h, day"),
            ("60/60", "\"60\"", "s, min, h, day"),
            ("60/fortnight", "\"fortnight\"", "s, min, h, day"),
            ("60/0s", "\"0s\"", "s, min, h, day"),
            ("60/367d", "\"367d\"", "at most 366 days"),
            ("60/99999999999999999999d", "\"99999999999999999999d\"", "at most 366 days"),
            ("60/18446744073709551615d", "\"18446744073709551615d\"", "at most 366 days"),
            ("60/min/min", "\"min/min\"", "s, min, h, day"),
        ] {
            let message = text.parse::<Quota>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn windows_below_a_millisecond_cannot_be_built() {
        let one = NonZeroU32::MIN;
        assert!(Quota::new(one, Duration::from_micros(1500)).is_err());
        assert!(Quota::new(one, Duration::ZERO).is_err());
        assert!(Quota::new(one, Quota::MAX_WINDOW + Duration::from_millis(1)).is_err());
        assert!(Quota::new(one, Quota::MAX_WINDOW).is_ok());
    }

    #[test]
    fn a_tick_is_a_millisecond_or_a_4096th() {
        assert_eq!(Quota::per_minute(4096).tick(), Duration::from_millis(1));
        assert_eq!(Quota::per_minute(4097).tick(), Duration::from_millis(15));
        assert_eq!(Quota::per_day(1_000_000).tick(), Duration::from_millis(21094));
        assert_eq!(Quota::per_second(1_000_000).tick(), Duration::from_millis(1));
    }

    #[test]
    fn quotas_of_one_account_have_different_windows() {
        let pair = [Quota::per_minute(60), Quota::per_day(10_000)];
        assert_eq!(Quotas::new(pair).unwrap().fewest_units().get(), 60);
        assert_eq!(Quotas::new([]), Err(QuotasError::Empty));
        assert_eq!(
            Quotas::new([pair[0], Quota::per_minute(100)]),
            Err(QuotasError::SameWindow(pair[0], Quota::per_minute(100)))
        );
    }
}
