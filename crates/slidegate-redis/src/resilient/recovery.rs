//! The recovery task: probes Redis, replays what was admitted without it, and closes the breaker.

use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::Duration;

use slidegate::limit::{Charge, Quotas};
use slidegate::{Identity, Quota, Store, StoreError};
use tokio::task::{JoinHandle, JoinSet};

use super::breaker::{BreakerState, probe_wait};
use super::journal::JournalPage;
use super::{ResilientInner, ResilientStore};
use crate::error::RedisStoreError;
use crate::owned::OwnedCharge;

/// How long the failures of calls in flight take to come in.
const SETTLING: Duration = Duration::from_millis(50);
/// How many accounts are replayed at once.
const MAX_CONCURRENT: usize = 64;
/// After so many rounds Redis decides again, and the rest is replayed meanwhile: where requests come
/// faster than they can be replayed, there would be no end.
const MAX_ROUNDS: usize = 8;
/// A Redis that answers probes but takes no replay, so many times, decides again all the same: what
/// fails may all be with one node of a cluster.
const MAX_FAILED_REPLAYS: usize = 3;

const PROBE: &str = "slidegate-probe";
/// Enough that a probe is a write.
const PROBE_UNITS: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");

/// A charge to probe Redis with, to an account that no request has. Its key differs from that of `charge`
/// in nothing but the value of the identity, so a user with the keys of the policy may touch it.
pub(crate) fn probe_beside(charge: &Charge<'_>) -> OwnedCharge {
    let identity = format!("{}:{PROBE}", charge.identity().kind());
    // A kind that is too long for it has no keys of its own to be careful of.
    let identity = identity.parse().unwrap_or_else(|_| Identity::user(PROBE));
    let windows = charge.quotas().as_slice().iter().map(|quota| quota.window());
    let shortest = windows.min().expect("a charge has quotas");
    let quota = Quota::new(PROBE_UNITS, shortest).expect("the window of a quota");
    OwnedCharge::from(&Charge::new(charge.policy(), &identity, &Quotas::from(quota)))
}

/// Spawns the recovery task unless one is running.
pub(crate) fn ensure_running(store: &ResilientStore) {
    let mut task = store.0.recovery.lock();
    // One that its runtime has cut short is finished, too.
    if task.as_ref().is_none_or(JoinHandle::is_finished) {
        *task = Some(store.redis().spawn(recover(Arc::downgrade(&store.0))));
    }
}

/// Waits for Redis, replays, and lets it decide again. Ends with the store.
async fn recover(store: Weak<ResilientInner>) {
    let (mut waits, mut failed_replays) = (0, 0);
    // What one fault has hit is replayed together.
    tokio::time::sleep(SETTLING).await;
    loop {
        let Some(inner) = store.upgrade() else { return };
        if !inner.breaker.is_closed() {
            drop(inner);
            tokio::time::sleep(probe_wait(waits)).await;
            waits += 1;
            let Some(inner) = store.upgrade() else { return };
            if let Err(error) = inner.probe().await {
                tracing::debug!(address = %inner.redis, %error, "probe of Redis failed");
                inner.breaker.set(BreakerState::Open);
                continue;
            }
            inner.breaker.set(BreakerState::Recovering);
        }
        let Some(inner) = store.upgrade() else { return };
        match inner.replay().await {
            Ok(()) => {
                // Under the lock: callers that need the task later spawn another.
                let mut task = inner.recovery.lock();
                if inner.breaker.is_closed() && inner.journal.if_empty(|| ()) {
                    *task = None;
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(address = %inner.redis, %error, "replay to Redis failed");
                failed_replays += 1;
                if failed_replays >= MAX_FAILED_REPLAYS {
                    inner.close();
                }
                if inner.breaker.is_closed() {
                    drop(inner);
                    tokio::time::sleep(probe_wait(waits)).await;
                    waits += 1;
                } else {
                    inner.breaker.set(BreakerState::Open);
                }
            }
        }
    }
}

impl ResilientInner {
    /// A probe takes all that a decision takes: the script, the clock, a write. An answer about the
    /// key, such as that it may not be touched, shows that Redis is back too.
    async fn probe(&self) -> Result<(), StoreError> {
        let probe = self.probe.lock().clone();
        let Some(probe) = probe else { return Ok(()) };
        match self.redis.spend(&probe.as_charge().into()).await {
            Err(error) if RedisStoreError::about_a_key(&error).is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// Replays the journal, and closes the breaker at a moment when it is empty. If Redis takes a
    /// part of it, as a cluster does that has lost a node, it decides again, too.
    async fn replay(self: &Arc<Self>) -> Result<(), StoreError> {
        for _ in 0..MAX_ROUNDS {
            let (done, failure) = self.replay_round(self.journal.to_send()).await;
            if let Some(error) = failure {
                if done > 0 {
                    self.close();
                }
                return Err(error);
            }
            if self.journal.if_empty(|| self.close()) {
                return Ok(());
            }
        }
        self.close();
        Ok(())
    }

    fn close(&self) {
        if !self.breaker.is_closed() {
            self.breaker.set(BreakerState::Closed);
            tracing::info!(address = %self.redis, "Redis circuit breaker closed");
        }
    }

    /// How many pages were replayed, and the last failure. After many failures no more are begun.
    async fn replay_round(
        self: &Arc<Self>,
        pages: Vec<JournalPage>,
    ) -> (usize, Option<StoreError>) {
        let mut in_flight = JoinSet::new();
        let mut pages = pages.into_iter();
        let (mut done, mut failures, mut failure) = (0, 0, None);
        loop {
            while failures < MAX_CONCURRENT && in_flight.len() < MAX_CONCURRENT {
                let Some(page) = pages.next() else { break };
                in_flight.spawn(self.clone().replay_page(page));
            }
            match in_flight.join_next().await {
                None => return (done, failure),
                Some(Ok(Ok(()))) => done += 1,
                Some(Ok(Err(error))) => {
                    failure = Some(error);
                    failures += 1;
                }
                Some(Err(_)) => failures += 1,
            }
        }
    }

    async fn replay_page(self: Arc<Self>, page: JournalPage) -> Result<(), StoreError> {
        let spends = page.live(self.clock.now());
        if !spends.is_empty() {
            match self.redis.merge(page.charge(), &spends, page.number).await {
                Ok(()) => self.count(|stats| {
                    stats.merges += 1;
                    stats.merged_units += page.units();
                }),
                Err(error) => match RedisStoreError::about_a_key(&error) {
                    // It would fail every time.
                    Some((failure, reason)) => {
                        self.key_failed(failure, reason, &[page.charge()]);
                        self.count(|stats| stats.unrecorded += 1);
                    }
                    None => {
                        self.journal.put_off(page.number);
                        return Err(error);
                    }
                },
            }
        }
        self.journal.confirm(page.number);
        Ok(())
    }
}
