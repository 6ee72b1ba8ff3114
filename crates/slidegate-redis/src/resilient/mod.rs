//! A store that keeps deciding during outages of Redis.

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
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use slidegate::limit::{
    AccountReading, Charge, Charges, Difference, MemoryStats, OnDenial, Once, Receipt, Settled,
    Settlement, Spent,
};
use slidegate::{Clock, OnStoreError, Store, StoreError, Timestamp};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::breaker::Breaker;
pub use self::breaker::BreakerState;
pub use self::builder::ResilientStoreBuilder;
use self::denials::{DenialCache, RequestHash, RoundTrip};
use self::journal::Journal;
pub use self::key_errors::KeyError;
use self::key_errors::KeyErrors;
use self::local::LocalLedgers;
pub use self::local::{LocalShare, LocalShareError};
pub use self::stats::{Latency, ResilienceStats};
use self::stats::{ResilienceCounts, add};
use crate::checkup::ServerReport;
use crate::error::{KeyErrorReason, MissingPermission, RedisStoreError};
use crate::owned::OwnedCharge;
use crate::script::Mode;
use crate::store::{RedisStore, written_by};

/// Before each time that a settlement is sent again which has missed its deadline.
const SETTLE_WAITS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
    Duration::from_millis(6400),
];

/// How long Redis remembers a settlement without a name: longer than it is sent again, but there may be
/// one for each request.
const SETTLE_MARK_TTL: Duration = Duration::from_secs(15);

/// A [`RedisStore`] with a circuit breaker and local ledgers, so that an outage of Redis does not
/// become one of the service.
///
/// - Every call ends by its deadline, and the number of calls in flight is limited.
/// - After consecutive failures the breaker opens, and Redis is only probed, with backoff, until it
///   responds. A start without Redis is handled the same way.
/// - Each policy's [`OnStoreError`] decides what Redis cannot count. `local` counts in this process,
///   which has recorded its earlier admissions: it never admits more than a quota, or its
///   [share](ResilientStoreBuilder::share) of it, in any window, its own earlier admissions
///   included. When Redis is back, all that was admitted meanwhile is replayed, with its times,
///   before Redis decides for the account again.
/// - A denial is cached for up to one second while it is certain, and then answered without Redis.
///
/// ```no_run
/// use slidegate_redis::{RedisStore, ResilientStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = RedisStore::builder("redis://127.0.0.1:6379").build()?;
/// // Of each quota, this process admits a fourth while Redis is away: there are four of them.
/// let store = ResilientStore::builder(redis).share("1/4".parse()?).build();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ResilientStore(Arc<ResilientInner>);

pub(crate) struct ResilientInner {
    redis: RedisStore,
    breaker: Breaker,
    local: LocalLedgers,
    journal: Journal,
    denials: DenialCache,
    counts: ResilienceCounts,
    /// The report of the last refresh.
    server: Mutex<ServerReport>,
    key_errors: KeyErrors,
    /// The charge of the next probe.
    probe: Mutex<Option<OwnedCharge>>,
    in_flight: Semaphore,
    /// The recovery task, while there is something to recover.
    recovery: Mutex<Option<JoinHandle<()>>>,
    /// Wakes the recovery task when the breaker opens.
    opened: Arc<Notify>,
    clock: Arc<dyn Clock>,
}

impl ResilientStore {
    /// A store with default settings.
    pub fn new(redis: RedisStore) -> Self {
        Self::builder(redis).build()
    }

    /// Returns a builder.
    pub fn builder(redis: RedisStore) -> ResilientStoreBuilder {
        ResilientStoreBuilder::new(redis)
    }

    /// Counters since the start.
    pub fn stats(&self) -> ResilienceStats {
        let inner = &self.0;
        ResilienceStats {
            breaker: inner.breaker.state(),
            cached: inner.denials.len(),
            unmerged: inner.journal.accounts(),
            key_errors: inner.key_errors.snapshot(),
            server: inner.server.lock().clone(),
            ..inner.counts.stats()
        }
    }

    /// Usage of the local ledgers.
    pub fn local_stats(&self) -> MemoryStats {
        self.0.local.store.stats()
    }

