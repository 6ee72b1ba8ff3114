//! Values that are written as strings: lengths of time and secrets.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use slidegate::Quota;

/// A length of time: a whole number and a unit that quotas know too, more than nothing and at most
/// 366 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(pub(crate) Duration);

impl FromStr for Period {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let counted = text.starts_with(|c: char| c.is_ascii_digit());
        // A quota's window may be written without a number; a length of time may not.
        let window = counted.then(|| format!("1/{text}").parse::<Quota>().ok()).flatten();
        window.map(|quota| Self(quota.window())).ok_or(EXPECTED_PERIOD)
    }
}

const EXPECTED_PERIOD: &str =
    "expected a length of time such as 50ms, 10s, 5min, 1h or 7d, at most 366 days";

impl fmt::Display for Period {
    /// Written as it would be in a quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
        let whole = units.into_iter().find(|(length, _)| ms.is_multiple_of(*length));
        let (length, unit) = whole.unwrap_or((1, "ms"));
        write!(f, "{}{unit}", ms / length)
    }
}

/// A secret that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// A secret from a file or a variable, without a trailing line break.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The secret itself. Do not print it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let period: Period = text.parse().unwrap();
            assert_eq!(period.0.as_millis(), ms, "{text}");
            assert_eq!(period.to_string(), shown);
        }
        for text in [
            "",
            "min",
            "0s",
            "-1s",
            "1.5s",
            "10",
            "10 parsecs",
            "367d",
            "+1s",
            "9".repeat(40).as_str(),
        ] {
            assert_eq!(text.parse::<Period>(), Err(EXPECTED_PERIOD), "{text}");
        }
    }
}
