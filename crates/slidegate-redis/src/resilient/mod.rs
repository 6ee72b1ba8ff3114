//! A store that outlives outages of Redis.

mod breaker;
mod builder;
mod denials;
mod journal;
mod key_errors;
mod local;
mod recovery;
mod stats;

use std::error::Error;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slidegate::limit::{Charge, Charges, Receipt, Spent};
use slidegate::{Clock, OnStoreError, Store, StoreError};
use tokio::sync::Semaphore;

use self::breaker::Breaker;
pub use self::breaker::BreakerState;
pub use self::builder::ResilientStoreBuilder;
use self::denials::{DenialCache, RoundTrip};
pub(crate) use self::journal::AgedUnits;
use self::journal::Journal;
pub use self::key_errors::KeyError;
use self::key_errors::KeyErrors;
use self::local::LocalLedgers;
pub use self::local::{LocalShare, LocalShareError};
use self::stats::{Counters, add};
pub use self::stats::{Latency, ResilienceStats};
use crate::error::{KeyErrorReason, MissingPermission, RedisStoreError};
use crate::owned::OwnedCharge;
use crate::script::Mode;
use crate::store::RedisStore;

/// A [`RedisStore`] with a circuit breaker and local ledgers, so that an outage of Redis is none of
/// the service.
///
/// - Every call ends by its deadline, and only so many are in flight at once.
/// - After some failures in a row the breaker opens: Redis is only probed, with backoff, until it
///   answers. Starting without Redis is no different.
/// - What Redis cannot count is decided by each policy's [`OnStoreError`]. `local` counts in this
///   process, which knows what it has admitted before: it never admits more than a quota, or its
///   [share](ResilientStoreBuilder::share) of it, in any window, its own earlier admissions
///   included. When Redis is back it is told of all that was admitted meanwhile, with the times at
///   which it was, before it decides again.
/// - A denial that is certain is answered again without Redis, for a second at most.
#[derive(Clone)]
pub struct ResilientStore(Arc<ResilientInner>);

pub(crate) struct ResilientInner {
    redis: RedisStore,
    breaker: Breaker,
    local: LocalLedgers,
    journal: Journal,
    denials: DenialCache,
    counters: Counters,
    key_errors: KeyErrors,
    /// The charge of the next probe.
    probe: Mutex<Option<OwnedCharge>>,
    in_flight: Semaphore,
    /// Whether the recovery task is running.
    recovering: AtomicBool,
    clock: Arc<dyn Clock>,
}

impl ResilientStore {
    /// A store with the usual settings.
    pub fn new(redis: RedisStore) -> Self {
        Self::builder(redis).build()
    }

    /// Begins to make a store.
    pub fn builder(redis: RedisStore) -> ResilientStoreBuilder {
        ResilientStoreBuilder::new(redis)
    }

    fn from_builder(builder: ResilientStoreBuilder) -> Self {
        Self(Arc::new(ResilientInner {
            breaker: Breaker::new(builder.opens_after),
            local: LocalLedgers::new(builder.capacity, builder.share, builder.clock.clone()),
            journal: Journal::new(),
            denials: DenialCache::new(),
            counters: Counters::default(),
            key_errors: KeyErrors::new(builder.clock.clone()),
            probe: Mutex::default(),
            in_flight: Semaphore::new(builder.most_in_flight.min(Semaphore::MAX_PERMITS)),
            recovering: AtomicBool::new(false),
            clock: builder.clock,
            redis: builder.redis,
        }))
    }

    /// What it has done so far.
    pub fn stats(&self) -> ResilienceStats {
        let inner = &self.0;
        let (breaker, cached) = (inner.breaker.state(), inner.denials.len());
        let key_errors = inner.key_errors.snapshot();
        inner.counters.snapshot(breaker, cached, inner.journal.accounts(), key_errors)
    }

    /// The store that it makes resilient.
    pub fn redis(&self) -> &RedisStore {
        &self.0.redis
    }

    async fn decide(&self, mode: Mode, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        let inner = &self.0;
        if !inner.breaker.is_closed() {
            return self.fall_back(mode, charges, StoreError::Unavailable(Box::new(CircuitOpen)));
        }
        let Ok(_permit) = inner.in_flight.try_acquire() else {
            add(&inner.counters.queue_full, 1);
            let error = StoreError::Unavailable(Box::new(QueueFull));
            return self.fall_back(mode, charges, error);
        };
        let (sent, generation) = (inner.clock.now(), inner.denials.generation(charges.as_slice()));
        let answer = match mode {
            Mode::Peek => inner.redis.peek(charges).await,
            Mode::Spend | Mode::Deny => inner.redis.spend(charges).await,
        };
        match answer {
            Ok(receipt) => {
                let trip = RoundTrip { sent, back: inner.clock.now(), generation };
                inner.counters.answered(trip.back.saturating_since(trip.sent));
                inner.breaker.succeeded();
                if mode == Mode::Spend {
                    inner.learn(charges, &receipt, trip);
                }
                Ok(receipt)
            }
            Err(error) => {
                self.failed(&error, charges);
                self.fall_back(mode, charges, error)
            }
        }
    }