    /// Refreshes the server report in [`stats`](Self::stats). On failure the previous report
    /// stays.
    pub async fn refresh_server_report(&self) -> Result<(), StoreError> {
        let report = self.0.redis.server_report().await?;
        *self.0.server.lock() = report;
        Ok(())
    }

    /// The wrapped store.
    pub fn redis(&self) -> &RedisStore {
        &self.0.redis
    }

    /// Asks Redis, or decides without it. A spend has the request's hash.
    async fn decide(
        &self,
        mode: Mode,
        charges: &Charges<'_>,
        hash: Option<&RequestHash>,
    ) -> Result<Receipt, StoreError> {
        let inner = &self.0;
        if let Err(open) = self.must_be_closed() {
            return self.fall_back(mode, charges, open);
        }
        let Ok(_permit) = inner.in_flight.try_acquire() else {
            add(&inner.counts.queue_full, 1);
            return self.fall_back(mode, charges, RedisStoreError::QueueFull.into());
        };
        match self.ask(mode, charges, hash).await {
            Ok(receipt) => Ok(receipt),
            Err(error) => {
                self.failed(&error, charges);
                self.fall_back(mode, charges, error)
            }
        }
    }

    async fn ask(
        &self,
        mode: Mode,
        charges: &Charges<'_>,
        hash: Option<&RequestHash>,
    ) -> Result<Receipt, StoreError> {
        let inner = &self.0;
        let limit = self.replay_first(charges).await?;
        let generation = hash.map_or(0, |hash| inner.denials.generation(hash));
        let sent = inner.clock.now();
        let receipt = inner.redis.decide_within(limit, mode, charges.as_slice()).await?;
        let trip = RoundTrip { sent, back: inner.clock.now(), generation };
        inner.counts.answered(trip.back.saturating_since(trip.sent));
        inner.breaker.succeeded();
        if let Some(hash) = hash {
            inner.local.learn(written_by(charges.as_slice(), &receipt));
            inner.denials.learn(charges, hash, &receipt, trip);
            // A record makes the waits of cached denials longer.
            if charges.as_slice().iter().any(|charge| charge.on_denial() == OnDenial::Record) {
                inner.denials.forget(charges);
            }
        }
        Ok(receipt)
    }

    /// Replays what these accounts spent without Redis before this call, so that Redis includes it in
    /// the decision. Returns the rest of the deadline.
    ///
    /// What is recorded later is from calls that overlap with this one: Redis may decide it before their
    /// replay, as it may decide a call that was in flight when another missed its deadline. So beside
    /// the quota one process admits at most as many calls as it has in flight for the account.
    async fn replay_first(&self, charges: &Charges<'_>) -> Result<Duration, StoreError> {
        let (inner, deadline) = (&self.0, self.0.redis.deadline());
        if inner.journal.is_empty() {
            return Ok(deadline);
        }
        let began = Instant::now();
        let replays = async {
            for (account, newest) in inner.journal.pages_of(charges, inner.clock.now()) {
                inner.replay_account(&account, newest).await?;
            }
            Ok(())
        };
        inner.redis.within(deadline, replays).await?;
        Ok(deadline.saturating_sub(began.elapsed()))
    }

