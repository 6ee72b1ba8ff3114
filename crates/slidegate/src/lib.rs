//! An exact sliding-window rate limiter.
//!
//! A [`Limiter`] is one quota for any number of keys:
//!
//! ```
//! use slidegate::Limiter;
//!
//! let limiter = Limiter::new("60/min".parse()?);
//! match limiter.check("user:42") {
//!     Ok(standing) => println!("{} left", standing.remaining()),
//!     Err(denied) => println!("{denied}"), // more than 60/min: retry in 12.4 s
//! }
//! # Ok::<(), slidegate::QuotaError>(())
//! ```
//!
//! A [`Gate`] decides HTTP requests by policies: by plan, identity and path, with several quotas at
//! once, in memory or in Redis. A request becomes [`Facts`]. [`Policies`] turn facts into
//! [`Charges`](limit::Charges): which quotas, whose, how much. A [`Store`] spends all charges or
//! none, on its own clock. The result is a [`Decision`]: a verdict, and where every quota stands.
//!
//! ```
//! use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Source};
//!
//! let policies = Policies::builder()
//!     .policy(
//!         Policy::new("api")
//!             .identity([Source::ApiKey, Source::ip()])
//!             .quota("60/min")
//!             .quota("10000/day"),
//!     )
//!     .build()?;
//! let gate = Gate::new(policies, MemoryStore::new());
//!
//! let facts = Facts::new(&http::Method::GET, "/v1/reports").client("203.0.113.7".parse()?);
//! let decision = gate.decide_now(&facts)?; // or gate.decide(&facts).await
//!
//! assert!(decision.is_allowed());
//! let (policy, standing) = decision.tightest().expect("a policy took part");
//! assert_eq!(&*policy.policy, "api");
//! assert_eq!(standing.remaining(), 59);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The names at the root are the ones to start from. [`limit`] has what counts: quotas, ledgers,
//! stores and clocks. [`policy`] has what selects requests and identities.
//!
//! # What it promises
//! - **Exact.** Never more than `units` in any interval of length `window`, whatever the traffic
//!   and however many threads.
//! - **Prompt.** A spent unit is free again at most one [tick](Quota::tick) after the window.
//! - **All or nothing.** A denied request consumes nothing, from any quota of any policy.
//! - **Truthful.** A denied request would be denied at any moment before `retry_after`, and is
//!   allowed then if nothing else is spent.
//! - **Bounded.** Every ledger and table has a bound, and says what it does when full.

// docs.rs builds with a nightly compiler, and labels what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod chosen;
#[cfg(feature = "conformance")]
pub mod conformance;
mod decision;
mod gate;
mod hold;
mod identity;
pub mod limit;
mod limiter;
pub mod policy;
mod verdict;

pub use crate::chosen::ChosenStats;
pub use crate::decision::{Decision, PolicyStanding};
pub use crate::gate::{Admin, CallerAccount, CallerBan, CallerStanding, Gate, Inspection};
pub use crate::hold::{HeldCharge, Hold, SpentIn};
pub use crate::limit::{
    Account, Clock, ManualClock, MemoryStore, Name, Quota, QuotaError, Standing, Store, StoreError,
    Timestamp,
};
pub use crate::limiter::{Denied, Limiter};
pub use crate::policy::{
    AccessList, AccountError, Action, Ban, Bearer, CandidateStanding, Consistency, Cost, Facts,
    Identity, NamedCharge, OnStoreError, Override, Overrides, Plan, Policies, Policy, PolicyErrors,
    Scope, Source,
};
pub use crate::verdict::{Block, Verdict};

/// The project's README, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The page on policies, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/policies.md")]
struct PoliciesPage;

/// The crate's README, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct LimiterReadme;
