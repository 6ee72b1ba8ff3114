//! How long things took: a histogram that is added to without a lock.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::exposition::Histogram;
use super::per_thread::{PerThread, add_own, count_own};

/// From a refusal out of memory to a slow upstream.
const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// How many took up to each bound; the last took longer than all of them.
#[derive(Debug, Default)]
pub(super) struct Timing {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    total_ns: AtomicU64,
}

impl Timing {
    #[inline]
    pub(super) fn add(&self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let took_us = took_ns.div_ceil(1000);
        count_own(&self.counts[BOUNDS_US.partition_point(|bound_us| *bound_us < took_us)]);
        add_own(&self.total_ns, took_ns);
    }

    /// What all threads together have seen.
    pub(super) fn histogram<T>(of: &PerThread<T>, timing: impl Fn(&T) -> &Timing) -> Histogram {
        let bounds = BOUNDS_US.iter().map(|us| Duration::from_micros(*us).as_secs_f64());
        let bounds = bounds.chain([f64::INFINITY]).enumerate();
        let counted = |(i, bound)| (bound, of.sum(|own| &timing(own).counts[i]));
        Histogram {
            buckets: bounds.map(counted).collect(),
            total: Duration::from_nanos(of.sum(|own| &timing(own).total_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_at_the_first_bound_that_it_does_not_pass() {
        let timings = PerThread::<Timing>::default();
        for us in [0, 100, 101, 10_000_000, 10_000_001] {
            timings.own().add(Duration::from_micros(us));
        }
        let histogram = Timing::histogram(&timings, |own| own);
        let counts: Vec<u64> = histogram.buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!((counts[0], counts[1], counts[15], counts[16]), (2, 1, 1, 1));
        assert_eq!(histogram.total, Duration::from_micros(20_000_202));
    }

    #[test]
    fn a_nanosecond_past_a_bound_is_past_it() {
        let timings = PerThread::<Timing>::default();
        timings.own().add(Duration::from_nanos(100_001));
        let histogram = Timing::histogram(&timings, |own| own);
        assert_eq!((histogram.buckets[0].1, histogram.buckets[1].1), (0, 1));
    }
}