    /// Decides without Redis, each charge by its `on_store_error`.
    ///
    /// If the connection broke, Redis may have counted the request all the same, and it is replayed
    /// nonetheless: units in a ledger have no owner, and one too many is stricter, never looser.
    fn fall_back(
        &self,
        mode: Mode,
        charges: &Charges<'_>,
        error: StoreError,
    ) -> Result<Receipt, StoreError> {
        let inner = &self.0;
        let refuses = |charge: &Charge<'_>| {
            charge.store_error_action() == OnStoreError::Deny
                && !charge.is_shadow()
                && charge.on_denial() != OnDenial::Record
        };
        if !inner.breaker.is_closed() {
            recovery::ensure_running(self);
        }
        if charges.as_slice().iter().any(refuses) {
            add(&inner.counts.refusals, 1);
            return Err(error);
        }
        add(&inner.counts.fallbacks, 1);
        let (receipt, spends) = inner.local.decide(mode, charges)?;
        for charge in spends.as_slice() {
            if !inner.journal.record(charge, receipt.at) {
                add(&inner.counts.unrecorded, 1);
            }
        }
        if !spends.is_empty() {
            recovery::ensure_running(self);
        }
        Ok(receipt)
    }

    fn failed(&self, error: &StoreError, charges: &Charges<'_>) {
        let inner = &self.0;
        let failures = match error {
            StoreError::Deadline(_) => &inner.counts.deadlines,
            _ => &inner.counts.errors,
        };
        add(failures, 1);
        if let Some((failure, reason)) = RedisStoreError::about_a_key(error) {
            inner.key_failed(failure, reason, charges.as_slice());
        } else if inner.breaker.failed() {
            add(&inner.counts.opened, 1);
            if let Some(charge) = charges.as_slice().first() {
                *inner.probe.lock() = Some(recovery::probe_beside(charge));
            }
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            tracing::warn!(
                address = %inner.redis,
                cause,
                "Redis circuit breaker opened; applying each policy's on_store_error"
            );
            recovery::ensure_running(self);
            inner.opened.notify_one();
        }
    }

    /// Settles a charge that was admitted without Redis and is not replayed yet.
    fn settle_locally(
        &self,
        charge: &Charge<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        let inner = &self.0;
        let settled = inner.local.store.settle_now(&(*charge).into(), settlement)?;
        match settlement.difference(charge) {
            _ if settled == Settled::Before => {}
            Difference::None => {}
            Difference::Refund(units) => {
                let unused = charge.with_cost(units).expect("less than the charge has cost");
                inner.journal.refund(&unused, settlement.at);
            }
            Difference::Record(units) => self.record_in_journal(&charge.record(units)),
        }
        Ok(settled)
    }

    /// Settles charges of Redis while it is unavailable: units above the hold are recorded here and
    /// replayed. What is to be refunded stays spent, and so does all that is to be settled under a
    /// name, because another process may do it: the call can be repeated.
    fn settle_without_redis(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
        error: StoreError,
    ) -> Result<Settled, StoreError> {
        let mut error = Some(error);
        for charge in charges.as_slice() {
            if let Difference::Record(units) = settlement.difference(charge)
                && settlement.once.is_none()
            {
                self.0.local.learn(std::iter::once(charge.record(units)));
                self.record_in_journal(&charge.record(units));
            } else if settlement.units != charge.cost().get() || settlement.once.is_some() {
                return Err(error.take().expect("returned once"));
            }
        }
        Ok(Settled::Now)
    }

    /// Sends a settlement again that has missed its deadline: Redis may have made it, and makes it once
    /// under its name. If it cannot be sent, it is settled as without Redis.
    fn settle_late(&self, charges: &Charges<'_>, settlement: Settlement<'_>, name: String) {
        let owned: Vec<OwnedCharge> = charges.as_slice().iter().map(OwnedCharge::from).collect();
        let (store, Settlement { at, units, .. }) = (self.clone(), settlement);
        self.0.redis.spawn(async move {
            let charges = crate::owned::charges(owned.iter().map(OwnedCharge::as_charge));
            for wait in SETTLE_WAITS {
                tokio::time::sleep(wait).await;
                let once = Some(Once { id: &name, within: SETTLE_MARK_TTL });
                let settlement = Settlement { at, units, once };
                if store.0.redis.settle(&charges, settlement).await.is_ok() {
                    store.0.local.settled_elsewhere(&charges, settlement);
                    return;
                }
            }
            let settlement = Settlement { at, units, once: None };
            let gone = RedisStoreError::CircuitOpen.into();
            if let Err(error) = store.settle_without_redis(&charges, settlement, gone) {
                tracing::debug!(%error, "a hold was not settled");
            }
        });
    }

    fn record_in_journal(&self, charge: &Charge<'_>) {
        let inner = &self.0;
        if !inner.journal.record(charge, inner.clock.now()) {
            add(&inner.counts.unrecorded, 1);
        }
        recovery::ensure_running(self);
    }

    /// Removes local records of spends up to `at`.
    fn forget_until(&self, charges: &Charges<'_>, at: Timestamp) {
        let inner = &self.0;
        inner.local.store.reset_as_of(charges, at);
        charges.as_slice().iter().for_each(|charge| inner.journal.forget_until(charge, at));
        inner.denials.forget(charges);
    }

    /// The error of calls that need Redis while the breaker is not closed.
    fn must_be_closed(&self) -> Result<(), StoreError> {
        match self.0.breaker.is_closed() {
            true => Ok(()),
            false => Err(RedisStoreError::CircuitOpen.into()),
        }
    }
}

