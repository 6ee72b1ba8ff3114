//! Statistics of a gate and its stores.

use std::sync::Arc;

use slidegate::limit::MemoryStats;
use slidegate::policy::{Action, BanStats};
use slidegate::{Gate, MemoryStore, Policies, Store};
use slidegate_redis::{KeyCollisions, ResilienceStats, ResilientStore};

/// A store that can be asked how it is.
pub(crate) trait StoreReport: Send + Sync + 'static {
    /// What it is called in configurations.
    fn kind(&self) -> &'static str;

    /// What it holds, if it is in this process's memory.
    fn memory(&self) -> Option<MemoryStats> {
        None
    }

    /// How it gets on with a server, if there is one.
    fn resilience(&self) -> Option<ResilienceStats> {
        None
    }

    /// Checks that no two ledgers of these policies would share a key.
    fn check_policies(&self, _: &Policies) -> Result<(), KeyCollisions> {
        Ok(())
    }
}

impl StoreReport for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn memory(&self) -> Option<MemoryStats> {
        Some(self.stats())
    }
}

impl StoreReport for ResilientStore {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn resilience(&self) -> Option<ResilienceStats> {
        Some(self.stats())
    }

    fn check_policies(&self, policies: &Policies) -> Result<(), KeyCollisions> {
        self.redis().check_policies(policies)
    }
}

/// A gate, whatever its store is.
pub(crate) trait GateReport: Send + Sync + 'static {
    fn store(&self) -> &dyn StoreReport;

    /// What the gate's own store holds.
    fn local(&self) -> MemoryStats;

    fn bans(&self) -> BanStats;

    /// The policies in force.
    fn policies(&self) -> Arc<Policies>;

    /// What the operator's overrides do that are in force.
    fn active_overrides(&self) -> Vec<Action>;
}

impl<S: Store + StoreReport> GateReport for Gate<S> {
    fn store(&self) -> &dyn StoreReport {
        self.store()
    }

    fn local(&self) -> MemoryStats {
        self.local_store().stats()
    }

    fn bans(&self) -> BanStats {
        self.admin().ban_stats()
    }

    fn policies(&self) -> Arc<Policies> {
        self.policies()
    }

    fn active_overrides(&self) -> Vec<Action> {
        let (overrides, now) = (self.admin().overrides(), self.now());
        overrides.iter().filter(|record| record.until > now).map(|record| record.action).collect()
    }
}
