//! The usual counter, to compare with: it starts again from zero at every boundary.

use std::time::Duration;

use slidegate::{Quota, Timestamp};

use super::max_in_window::{Span, most_within};

/// The most that the usual counter would have admitted in some interval of the quota's window, had
/// it been asked at these instants.
pub(super) fn most_admitted(quota: Quota, mut asked: Vec<Timestamp>) -> usize {
    asked.sort_unstable();
    let units = quota.units().get() as usize;
    let block = |at: &Timestamp| u128::from(at.as_nanos()) / window_ns(quota.window());
    let admitted = asked
        .chunk_by(|one, next| block(one) == block(next))
        .flat_map(|in_block| in_block.iter().take(units).map(|&at| Span { from: at, to: at }));
    most_within(admitted, quota.window())
}

fn window_ns(window: Duration) -> u128 {
    window.as_nanos().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked_ms: &[u64], expected: usize) {
        let quota: Quota = "2/10s".parse().unwrap();
        let asked = asked_ms.iter().copied().map(Timestamp::from_millis).collect();
        assert_eq!(most_admitted(quota, asked), expected, "{asked_ms:?}");
    }

    #[test]
    fn admits_the_units_and_no_more_within_a_block() {
        check(&[0, 1, 2, 9_999], 2);
        check(&[], 0);
    }

    #[test]
    fn admits_twice_the_units_around_a_boundary() {
        check(&[9_997, 9_998, 9_999, 10_000, 10_001, 10_002], 4);
    }
}
