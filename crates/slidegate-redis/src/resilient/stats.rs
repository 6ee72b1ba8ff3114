//! What a resilient store has done, in numbers.

use std::time::Duration;

use super::breaker::BreakerState;
use super::key_errors::KeyError;
use crate::checkup::ServerReport;

/// What a [`ResilientStore`](crate::ResilientStore) has done so far, for the metrics of the program
/// that has it.
#[derive(Debug, Clone, Default)]
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
    /// Requests decided without Redis because too many calls were in flight.
    pub queue_full: u64,
    /// Denials answered again from memory.
    pub cache_hits: u64,
    /// Denials that are kept.
    pub cached: usize,
    /// Accounts whose spends without Redis are still to be replayed.
    pub unmerged: usize,
    /// Replays of an account's spends after a failure.
    pub merges: u64,
    /// Units that were replayed after a failure.
    pub merged_units: u64,
    /// Spends without Redis that found no room in the journal, and are not replayed.
    pub unrecorded: u64,
    /// Requests that Redis could not count because of one of their keys, by policy and reason.
    pub key_errors: Vec<KeyError>,
    /// How long the answered calls took.
    pub latency: Latency,
    /// What the server said of itself when it was last
    /// [asked](crate::ResilientStore::refresh_server_report).
    pub server: ServerReport,
}

/// How long calls took: how many took up to each bound, in powers of two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

    pub(crate) fn record(&mut self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let over = took_us.saturating_sub(1) / FIRST_BOUND_US;
        let bucket = (u64::BITS - over.leading_zeros()) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total = self.total.saturating_add(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_in_the_first_bucket_that_is_long_enough() {
        let mut latency = Latency::default();
        for us in [0, 64, 65, 128, 129, 1_000_000, 1_000_000_000] {
            latency.record(Duration::from_micros(us));
        }
        assert_eq!(latency.counts[..3], [2, 2, 1]);
        assert_eq!(latency.counts[14], 1, "a second is up to {:?}", Latency::bound(14));
        assert_eq!(latency.counts[15], 1, "and a thousand are beyond all bounds");
        assert_eq!((latency.count(), Latency::bound(15)), (7, None));
    }
}
