//! The yardstick: what the fullest interval of a length saw, from the clients' records alone.

use std::time::Duration;

use slidegate::Timestamp;

use super::log::LoggedRequest;

/// When something happened, as well as it is known: not before, and not after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl Span {
    /// A client sees its request go and the answer come. It was decided in between.
    pub(super) fn of(record: &LoggedRequest) -> Self {
        Self { from: record.sent, to: record.answered }
    }
}

/// The most spans that are wholly within some half-open interval of this length. So many things
/// certainly happened in one; a span that sticks out may be of another.
///
/// Some fullest interval begins where a span does, so only those are tried, one after the other.
pub(super) fn most_within(spans: impl IntoIterator<Item = Span>, length: Duration) -> usize {
    let mut spans: Vec<Span> = spans.into_iter().collect();
    spans.sort_unstable();
    let within = |(first, span): (usize, &Span)| {
        let end = span.from + length;
        spans[first..].iter().take_while(|s| s.from < end).filter(|s| s.to < end).count()
    };
    spans.iter().enumerate().map(within).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn check(spans_ms: &[(u64, u64)], expected: usize) {
        let at = Timestamp::from_millis;
        let spans = spans_ms.iter().map(|&(from, to)| Span { from: at(from), to: at(to) });
        assert_eq!(most_within(spans, MINUTE), expected, "{spans_ms:?}");
    }

    #[test]
    fn nothing_is_zero() {
        check(&[], 0);
    }

    #[test]
    fn what_is_exactly_a_window_later_is_in_another_interval() {
        check(&[(0, 0), (60_000, 60_000)], 1);
        check(&[(0, 0), (59_999, 59_999)], 2);
        check(&[(1, 1), (60_000, 60_000), (60_001, 60_001)], 2);
    }

    #[test]
    fn what_happens_at_once_all_counts() {
        check(&[(5, 6), (5, 6), (5, 6)], 3);
    }

    #[test]
    fn the_fullest_interval_may_be_anywhere() {
        check(&[(0, 0), (100_000, 100_001), (130_000, 130_001), (159_998, 159_999)], 3);
        check(&[(59_000, 59_001), (0, 1), (61_000, 61_001), (60_500, 60_501)], 3);
    }

    #[test]
    fn what_may_have_happened_later_is_not_held_against_anyone() {
        check(&[(0, 0), (59_999, 60_001)], 1);
        check(&[(0, 0), (59_998, 59_999)], 2);
    }
}
