//! The usual counter, to compare with: one number per customer and clock minute.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::MINUTE;

/// Admits `units` per customer in each clock minute; on the minute it starts again from zero.
#[derive(Debug, Default)]
pub(super) struct FixedWindow {
    counts: HashMap<&'static str, Count>,
}

#[derive(Debug, Default)]
struct Count {
    minute: u64,
    admitted: u32,
}

impl FixedWindow {
    /// Whether a request at this instant is admitted; it then counts.
    pub(super) fn admits(
        &mut self,
        customer: &'static str,
        units: NonZeroU32,
        at: Duration,
    ) -> bool {
        let minute = at.as_secs() / MINUTE.as_secs();
        let count = self.counts.entry(customer).or_default();
        if count.minute != minute {
            *count = Count { minute, admitted: 0 };
        }
        let admits = count.admitted < units.get();
        count.admitted += u32::from(admits);
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

    fn check(requests: &[(&'static str, u64, bool)]) {
        let mut window = FixedWindow::default();
        for &(customer, ms, expected) in requests {
            let admitted = window.admits(customer, TWO, Duration::from_millis(ms));
            assert_eq!(admitted, expected, "{customer} at {ms} ms");
        }
    }

    #[test]
    fn admits_the_units_and_no_more_within_a_clock_minute() {
        check(&[("a", 0, true), ("a", 1, true), ("a", 2, false), ("a", 59_999, false)]);
    }

    #[test]
    fn starts_again_on_the_minute() {
        check(&[
            ("a", 59_998, true),
            ("a", 59_999, true),
            ("a", 60_000, true),
            ("a", 60_001, true),
        ]);
    }

    #[test]
    fn counts_each_customer_alone() {
        check(&[("a", 0, true), ("a", 1, true), ("b", 2, true), ("a", 3, false), ("b", 4, true)]);
    }
}
