//! Counters of a resilient store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::breaker::BreakerState;
use super::key_errors::KeyError;
use crate::checkup::ServerReport;

/// Counters of a [`ResilientStore`](crate::ResilientStore) since the start, for metrics.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ResilienceStats {
    /// State of the circuit breaker.
    pub breaker: BreakerState,
    /// How often the breaker has opened.
    pub opened: u64,
    /// Calls that Redis answered.
    pub answered: u64,
    /// Calls that exceeded their deadline.
    pub deadlines: u64,
    /// Calls that failed for another reason.
    pub errors: u64,
    /// Requests decided without Redis: counted locally, or allowed.
    pub fallbacks: u64,
    /// Requests that were refused because Redis could not count them.
    pub refusals: u64,
    /// Requests decided without Redis because too many calls were in flight.
    pub queue_full: u64,
    /// Requests denied from the cache.
    pub cache_hits: u64,
    /// Denials in the cache.
    pub cached: usize,
    /// Accounts with spends still to be replayed.
    pub unmerged: usize,
    /// Replays of an account's spends after a failure.
    pub merges: u64,
    /// Units that were replayed after a failure.
    pub merged_units: u64,
    /// Spends without Redis that are not replayed because the journal was full.
    pub unrecorded: u64,
    /// Requests that Redis could not count because of one of their keys, by policy and reason.
    pub key_errors: Vec<KeyError>,
    /// How long the answered calls took.
    pub latency: Latency,
    /// The server report of the last
    /// [refresh](crate::ResilientStore::refresh_server_report).
    pub server: ServerReport,
}

/// Latency histogram of calls, with bounds in powers of two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latency {
    /// Calls of up to 64 µs, 128 µs, and so on; the last are longer than all bounds.
    pub counts: [u64; BUCKETS],
    /// Sum over all calls.
    pub total: Duration,
}

/// The counters of [`ResilienceStats`], which calls add to without a lock.
#[derive(Debug, Default)]
pub(super) struct ResilienceCounts {
    pub(super) opened: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) deadlines: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) fallbacks: AtomicU64,
    pub(super) refusals: AtomicU64,
    pub(super) queue_full: AtomicU64,
    pub(super) cache_hits: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) merged_units: AtomicU64,
    pub(super) unrecorded: AtomicU64,
    latency: [AtomicU64; BUCKETS],
    latency_ns: AtomicU64,
}

impl ResilienceCounts {
    /// Counts a call that Redis answered.
    pub(super) fn answered(&self, took: Duration) {
        add(&self.answered, 1);
        add(&self.latency[bucket(took)], 1);
        add(&self.latency_ns, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The counters as they are. What is not counted here is left at its default.
    pub(super) fn stats(&self) -> ResilienceStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ResilienceStats {
            opened: get(&self.opened),
            answered: get(&self.answered),
            deadlines: get(&self.deadlines),
            errors: get(&self.errors),
            fallbacks: get(&self.fallbacks),
            refusals: get(&self.refusals),
            queue_full: get(&self.queue_full),
            cache_hits: get(&self.cache_hits),
            merges: get(&self.merges),
            merged_units: get(&self.merged_units),
            unrecorded: get(&self.unrecorded),
            latency: Latency {
                counts: std::array::from_fn(|bucket| get(&self.latency[bucket])),
                total: Duration::from_nanos(get(&self.latency_ns)),
            },
            ..ResilienceStats::default()
        }
    }
}

pub(super) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

const BUCKETS: usize = 16;
const FIRST_BOUND_US: u64 = 64;

impl Latency {
    /// The upper bound of a bucket; `None` for the last one.
    pub fn bound(bucket: usize) -> Option<Duration> {
        (bucket + 1 < BUCKETS).then(|| Duration::from_micros(FIRST_BOUND_US << bucket))
    }

    /// The number of calls.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The first bucket that is long enough.
fn bucket(took: Duration) -> usize {
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let over = took_us.saturating_sub(1) / FIRST_BOUND_US;
    let bucket = (u64::BITS - over.leading_zeros()) as usize;
    bucket.min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_in_the_first_bucket_that_is_long_enough() {
        let counts = ResilienceCounts::default();
        for us in [0, 64, 65, 128, 129, 1_000_000, 1_000_000_000] {
            counts.answered(Duration::from_micros(us));
        }
        let latency = counts.stats().latency;
        assert_eq!(latency.counts[..3], [2, 2, 1]);
        assert_eq!(latency.counts[14], 1, "a second is up to {:?}", Latency::bound(14));
        assert_eq!(latency.counts[15], 1, "and a thousand are beyond all bounds");
        assert_eq!((latency.count(), Latency::bound(15)), (7, None));
    }
}
