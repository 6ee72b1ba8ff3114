//! Budgets shared by many processes: the [Slidegate](slidegate) store on Redis and Valkey.
//!
//! [`RedisStore`] counts in Redis, exactly: at most one script call and one round trip for each
//! decision, on the server's clock. [`ResilientStore`] wraps it with a circuit breaker and local
//! ledgers for when Redis is slow or down. [`LeasedStore`] wraps that and prefetches units for
//! policies that are decided [without waiting](slidegate::Consistency::Async).
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
//! Stores require a Tokio runtime. `docs/redis.md` describes how to set up the server and the effects
//! of an outage or a failover.

// docs.rs builds with a nightly compiler, and labels what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod checkup;
mod collision;
mod error;
mod key;
mod layout;
mod leased;
mod owned;
mod resilient;
mod script;
mod shared_state;
mod store;

pub use address::{Address, AddressError};
pub use checkup::{ServerReport, ServerWarning};
pub use collision::{KeyCollision, KeyCollisions};
pub use error::{KeyErrorReason, RedisStoreError};
pub use key::{KeyTemplate, KeyTemplateError};
pub use layout::{Layout, LayoutError, ScoreUnit, ScoreUnitError};
pub use leased::{LeaseStats, LeasedStore};
pub use resilient::{
    BreakerState, KeyError, Latency, LocalShare, LocalShareError, ResilienceStats, ResilientStore,
    ResilientStoreBuilder,
};
pub use shared_state::{
    SharedChanges, SharedCursor, SharedEntry, SharedSecret, SharedState, SharedStateError,
};
pub use store::{BuildError, RedisStore, RedisStoreBuilder, RedisTls};

/// The page on Redis, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/redis.md")]
struct RedisPage;

/// The crate's README, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct RedisReadme;