    /// Decides without Redis, each charge by its `on_store_error`.
    ///
    /// If the connection broke, Redis may have counted the request all the same, and is told of it
    /// again: of a ledger's units nobody can say whose they are, and one too many is stricter, never
    /// looser.
    fn fall_back(
        &self,
        mode: Mode,
        charges: &Charges<'_>,
        error: StoreError,
    ) -> Result<Receipt, StoreError> {
        let inner = &self.0;
        let refuses = |charge: &Charge<'_>| {
            charge.store_error_action() == OnStoreError::Deny && !charge.is_shadow()
        };
        if !inner.breaker.is_closed() {
            recovery::ensure_running(self);
        }
        if charges.as_slice().iter().any(refuses) {
            add(&inner.counters.refusals, 1);
            return Err(error);
        }
        add(&inner.counters.fallbacks, 1);
        let decided = inner.local.decide(mode, charges)?;
        for (charge, at) in decided.spent() {
            if !inner.journal.record(&charge, at) {
                add(&inner.counters.unrecorded, 1);
            }
        }
        if decided.spent().next().is_some() {
            recovery::ensure_running(self);
        }
        Ok(decided.into_receipt())
    }

    fn failed(&self, error: &StoreError, charges: &Charges<'_>) {
        let inner = &self.0;
        let counter = match error {
            StoreError::Deadline(_) => &inner.counters.deadlines,
            _ => &inner.counters.errors,
        };
        add(counter, 1);
        if let Some((failure, reason)) = RedisStoreError::about_a_key(error) {
            inner.key_failed(failure, reason, charges.as_slice());
        } else if inner.breaker.failed() {
            add(&inner.counters.opened, 1);
            if let Some(charge) = charges.as_slice().first() {
                *inner.probe.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(recovery::probe_beside(charge));
            }
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            tracing::warn!(
                address = %inner.redis,
                cause,
                "Redis circuit breaker opened; applying each policy's on_store_error"
            );
            recovery::ensure_running(self);
        }
    }

    /// What to say when Redis is needed for something and is not asked.
    fn must_be_closed(&self) -> Result<(), StoreError> {
        match self.0.breaker.is_closed() {
            true => Ok(()),
            false => Err(StoreError::Unavailable(Box::new(CircuitOpen))),
        }
    }
}

impl ResilientInner {
    /// Counts a request that Redis cannot count because of one of its keys, and warns of it.
    fn key_failed(
        &self,
        failure: &RedisStoreError,
        reason: KeyErrorReason,
        charges: &[Charge<'_>],
    ) {
        let policies = charges.iter().map(Charge::policy);
        if !self.key_errors.count(policies.clone(), reason) {
            return;
        }
        let list = |items: Vec<String>| items.join(" ");
        let grant = failure.missing_permission().and_then(|missing| match missing {
            MissingPermission::Key => {
                Some(list(policies.clone().map(|policy| self.redis.pattern_of(policy)).collect()))
            }
            MissingPermission::Command(command) => command.map(|command| format!("+{command}")),
        });
        tracing::warn!(
            address = %self.redis,
            policy = list(policies.map(ToString::to_string).collect()),
            reason = reason.as_str(),
            keys = list(self.redis.keys(charges).unwrap_or_default()),
            grant = grant.as_deref(),
            cause = %failure,
            "Redis cannot count in a key of this policy; applying its on_store_error"
        );
    }

    /// Remembers what an answer of Redis says of the requests to come.
    fn learn(&self, charges: &Charges<'_>, receipt: &Receipt, trip: RoundTrip) {
        if receipt.spent {
            self.local.learn(charges);
        }
        self.denials.learn(charges, receipt, trip);
    }
}

impl Store for ResilientStore {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        let inner = &self.0;
        if let Some(denied) = inner.denials.find(charges, inner.clock.now()) {
            add(&inner.counters.cache_hits, 1);
            return Ok(denied);
        }
        self.decide(Mode::Spend, charges).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.decide(Mode::Peek, charges).await
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        let inner = &self.0;
        inner.denials.forget(charges);
        let mut elsewhere = Charges::new();
        for charge in charges.as_slice() {
            match spent {
                Spent::At(at) if inner.journal.refund(charge, at) => {
                    inner.local.refund(charge, spent);
                }
                _ => elsewhere.push(*charge).expect("the accounts differ"),
            }
        }
        if elsewhere.is_empty() {
            return Ok(());
        }
        self.must_be_closed()?;
        let outcome = inner.redis.refund(&elsewhere, spent).await;
        outcome.inspect_err(|error| self.failed(error, &elsewhere))?;
        elsewhere.as_slice().iter().for_each(|charge| inner.local.refund(charge, Spent::Newest));
        // A denial that was under way meanwhile may have been kept since.
        inner.denials.forget(charges);
        Ok(())
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        let inner = &self.0;
        inner.local.reset(charges);
        charges.as_slice().iter().for_each(|charge| inner.journal.forget(charge));
        inner.denials.forget(charges);
        self.must_be_closed()?;
        let outcome = inner.redis.reset(charges).await;
        let outcome = outcome.inspect_err(|error| self.failed(error, charges));
        // A denial that was under way meanwhile may have been kept since.
        inner.denials.forget(charges);
        outcome
    }

    fn forget(&self, charges: &Charges<'_>, ago: Duration) {
        let inner = &self.0;
        let at = inner.clock.now() - ago;
        inner.local.reset_as_of(charges, at);
        charges.as_slice().iter().for_each(|charge| inner.journal.forget_until(charge, at));
        inner.denials.forget(charges);
    }
}

impl fmt::Debug for ResilientStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResilientStore")
            .field("redis", &self.0.redis)
            .field("breaker", &self.0.breaker.state())
            .finish_non_exhaustive()
    }
}

/// Redis has failed too often and is not asked.
#[derive(Debug, thiserror::Error)]
#[error("the Redis circuit breaker is open")]
struct CircuitOpen;

/// As many calls are in flight as may be.
#[derive(Debug, thiserror::Error)]
#[error("too many calls to Redis are in flight")]
struct QueueFull;
