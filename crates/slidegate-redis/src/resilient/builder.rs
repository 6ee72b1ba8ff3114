//! Builder of a resilient store.

use std::sync::Arc;

use parking_lot::Mutex;
use slidegate::Clock;
use slidegate::limit::SystemClock;
use tokio::sync::Semaphore;

use super::breaker::Breaker;
use super::denials::DenialCache;
use super::journal::Journal;
use super::key_errors::KeyErrors;
use super::local::LocalLedgers;
use super::stats::ResilienceCounts;
use super::{LocalShare, ResilientInner, ResilientStore};
use crate::store::RedisStore;

/// Builds a [`ResilientStore`].
#[must_use]
pub struct ResilientStoreBuilder {
    redis: RedisStore,
    share: LocalShare,
    opens_after: u32,
    max_in_flight: usize,
    capacity: usize,
    clock: Arc<dyn Clock>,
    hash_seed: Option<u64>,
}

/// More than a transient error, and reached within one deadline under load.
const FAILURES_UNTIL_OPEN: u32 = 5;
/// Twice the calls in flight at 40,000 calls per second with a deadline of 50 ms.
const MAX_IN_FLIGHT: usize = 4096;
const DEFAULT_CAPACITY: usize = 1_000_000;

impl ResilientStoreBuilder {
    pub(crate) fn new(redis: RedisStore) -> Self {
        Self {
            redis,
            share: LocalShare::WHOLE,
            opens_after: FAILURES_UNTIL_OPEN,
            max_in_flight: MAX_IN_FLIGHT,
            capacity: DEFAULT_CAPACITY,
            clock: Arc::new(SystemClock::new()),
            hash_seed: None,
        }
    }

    /// Sets the part of each quota that this process admits while Redis is unavailable. The default
    /// is the whole quota. With a share of `1/n` in each of `n` processes, they stay within one
    /// quota together.
    pub fn share(self, share: LocalShare) -> Self {
        Self { share, ..self }
    }

    /// Sets how many consecutive failures open the breaker: 5 by default, at least 1.
    pub fn opens_after(self, failures: u32) -> Self {
        Self { opens_after: failures.max(1), ..self }
    }

    /// Sets the maximum number of calls in flight: 4096 by default. Further calls are decided
    /// without Redis.
    pub fn max_in_flight(self, calls: usize) -> Self {
        Self { max_in_flight: calls, ..self }
    }

    /// Sets the capacity of the local ledgers in accounts: a million by default.
    pub fn capacity(self, accounts: usize) -> Self {
        Self { capacity: accounts, ..self }
    }

    /// Sets the clock of the local ledgers, for tests.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Sets the seed of the hashes of accounts, which is random by default, so that a simulation is the
    /// same in every process.
    #[doc(hidden)]
    pub fn hash_seed(self, seed: u64) -> Self {
        Self { hash_seed: Some(seed), ..self }
    }

    /// Builds the store. It connects on the first call.
    pub fn build(self) -> ResilientStore {
        ResilientStore(Arc::new(ResilientInner {
            breaker: Breaker::new(self.opens_after),
            local: LocalLedgers::new(self.capacity, self.share, self.clock.clone()),
            journal: Journal::default(),
            denials: DenialCache::new(self.hash_seed),
            counts: ResilienceCounts::default(),
            server: Mutex::default(),
            key_errors: KeyErrors::new(self.clock.clone()),
            probe: Mutex::default(),
            in_flight: Semaphore::new(self.max_in_flight.min(Semaphore::MAX_PERMITS)),
            recovery: Mutex::default(),
            opened: Arc::default(),
            clock: self.clock,
            redis: self.redis,
        }))
    }
}
