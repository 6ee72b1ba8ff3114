//! Sees to it that Redis is asked again, and told what it missed.

use std::mem;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use slidegate::limit::{Charge, Quotas};
use slidegate::{Identity, Name, Quota, Store, StoreError};
use tokio::task::JoinSet;

use super::breaker::Backoff;
use super::journal::Merge;
use super::stats::add;
use super::{ResilientInner, ResilientStore};
use crate::error::RedisStoreError;

/// How long the failures of calls under way take to come in.
const SETTLING: Duration = Duration::from_millis(50);
/// How many accounts Redis is told of at once.
const AT_ONCE: usize = 64;
/// After so many rounds Redis decides again, and is told the rest meanwhile: where requests come
/// faster than they can be told, there would be no end.
const ROUNDS: usize = 8;

/// A Redis that gives signs of life but cannot be told, so many times, decides again all the same:
/// what cannot be told may all be with one node of a cluster.
const MOST_IN_VAIN: usize = 3;

/// An account that nobody has, to ask for a sign of life with.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    policy: Name,
    identity: Identity,
    quotas: Quotas,
}

const PROBE: &str = "slidegate-probe";

impl Probe {
    /// Beside the account of a charge: its key differs from the charge's in nothing but the value of
    /// the identity, so whoever may touch the keys of a policy may touch it.
    pub(crate) fn beside(charge: &Charge<'_>) -> Self {
        let identity = format!("{}:{PROBE}", charge.identity().kind());
        let windows = charge.quotas().as_slice().iter().map(|quota| quota.window());
        let shortest = windows.min().expect("a charge has quotas");
        let quota = Quota::new(PROBE_UNITS, shortest).expect("the window of a quota");
        Self {
            policy: charge.policy().clone(),
            // A kind that is nobody's, or too long for it, has no keys of its own to be careful of.
            identity: identity.parse().unwrap_or_else(|_| Identity::user(PROBE)),
            quotas: Quotas::from(quota),
        }
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.identity, &self.quotas)
    }
}

impl Default for Probe {
    fn default() -> Self {
        let policy = PROBE.parse().expect("a good name");
        let quotas = Quotas::from(Quota::per_second(PROBE_UNITS.get()));
        Self { policy, identity: Identity::user(PROBE), quotas }
    }
}

/// Enough that a probe is a write.
const PROBE_UNITS: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");

/// Makes sure that somebody is at it.
pub(crate) fn send_for(store: &ResilientStore) {
    let recovering = &store.0.recovering;
    if !recovering.load(Ordering::SeqCst) && !recovering.swap(true, Ordering::SeqCst) {
        let mut shift = RunningGuard(Arc::downgrade(&store.0));
        tokio::spawn(async move {
            mend(&shift.0).await;
            mem::take(&mut shift.0);
        });
    }
}

/// Somebody's time at it. If it is cut short, because the runtime ends, others are free to begin.
struct RunningGuard(Weak<ResilientInner>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.recovering.store(false, Ordering::SeqCst);
        }
    }
}

/// Waits for Redis, tells it, and lets it decide again. Ends with the store.
async fn mend(store: &Weak<ResilientInner>) {
    let mut backoff = Backoff::new();
    let mut in_vain = 0;
    // All that one fault has hit is to be told together.
    tokio::time::sleep(SETTLING).await;
    loop {
        let Some(inner) = store.upgrade() else { return };
        if !inner.breaker.is_closed() {
            drop(inner);
            tokio::time::sleep(backoff.next()).await;
            let Some(inner) = store.upgrade() else { return };
            if let Err(error) = inner.probe().await {
                tracing::debug!(address = %inner.redis, %error, "Redis gives no sign of life");
                inner.breaker.open();
                continue;
            }
            inner.breaker.mend();
        }
        let Some(inner) = store.upgrade() else { return };
        match inner.replay().await {
            Ok(()) => {
                inner.recovering.store(false, Ordering::SeqCst);
                // Whoever had need of somebody before that found one, and did not send for another.
                let done = inner.breaker.is_closed() && inner.journal.if_empty(|| ());
                if done || inner.recovering.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "Redis could not be told what was admitted without it");
                in_vain += 1;
                if in_vain >= MOST_IN_VAIN {
                    inner.close();
                }
                if inner.breaker.is_closed() {
                    drop(inner);
                    tokio::time::sleep(backoff.next()).await;
                } else {
                    inner.breaker.open();
                }
            }
        }
    }
}

impl ResilientInner {
    /// A sign of life that takes all that a decision takes: the script, the clock, a write. An answer
    /// about the key, such as that it may not be touched, is one too.
    async fn probe(&self) -> Result<(), StoreError> {
        let probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match self.redis.spend(&probe.charge().into()).await {
            Err(error) if RedisStoreError::about_a_key(&error).is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// Tells Redis everything there is, and closes the breaker at a moment when there is nothing.
    /// If it takes some and not all, as a cluster does that has lost a node, it decides again, too.
    async fn replay(self: &Arc<Self>) -> Result<(), StoreError> {
        for _ in 0..ROUNDS {
            let told = self.tell(self.journal.to_send()).await;
            if let Some(error) = told.failure {
                if told.done > 0 {
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
            self.breaker.close();
            tracing::info!(address = %self.redis, "Redis decides again");
        }
    }

    async fn tell(self: &Arc<Self>, merges: Vec<Merge>) -> ReplayProgress {
        let mut under_way = JoinSet::new();
        let mut told = ReplayProgress::default();
        let mut failures = 0;
        let mut merges = merges.into_iter();
        loop {
            while failures < AT_ONCE && under_way.len() < AT_ONCE {
                let Some(merge) = merges.next() else { break };
                under_way.spawn(self.clone().tell_one(merge));
            }
            match under_way.join_next().await {
                None => return told,
                Some(Ok(Ok(()))) => told.done += 1,
                Some(Ok(Err(error))) => {
                    told.failure = Some(error);
                    failures += 1;
                }
                Some(Err(_)) => failures += 1,
            }
        }
    }

    async fn tell_one(self: Arc<Self>, merge: Merge) -> Result<(), StoreError> {
        let runs = merge.runs(self.clock.now());
        if !runs.is_empty() {
            match self.redis.merge(merge.charge(), &runs, merge.number).await {
                Ok(()) => {
                    add(&self.counters.merges, 1);
                    add(&self.counters.merged_units, merge.units());
                }
                Err(error) => match RedisStoreError::about_a_key(&error) {
                    // It would fail for ever.
                    Some((failure, reason)) => {
                        self.key_failed(failure, reason, &[merge.charge()]);
                        add(&self.counters.unrecorded, 1);
                    }
                    None => {
                        self.journal.put_off(merge.number);
                        return Err(error);
                    }
                },
            }
        }
        self.journal.confirm(merge.number);
        Ok(())
    }
}

/// How far telling Redis has come.
#[derive(Default)]
struct ReplayProgress {
    done: usize,
    failure: Option<StoreError>,
}
