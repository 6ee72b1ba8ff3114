//! An exact sliding-window rate limiter.
//!
//! A request becomes [`Facts`]. [`Policies`] turn facts into [`Charges`]: which quotas, for whom,
//! how much. A [`Store`] spends all charges or none, on its own clock. The result is a
//! [`Decision`]: a verdict, and where every quota stands. [`Gate::decide`] is the whole way.
//!
//! ```
//! use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Quota, Source};
//!
//! let policies = Policies::builder()
//!     .policy(
//!         Policy::new("api")
//!             .identity([Source::ApiKey, Source::ip()])
//!             .quota(Quota::per_minute(60))
//!             .quota(Quota::per_day(10_000)),
//!     )
//!     .build()?;
//! let gate = Gate::new(policies, MemoryStore::new());
//!
//! let method = http::Method::GET;
//! let facts = Facts::new(&method, "/v1/reports").client("203.0.113.7".parse()?);
//! let decision = gate.decide_now(&facts)?; // or gate.decide(&facts).await
//!
//! assert!(decision.is_allowed());
//! let (policy, standing) = decision.tightest().expect("a policy took part");
//! assert_eq!(&**policy.policy(), "api");
//! assert_eq!(standing.remaining(), 59);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//! - **Exact.** Never more than `units` in any interval of length `window`, whatever the traffic
//!   and however many threads.
//! - **Prompt.** A spent unit is free again at most one [tick](Quota::tick) after the window.
//! - **All or nothing.** A denied request consumes nothing, from any quota of any policy.
//! - **Truthful.** A denied request would be denied at any moment before `retry_after`, and is
//!   allowed then if nobody else spends.
//! - **Bounded.** Every ledger and table has a bound, and says what it does when full.

mod api_key;
mod bad_request;
mod ban;
mod bans;
mod builder;
mod charge;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod decision;
mod digest;
mod entries;
mod explanation;
mod facts;
mod gate;
mod identity;
mod inspection;
mod ledger;
mod memory;
mod methods;
mod name;
mod network;
mod orders;
mod outline;
mod paths;
mod plan;
mod policies;
mod policy;
mod quota;
mod roster;
mod source;
mod store;
mod warning;

pub use crate::api_key::{ApiKey, ApiKeyDigestError, UnknownKeys};
pub use crate::bad_request::BadRequest;
pub use crate::ban::{ActiveBan, Ban};
pub use crate::bans::BanStats;
pub use crate::builder::{PoliciesBuilder, PolicyError, PolicyErrors};
pub use crate::charge::{Account, Charge, Charges, CostError, DuplicateAccount};
pub use crate::clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use crate::decision::{Block, Decision, PolicyStanding, Verdict};
pub use crate::explanation::{Effect, ExplainedCharge, ExplainedPolicy, Explanation};
pub use crate::facts::{Facts, without_query};
pub use crate::gate::{AccountError, Gate};
pub use crate::identity::{Identity, IdentityError};
pub use crate::inspection::Inspection;
pub use crate::ledger::Ledger;
pub use crate::memory::{MemoryStats, MemoryStore, MemoryStoreBuilder, SnapshotError};
pub use crate::name::{Name, NameError};
pub use crate::network::{Network, NetworkError, PrefixError, Prefixes};
pub use crate::orders::{Measure, Order, Orders, TooManyOrders};
pub use crate::outline::PolicyOutline;
pub use crate::plan::{CheckedPlan, Plan};
pub use crate::policies::{NamedCharge, NamedChargeError, Policies, Skip};
pub use crate::policy::{Cost, OnStoreError, OnStoreErrorError, Policy, Scope};
pub use crate::quota::{Quota, QuotaError, Quotas, QuotasError};
pub use crate::roster::{Listed, Roster};
pub use crate::source::{Source, SourceError};
pub use crate::store::{Receipt, Spent, Standing, Standings, Store, StoreError};

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
