//! How long decisions took, in buckets fine enough for quantiles.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of decisions by duration. A quantile is too high by at most an eighth.
#[derive(Debug)]
pub(super) struct DecisionTimes([AtomicU64; BUCKETS]);

/// The counts at one time, or what came between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DurationCounts([u64; BUCKETS]);

/// Each power of two of nanoseconds is divided into this many buckets.
const PARTS: u64 = 1 << PART_BITS;
const PART_BITS: u32 = 3;
/// Up to 68 seconds; what takes longer is counted as that.
const BUCKETS: usize = (36 - PART_BITS as usize + 1) * PARTS as usize;

impl Default for DecisionTimes {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl DecisionTimes {
    pub(super) fn record(&self, time: Duration) {
        self.0[bucket(time)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> DurationCounts {
        DurationCounts(std::array::from_fn(|bucket| self.0[bucket].load(Ordering::Relaxed)))
    }
}

impl Default for DurationCounts {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl DurationCounts {
    /// What was counted after `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|bucket| self.0[bucket].saturating_sub(earlier.0[bucket])))
    }

    /// The time that this share of decisions, from 0 to 1, took at most; none if there was none.
    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.0.iter().sum();
        let rank = ((total as f64 * share).ceil() as u64).max(1);
        let mut so_far = 0;
        let bucket = self.0.iter().position(|count| {
            so_far += count;
            so_far >= rank
        });
        bucket.map(upper_bound)
    }
}

fn bucket(time: Duration) -> usize {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    // The highest bit and the next three say it.
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(PART_BITS + 1);
    let bucket = u64::from(shift) * PARTS + (ns >> shift);
    usize::try_from(bucket).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The longest time in a bucket.
fn upper_bound(bucket: usize) -> Duration {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    let next = (bucket - shift * PARTS + 1) << shift;
    Duration::from_nanos(next - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_at_most_an_eighth_wide_and_the_next_one_begins_where_it_ends() {
        for nth in 0..BUCKETS - 1 {
            let end = upper_bound(nth);
            assert_eq!(bucket(end), nth);
            assert_eq!(bucket(end + Duration::from_nanos(1)), nth + 1);
        }
        for ns in [0, 1, 15, 16, 17, 999, 1_000, 123_456, 7_000_000, 2_000_000_000, 60_000_000_000]
        {
            let time = Duration::from_nanos(ns);
            let bound = upper_bound(bucket(time));
            assert!(bound >= time && bound <= time + time / 8, "{time:?}: {bound:?}");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        assert!(upper_bound(BUCKETS - 1) > Duration::from_secs(68));
    }

    #[test]
    fn quantiles_are_of_what_came_between() {
        let times = DecisionTimes::default();
        assert_eq!(times.counts().quantile(0.5), None);
        times.record(Duration::from_secs(9));
        let before = times.counts();
        for us in 1..=100 {
            times.record(Duration::from_micros(us));
        }
        let step = times.counts().since(&before);
        for (share, us) in [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            let (found, expected) = (step.quantile(share).unwrap(), Duration::from_micros(us));
            assert!(found >= expected && found <= expected + expected / 8, "{share}: {found:?}");
        }
        assert_eq!(times.counts().since(&times.counts()).quantile(0.99), None);
    }
}
