//! How long things took: one histogram for the metrics and for the dashboard's quantiles.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Counts of durations. Recording takes no lock.
///
/// Each power of ten of nanoseconds is divided into ninety buckets of equal width, so a quantile is
/// too high by at most a tenth, and the bounds of the metrics are bounds of buckets too.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// The counts at one time, or those between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DurationCounts {
    counts: [u64; BUCKETS],
    sum_ns: u64,
}

/// The first bucket ends at 100 ns.
const FIRST_DECADE: u32 = 2;
/// Up to 100 seconds; longer times are counted in one bucket.
const DECADES: usize = 9;
const BUCKETS_PER_DECADE: usize = 90;
/// One before the decades, and one after them.
const BUCKETS: usize = 1 + DECADES * BUCKETS_PER_DECADE + 1;

/// The upper bounds in the metrics, in nanoseconds: from a refusal out of memory to a slow upstream.
const METRIC_BOUNDS_NS: [u64; 16] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub(super) fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> DurationCounts {
        DurationCounts {
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }
}

impl Default for DurationCounts {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum_ns: 0 }
    }
}

impl Sum for DurationCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            counts: std::array::from_fn(|bucket| sum.counts[bucket] + one.counts[bucket]),
            sum_ns: sum.sum_ns.wrapping_add(one.sum_ns),
        })
    }
}

impl DurationCounts {
    /// What was counted after `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let since = |bucket: usize| self.counts[bucket].saturating_sub(earlier.counts[bucket]);
        Self {
            counts: std::array::from_fn(since),
            sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns),
        }
    }

    /// The time that this share, from 0 to 1, took at most. `None` if nothing was counted.
    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.counts.iter().sum();
        let rank = ((total as f64 * share).ceil() as u64).max(1);
        let mut so_far = 0;
        let bucket = self.counts.iter().position(|count| {
            so_far += count;
            so_far >= rank
        });
        bucket.map(|bucket| Duration::from_nanos(upper_bound_ns(bucket)))
    }
}

impl EncodeMetric for DurationCounts {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut begin = 0;
        let mut up_to =
            |end: usize| self.counts[std::mem::replace(&mut begin, end)..end].iter().sum();
        let bounds = METRIC_BOUNDS_NS.map(|bound_ns| {
            let seconds = Duration::from_nanos(bound_ns).as_secs_f64();
            (seconds, up_to(bucket(bound_ns) + 1))
        });
        let rest = (f64::INFINITY, up_to(BUCKETS));
        let buckets: Vec<(f64, u64)> = bounds.into_iter().chain([rest]).collect();
        let sum = Duration::from_nanos(self.sum_ns).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, self.counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for DurationCounts {
    const TYPE: MetricType = MetricType::Histogram;
}

/// The bucket of a duration, which is longer than the upper bound of the one before.
fn bucket(ns: u64) -> usize {
    let Some(decade) = ns.saturating_sub(1).checked_ilog10().filter(|d| *d >= FIRST_DECADE) else {
        return 0;
    };
    let part = (ns - 1 - 10_u64.pow(decade)) / 10_u64.pow(decade - 1);
    let bucket = 1 + (decade - FIRST_DECADE) as usize * BUCKETS_PER_DECADE + part as usize;
    bucket.min(BUCKETS - 1)
}

/// The longest time in a bucket.
fn upper_bound_ns(bucket: usize) -> u64 {
    let Some(index) = bucket.checked_sub(1) else { return 10_u64.pow(FIRST_DECADE) };
    let decade = FIRST_DECADE + (index / BUCKETS_PER_DECADE) as u32;
    10_u64.pow(decade) + (index % BUCKETS_PER_DECADE + 1) as u64 * 10_u64.pow(decade - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_at_most_a_tenth_wide_and_the_next_one_begins_where_it_ends() {
        for nth in 0..BUCKETS - 1 {
            let end = upper_bound_ns(nth);
            assert_eq!((bucket(end), bucket(end + 1)), (nth, nth + 1), "{end}");
        }
        for ns in [101, 110, 111, 999, 1_000, 1_001, 123_456, 7_000_000, 60_000_000_000] {
            let bound = upper_bound_ns(bucket(ns));
            assert!(bound >= ns && bound <= ns + ns / 10 + 1, "{ns}: {bound}");
        }
        assert_eq!((bucket(0), bucket(1), bucket(u64::MAX)), (0, 0, BUCKETS - 1));
        assert_eq!(upper_bound_ns(BUCKETS - 2), 100_000_000_000);
    }

    #[test]
    fn bounds_of_the_metrics_are_bounds_of_buckets() {
        for bound_ns in METRIC_BOUNDS_NS {
            assert_eq!(upper_bound_ns(bucket(bound_ns)), bound_ns);
        }
    }

    #[test]
    fn quantiles_are_of_what_came_between() {
        let times = Histogram::default();
        assert_eq!(times.counts().quantile(0.5), None);
        times.record(Duration::from_secs(9));
        let before = times.counts();
        for us in 1..=100 {
            times.record(Duration::from_micros(us));
        }
        let step = times.counts().since(&before);
        for (share, us) in [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            let (found, expected) = (step.quantile(share).unwrap(), Duration::from_micros(us));
            assert!(found >= expected && found <= expected + expected / 10, "{share}: {found:?}");
        }
        assert_eq!(times.counts().since(&times.counts()).quantile(0.99), None);
    }
}
