//! The store that a configuration asks for, as one type.

mod open;

use std::time::Duration;

use slidegate::limit::{
    AccountReading, Charge, Charges, MemoryStats, Receipt, Settled, Settlement, Spent,
};
use slidegate::{Identity, MemoryStore, Name, Policies, Store, StoreError};
use slidegate_redis::{KeyCollisions, LeaseStats, LeasedStore, ResilienceStats};

pub(crate) use self::open::{OpenStore, check_redis, memory};

/// Where accounts are kept: in this process, or in Redis.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(MemoryStore),
    Redis(LeasedStore),
    /// Fails every call.
    #[cfg(test)]
    Failing,
}

/// How a store is.
#[derive(Debug, Default)]
pub(crate) struct StoreStats {
    /// What it is called in configurations.
    pub(crate) kind: &'static str,
    /// What it holds, if it is in this process's memory.
    pub(crate) memory: Option<MemoryStats>,
    /// What this process counts by itself while Redis is unavailable, if Redis is the store.
    pub(crate) fallback: Option<MemoryStats>,
    /// Where Redis is, without secrets, if it is there.
    pub(crate) url: Option<String>,
    /// The state of Redis, if the store uses it.
    pub(crate) redis: Option<ResilienceStats>,
    /// Prefetched units, if policies have leases.
    pub(crate) leases: Option<LeaseStats>,
}

impl AnyStore {
    /// The store in this process, if it is that.
    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::Memory(store) => Some(store),
            _ => None,
        }
    }

    /// The store in Redis, if it is that.
    pub(crate) fn redis(&self) -> Option<&LeasedStore> {
        match self {
            Self::Redis(store) => Some(store),
            _ => None,
        }
    }

    pub(crate) fn stats(&self) -> StoreStats {
        match self {
            Self::Memory(store) => {
                StoreStats { kind: "memory", memory: Some(store.stats()), ..StoreStats::default() }
            }
            Self::Redis(store) => StoreStats {
                kind: "redis",
                memory: None,
                fallback: Some(store.inner().local_stats()),
                url: Some(store.inner().redis().to_string()),
                redis: Some(store.inner().stats()),
                leases: Some(store.stats()),
            },
            #[cfg(test)]
            Self::Failing => StoreStats { kind: "failing", ..StoreStats::default() },
        }
    }

    /// Asks Redis what it says of itself, for the next [`stats`](Self::stats).
    pub(crate) async fn refresh(&self) {
        if let Some(store) = self.redis()
            && let Err(error) = store.inner().refresh_server_report().await
        {
            tracing::debug!(%error, "Redis did not say how it is");
        }
    }

    /// Checks that no two ledgers of these policies would share a key.
    pub(crate) fn check_policies(&self, policies: &Policies) -> Result<(), KeyCollisions> {
        self.redis().map_or(Ok(()), |store| store.inner().redis().check_policies(policies))
    }
}

impl From<MemoryStore> for AnyStore {
    fn from(store: MemoryStore) -> Self {
        Self::Memory(store)
    }
}

impl From<LeasedStore> for AnyStore {
    fn from(store: LeasedStore) -> Self {
        Self::Redis(store)
    }
}

/// Calls the store that it is. What waits for Redis is boxed: its state takes kilobytes, which every
/// request would move through its futures, also those that a store in memory decides.
macro_rules! of_store {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call.await,
            AnyStore::Redis($store) => Box::pin($call).await,
            #[cfg(test)]
            AnyStore::Failing => {
                // With a password in it, which no response may show.
                Err(StoreError::Unavailable("redis://:hunter2@10.0.0.9 refused".into()))
            }
        }
    };
}

impl Store for AnyStore {
    fn leases(&self) -> bool {
        self.redis().is_some()
    }

    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        of_store!(self, store => store.spend(charges))
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        of_store!(self, store => store.peek(charges))
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        of_store!(self, store => store.read(charge))
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        of_store!(self, store => store.refund(charges, spent))
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        of_store!(self, store => store.settle(charges, settlement))
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        of_store!(self, store => store.reset(charges))
    }

    fn has_room_for(&self, policy: &Name, identity: &Identity) -> bool {
        self.memory().is_none_or(|store| store.has_room_for(policy, identity))
    }

    fn forget(&self, charges: &Charges<'_>, ago: Duration) {
        if let Some(store) = self.redis() {
            store.forget(charges, ago);
        }
    }
}

/// Decides by a store in memory, which never waits.
#[cfg(test)]
pub(crate) fn decide_now(
    gate: &slidegate::Gate<AnyStore>,
    facts: &slidegate::Facts<'_>,
) -> slidegate::Decision {
    use std::task::{Context, Poll, Waker};

    match std::pin::pin!(gate.decide(facts)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision.unwrap(),
        Poll::Pending => panic!("a store in memory does not wait"),
    }
}
