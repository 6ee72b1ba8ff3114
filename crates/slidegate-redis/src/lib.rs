//! Budgets shared by many machines: the store of [Slidegate](slidegate) on Redis and Valkey.
//!
//! [`RedisStore`] counts in Redis, exactly: at most one script call and one round trip for each
//! decision, on the server's clock. [`ResilientStore`] wraps it with a circuit breaker and local
//! ledgers for when Redis is slow or down. [`LeasedStore`] around that takes units ahead for policies
//! that are decided [without waiting](slidegate::Consistency::Async).
//!
//! ```no_run
//! use slidegate::{Gate, Policies, Policy, Quota};
//! use slidegate_redis::{RedisStore, ResilientStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = Policies::builder()
//!     .policy(Policy::new("api").quota(Quota::per_minute(100)))
//!     .build()?;
//! let redis = RedisStore::builder("redis://127.0.0.1:6379").build()?;
//! let gate = Gate::new(policies, ResilientStore::new(redis));
//! # Ok(())
//! # }
//! ```
//!
//! Stores are called on a Tokio runtime. Setting up the server, and what an outage or a failover
//! costs, are described in `docs/redis.md`.

mod address;
mod checkup;
mod collision;
mod error;
mod events;
mod key;
mod layout;
mod leased;
mod owned;
mod resilient;
mod script;
mod shared_map;
mod store;

pub use address::{Address, AddressError};
pub use checkup::{ServerReport, ServerWarning};
pub use collision::{KeyCollision, KeyCollisions};
pub use error::{KeyErrorReason, RedisStoreError};
pub use events::{EventBatch, EventLog, EventLogError, LoggedEvent, Position};
pub use key::{KeyTemplate, KeyTemplateError};
pub use layout::{Layout, LayoutError, ScoreUnit, ScoreUnitError};
pub use leased::{LeaseStats, LeasedStore};
pub use resilient::{
    BreakerState, KeyError, Latency, LocalShare, LocalShareError, ResilienceStats, ResilientStore,
    ResilientStoreBuilder,
};
pub use shared_map::{MapVersion, SharedEntry, SharedMap, SharedMapError, SharedSnapshot};
pub use store::{BuildError, RedisStore, RedisStoreBuilder, RedisTls};

/// The page on Redis, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/redis.md")]
struct RedisPage;

/// The crate's README, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct RedisReadme;
