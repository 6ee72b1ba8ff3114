//! The recovery task: probes Redis, replays the journal, and closes the breaker.

use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::RedisError;
use slidegate::limit::{Charge, Quotas};
use slidegate::{Account, Identity, Quota, Store, StoreError};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::breaker::{BreakerState, probe_wait};
use super::journal::{JournalPage, ReplaySender};
use super::stats::add;
use super::{ResilientInner, ResilientStore};
use crate::error::RedisStoreError;
use crate::owned::OwnedCharge;

/// Delay before recovery, in which calls in flight fail too.
const SETTLE_DELAY: Duration = Duration::from_millis(50);
/// Accounts replayed concurrently.
const MAX_CONCURRENT_REPLAYS: usize = 64;

const PROBE_IDENTITY: &str = "slidegate-probe";
/// Enough that a probe always writes.
const PROBE_UNITS: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");

/// A charge to probe Redis with, to an account that no request has. Its key differs from that of `charge`
/// only in the value of the identity, so a user with permission for the policy's keys can use it.
pub(crate) fn probe_beside(charge: &Charge<'_>) -> OwnedCharge {
    let identity = format!("{}:{PROBE_IDENTITY}", charge.identity().kind());
    // A kind that is too long for this does not occur in keys.
    let identity = identity.parse().unwrap_or_else(|_| Identity::user(PROBE_IDENTITY));
    let windows = charge.quotas().as_slice().iter().map(|quota| quota.window());
    let shortest = windows.min().expect("a charge has quotas");
    let quota = Quota::new(PROBE_UNITS, shortest).expect("the window of a quota");
    OwnedCharge::from(&Charge::new(charge.policy(), &identity, &Quotas::from(quota)))
}

/// Spawns the recovery task unless one is running.
pub(crate) fn ensure_running(store: &ResilientStore) {
    let mut task = store.0.recovery.lock();
    // A task aborted with its runtime is finished, too.
    if task.as_ref().is_none_or(JoinHandle::is_finished) {
        *task = Some(store.redis().spawn(recover(Arc::downgrade(&store.0))));
    }
}

/// Waits for Redis, replays the journal, and closes the breaker. Ends with the store.
///
/// A page that cannot be replayed does not keep the breaker open. Calls for its account and this task
/// try it again until its spends have left their windows.
async fn recover(store: Weak<ResilientInner>) {
    let (mut probes, mut retries) = (0, 0);
    // Replay everything affected by one fault together.
    tokio::time::sleep(SETTLE_DELAY).await;
    loop {
        let Some(inner) = store.upgrade() else { return };
        if !inner.breaker.is_closed() {
            drop(inner);
            tokio::time::sleep(probe_wait(probes)).await;
            probes += 1;
            let Some(inner) = store.upgrade() else { return };
            if let Err(error) = inner.probe().await {
                tracing::debug!(address = %inner.redis, %error, "probe of Redis failed");
                inner.breaker.set(BreakerState::Open);
                continue;
            }
            inner.breaker.set(BreakerState::Recovering);
        }
        let Some(inner) = store.upgrade() else { return };
        let outcome = inner.replay_all().await;
        inner.close();
        let Err(error) = outcome else {
            // Under the lock: callers that need the task later spawn another.
            let mut task = inner.recovery.lock();
            if inner.breaker.is_closed() && inner.journal.is_empty() {
                *task = None;
                return;
            }
            (probes, retries) = (0, 0);
            continue;
        };
        tracing::debug!(address = %inner.redis, %error, "replay to Redis failed");
        if error.key_error().is_some() {
            probes = 0;
        }
        let opened = inner.opened.clone();
        drop(inner);
        let _ = timeout(probe_wait(retries), opened.notified()).await;
        retries += 1;
    }
}

impl ResilientInner {
    /// A probe needs everything that a decision needs: the script, the clock, a write. An error about
    /// the key, such as a missing permission, also shows that Redis responds.
    async fn probe(&self) -> Result<(), StoreError> {
        let probe = self.probe.lock().clone();
        let Some(probe) = probe else { return Ok(()) };
        match self.redis.spend(&probe.as_charge().into()).await {
            Err(error) if RedisStoreError::about_a_key(&error).is_none() => Err(error),
            _ => Ok(()),
        }
    }

    fn close(&self) {
        if !self.breaker.is_closed() {
            self.breaker.set(BreakerState::Closed);
            tracing::info!(address = %self.redis, "Redis circuit breaker closed");
        }
    }

    /// Replays the journal. Stops starting replays after many failures. Returns one of the errors;
    /// one about a key only if all are.
    async fn replay_all(self: &Arc<Self>) -> Result<(), RedisStoreError> {
        let mut in_flight = JoinSet::new();
        let mut accounts = self.journal.all_pages(self.clock.now()).into_iter();
        let (mut failures, mut outcome) = (0, Ok(()));
        loop {
            while failures < MAX_CONCURRENT_REPLAYS && in_flight.len() < MAX_CONCURRENT_REPLAYS {
                let Some((account, newest)) = accounts.next() else { break };
                let inner = self.clone();
                in_flight.spawn(async move { inner.replay_account(&account, newest).await });
            }
            match in_flight.join_next().await {
                None => return outcome,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    if outcome.is_ok() || error.key_error().is_none() {
                        outcome = Err(error);
                    }
                    failures += 1;
                }
                Some(Err(_)) => failures += 1,
            }
        }
    }

    /// Replays the pages of an account, up to the one of this number. Concurrent callers share one call
    /// to Redis, which continues when they stop waiting.
    pub(crate) async fn replay_account(
        self: &Arc<Self>,
        account: &Account,
        newest: u64,
    ) -> Result<(), RedisStoreError> {
        let begin = |page, outcome| drop(self.redis.spawn(self.clone().replay_page(page, outcome)));
        while let Some(mut replay) = self.journal.replay(account, newest, begin) {
            match replay.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(outcome)) => outcome.clone()?,
                // Aborted with its runtime.
                _ => {
                    return Err(
                        RedisError::from(io::Error::other("the replay task was aborted")).into()
                    );
                }
            }
        }
        Ok(())
    }

    async fn replay_page(self: Arc<Self>, page: JournalPage, outcome: ReplaySender) {
        let spends = page.live(self.clock.now());
        let merged = match spends.is_empty() {
            true => Ok(()),
            false => self.redis.merge(page.charge(), &spends, page.number).await,
        };
        if merged.is_ok() && !spends.is_empty() {
            add(&self.counts.merges, 1);
            add(&self.counts.merged_units, page.units());
        }
        self.journal.end_replay(&page, merged.is_ok());
        let _ = outcome.send(Some(merged));
    }
}
