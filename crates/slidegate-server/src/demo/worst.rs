//! The yardstick: what the worst 60 seconds saw, from the instants alone.

use std::time::Duration;

use super::MINUTE;

/// The most instants that any half-open interval of exactly 60 seconds has in it.
///
/// Some fullest interval begins at an instant, so only those are tried. The instants must be in
/// order.
pub(super) fn worst(instants: &[Duration]) -> usize {
    let mut worst = 0;
    let mut end = 0;
    for (begin, first) in instants.iter().enumerate() {
        while instants.get(end).is_some_and(|instant| *instant < *first + MINUTE) {
            end += 1;
        }
        worst = worst.max(end - begin);
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(instants_ms: &[u64], expected: usize) {
        let instants: Vec<_> = instants_ms.iter().copied().map(Duration::from_millis).collect();
        assert_eq!(worst(&instants), expected, "{instants_ms:?}");
    }

    #[test]
    fn nothing_is_zero() {
        check(&[], 0);
    }

    #[test]
    fn an_instant_exactly_60_seconds_later_is_in_another_interval() {
        check(&[0, 60_000], 1);
        check(&[0, 59_999], 2);
        check(&[1, 60_000, 60_001], 2);
    }

    #[test]
    fn simultaneous_instants_all_count() {
        check(&[5, 5, 5], 3);
    }

    #[test]
    fn the_worst_interval_may_be_anywhere() {
        check(&[0, 100_000, 130_000, 159_999, 160_000, 300_000], 3);
        check(&[0, 59_000, 59_500, 60_500, 61_000, 118_999], 5);
    }
}
