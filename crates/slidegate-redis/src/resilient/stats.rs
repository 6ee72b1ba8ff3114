//! What a resilient store has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::breaker::BreakerState;
use super::key_errors::KeyError;

/// What a [`ResilientStore`](crate::ResilientStore) has done so far.
///
/// It is a plain struct and not a metrics library's business: whoever embeds the store has one
/// already, and reads this when it is asked for numbers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ResilienceStats {
    /// Whether Redis is asked.
    pub breaker: BreakerState,
    /// How often the breaker has opened.
    pub opened: u64,
    /// Calls that Redis answered.
    pub answered: u64,
    /// Calls that Redis did not answer in time.
    pub deadlines: u64,
    /// Calls that failed otherwise.
    pub errors: u64,
    /// Requests decided without Redis: counted in this process, or let through.
    pub fallbacks: u64,
    /// Requests that were refused because Redis could not count them.
    pub refusals: u64,
    /// Requests decided without Redis because too many calls were under way.
    pub queue_full: u64,
    /// DenialCache answered again from memory.
    pub cache_hits: u64,
    /// DenialCache that are kept.
    pub cached: usize,
    /// Accounts whose spending Redis is still to be told of.
    pub unmerged: usize,
    /// Accounts whose spending Redis has been told of after a failure, each time counted.
    pub merges: u64,
    /// Units that Redis has been told of after a failure.
    pub merged_units: u64,
    /// Spends without Redis that found no room to be written down, and that it will not be told of.
    pub unrecorded: u64,
    /// Requests that Redis could not count because of one of their keys, by policy and reason.
    pub key_errors: Vec<KeyError>,
    /// How long the answered calls took.
    pub latency: Latency,
}

/// How long calls took: how many took up to each bound, in powers of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// Calls of up to 64 µs, 128 µs, and so on; the last are longer than all bounds.
    pub counts: [u64; BUCKETS],
    /// Of all calls together.
    pub total: Duration,
}

const BUCKETS: usize = 16;
const FIRST_BOUND_US: u64 = 64;

impl Latency {
    /// The longest that calls counted in a bucket took; none for the last bucket.
    pub fn bound(bucket: usize) -> Option<Duration> {
        (bucket + 1 < BUCKETS).then(|| Duration::from_micros(FIRST_BOUND_US << bucket))
    }

    /// How many calls there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The numbers as they grow.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) opened: AtomicU64,
    pub(crate) deadlines: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) fallbacks: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) queue_full: AtomicU64,
    pub(crate) cache_hits: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) merged_units: AtomicU64,
    pub(crate) unrecorded: AtomicU64,
    latency: [AtomicU64; BUCKETS],
    latency_ns: AtomicU64,
}

impl Counters {
    pub(crate) fn answered(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let over = took_us.saturating_sub(1) / FIRST_BOUND_US;
        let bucket = (u64::BITS - over.leading_zeros()) as usize;
        add(&self.latency[bucket.min(BUCKETS - 1)], 1);
        add(&self.latency_ns, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn snapshot(
        &self,
        breaker: BreakerState,
        cached: usize,
        unmerged: usize,
        key_errors: Vec<KeyError>,
    ) -> ResilienceStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let latency = Latency {
            counts: std::array::from_fn(|bucket| read(&self.latency[bucket])),
            total: Duration::from_nanos(read(&self.latency_ns)),
        };
        ResilienceStats {
            breaker,
            opened: read(&self.opened),
            answered: latency.count(),
            deadlines: read(&self.deadlines),
            errors: read(&self.errors),
            fallbacks: read(&self.fallbacks),
            refusals: read(&self.refusals),
            queue_full: read(&self.queue_full),
            cache_hits: read(&self.cache_hits),
            cached,
            unmerged,
            merges: read(&self.merges),
            merged_units: read(&self.merged_units),
            unrecorded: read(&self.unrecorded),
            key_errors,
            latency,
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_in_the_first_bucket_that_is_long_enough() {
        let counters = Counters::default();
        for us in [0, 64, 65, 128, 129, 1_000_000, 1_000_000_000] {
            counters.answered(Duration::from_micros(us));
        }
        let latency = counters.snapshot(BreakerState::Closed, 0, 0, Vec::new()).latency;
        assert_eq!(latency.counts[..3], [2, 2, 1]);
        assert_eq!(latency.counts[14], 1, "a second is up to {:?}", Latency::bound(14));
        assert_eq!(latency.counts[15], 1, "and a thousand are beyond all bounds");
        assert_eq!((latency.count(), Latency::bound(15)), (7, None));
    }
}
