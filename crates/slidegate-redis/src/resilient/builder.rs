//! Making a resilient store.

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
use super::{LocalShare, ResilientInner, ResilientStore};
use crate::store::RedisStore;

/// Makes a [`ResilientStore`].
#[must_use]
pub struct ResilientStoreBuilder {
    redis: RedisStore,
    share: LocalShare,
    opens_after: u32,
    most_in_flight: usize,
    capacity: usize,
    clock: Arc<dyn Clock>,
}

/// More than a hiccup, and reached within one deadline where there is traffic.
const OPENS_AFTER: u32 = 5;
/// What a deadline of 50 ms allows at 40,000 calls a second, twice over.
const MAX_IN_FLIGHT: usize = 4096;
const CAPACITY: usize = 1_000_000;

impl ResilientStoreBuilder {
    pub(crate) fn new(redis: RedisStore) -> Self {
        Self {
            redis,
            share: LocalShare::WHOLE,
            opens_after: OPENS_AFTER,
            most_in_flight: MAX_IN_FLIGHT,
            capacity: CAPACITY,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// How much of each quota this process may admit while Redis cannot be asked: all of it unless
    /// said otherwise. With one of `n` in each of `n` processes, what they admit by themselves stays
    /// within one quota.
    pub fn share(self, share: LocalShare) -> Self {
        Self { share, ..self }
    }

    /// How many failures in a row open the breaker: 5 unless said otherwise, at least 1.
    pub fn opens_after(self, failures: u32) -> Self {
        Self { opens_after: failures.max(1), ..self }
    }

    /// How many calls may be in flight at once: 4096 unless said otherwise. Others are decided
    /// without Redis.
    pub fn most_in_flight(self, calls: usize) -> Self {
        Self { most_in_flight: calls, ..self }
    }

    /// How many accounts this process knows of by itself: a million unless said otherwise.
    pub fn capacity(self, accounts: usize) -> Self {
        Self { capacity: accounts, ..self }
    }

    /// Sets the clock of what this process keeps by itself, for tests.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Makes the store. Nothing is connected until the first call.
    pub fn build(self) -> ResilientStore {
        ResilientStore(Arc::new(ResilientInner {
            breaker: Breaker::new(self.opens_after),
            local: LocalLedgers::new(self.capacity, self.share, self.clock.clone()),
            journal: Journal::default(),
            denials: DenialCache::new(),
            stats: Mutex::default(),
            key_errors: KeyErrors::new(self.clock.clone()),
            probe: Mutex::default(),
            in_flight: Semaphore::new(self.most_in_flight.min(Semaphore::MAX_PERMITS)),
            recovery: Mutex::default(),
            opened: Arc::default(),
            clock: self.clock,
            redis: self.redis,
        }))
    }
}