impl ResilientInner {
    /// Records a request that Redis cannot count because of one of its keys, and logs a warning.
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
}

impl Store for ResilientStore {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        let inner = &self.0;
        let hash = inner.denials.hash(charges);
        if let Some(denied) = inner.denials.find(charges, &hash, inner.clock.now()) {
            add(&inner.counts.cache_hits, 1);
            return Ok(denied);
        }
        self.decide(Mode::Spend, charges, Some(&hash)).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.decide(Mode::Peek, charges, None).await
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        let inner = &self.0;
        if inner.breaker.is_closed() {
            let charges = charge.into();
            let reading = match self.replay_first(&charges).await {
                Ok(_) => inner.redis.read(charge).await,
                Err(error) => Err(error),
            };
            match reading {
                Ok(reading) => return Ok(reading),
                Err(error) => self.failed(&error, &charges),
            }
        }
        Ok(AccountReading { degraded: true, ..inner.local.store.read_now(charge) })
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        let inner = &self.0;
        inner.denials.forget(charges);
        let mut elsewhere = Charges::new();
        for charge in charges.as_slice() {
            match spent {
                Spent::At(at) if inner.journal.refund(charge, at) => {
                    inner.local.store.refund_now(&(*charge).into(), spent);
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
        inner.local.store.refund_now(&elsewhere, Spent::Newest);
        // A denial that was in flight may have been cached meanwhile.
        inner.denials.forget(charges);
        Ok(())
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        let inner = &self.0;
        inner.denials.forget(charges);
        let (mut settled, mut elsewhere) = (Settled::Before, Charges::new());
        // In the journal, before it was replayed.
        let was_settled = |charge: &Charge<'_>| {
            settlement.once.is_some_and(|once| inner.local.store.has_settled(charge, once.id))
        };
        for charge in charges.as_slice() {
            match inner.journal.has(charge, settlement.at) {
                true => settled = settled.or(self.settle_locally(charge, settlement)?),
                false if was_settled(charge) => {}
                false => elsewhere.push(*charge).expect("the accounts differ"),
            }
        }
        if elsewhere.is_empty() {
            return Ok(settled);
        }
        // One that is not named gets a name, under which it can be sent again.
        let name = match settlement.once {
            Some(_) => String::new(),
            None => inner.redis.unique_name(),
        };
        let own = Once { id: &name, within: SETTLE_MARK_TTL };
        let sent = Settlement { once: settlement.once.or(Some(own)), ..settlement };
        let outcome = match self.must_be_closed() {
            Ok(()) => inner.redis.settle(&elsewhere, sent).await,
            Err(open) => Err(open),
        };
        // A denial that was in flight may have been cached meanwhile.
        inner.denials.forget(charges);
        match outcome {
            Ok(done) => {
                if done == Settled::Now {
                    inner.local.settled_elsewhere(&elsewhere, settlement);
                }
                Ok(settled.or(done))
            }
            Err(error @ StoreError::Deadline(_)) if settlement.once.is_none() => {
                self.failed(&error, &elsewhere);
                self.settle_late(&elsewhere, settlement, name);
                Ok(Settled::Now)
            }
            Err(error) => {
                self.failed(&error, &elsewhere);
                self.settle_without_redis(&elsewhere, settlement, error)
                    .map(|done| settled.or(done))
            }
        }
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        let inner = &self.0;
        inner.local.store.reset_now(charges);
        self.forget_until(charges, inner.clock.now());
        self.must_be_closed()?;
        let outcome = inner.redis.reset(charges).await;
        let outcome = outcome.inspect_err(|error| self.failed(error, charges));
        // A denial that was in flight may have been cached meanwhile.
        inner.denials.forget(charges);
        outcome
    }

    fn forget(&self, charges: &Charges<'_>, ago: Duration) {
        self.forget_until(charges, self.0.clock.now() - ago);
    }
}

impl fmt::Debug for ResilientStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResilientStore({:?}, {:?})", self.0.redis, self.0.breaker.state())
    }
}
