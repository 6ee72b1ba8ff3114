//! Access logs in, figures out: what rate limits would have done to the requests of a log, decided in
//! virtual time by [Slidegate](slidegate), the exact sliding-window rate limiter.
//!
//! [`Replay`] reads logs, decides each of their requests under a [`RuleSet`] with accounts in memory,
//! and makes a [`ReplayReport`]: who would have been refused, what the quotas would have to be to refuse
//! no one, and which windows were the busiest. Nothing is connected to.
//!
//! ```
//! use slidegate::{Policies, Policy, Quota};
//! use slidegate_replay::{AccessLog, Replay, RuleSet};
//! use slidegate_tower::ClientAddress;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let api = Policy::new("api").quota(Quota::per_minute(2));
//! let policies = Policies::builder().policy(api).build()?;
//! let rules = RuleSet { policies, client_address: ClientAddress::default() };
//!
//! let log = "\
//! 203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 12
//! 203.0.113.7 - - [10/Oct/2026:13:55:37 +0000] \"GET / HTTP/1.1\" 200 12
//! 203.0.113.7 - - [10/Oct/2026:13:56:35 +0000] \"GET / HTTP/1.1\" 200 12
//! 203.0.113.7 - - [10/Oct/2026:13:56:36 +0000] \"GET / HTTP/1.1\" 200 12
//! ";
//! let log = AccessLog::new("access.log", log.as_bytes());
//! let report = Replay::new("2/min", rules).run([log], |_progress| {})?;
//! assert_eq!(report.requests(), 4);
//! assert_eq!(report.refused().to_string(), "25.0%");
//! assert!(report.to_html().starts_with("<!DOCTYPE html>"));
//! # Ok(())
//! # }
//! ```
//!
//! [`Simulation`] decides requests one by one that are described instead of logged, as tests of policies
//! do.

// docs.rs builds with a nightly compiler, and labels what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod against;
mod calendar;
mod chart;
mod decompress;
mod demand;
pub mod described_request;
mod described_response;
mod engine;
mod entry;
mod format;
mod input;
mod merge;
mod page;
mod print;
mod replay;
mod report;
mod rules;
mod simulation;
mod svg;
mod sweep;
mod tally;
mod time;
mod timeline;

pub use crate::calendar::{ParseInstantError, Rfc3339};
pub use crate::chart::{Bar, Chart};
pub use crate::described_request::DescribedRequest;
pub use crate::described_response::{DescribedResponse, ResponseEnd};
pub use crate::entry::{FieldMapping, ParseMappingError};
pub use crate::format::{AccessLogFormat, FormatChoice};
pub use crate::input::{AccessLog, LogError};
pub use crate::replay::{Progress, Replay};
pub use crate::report::{ReplayReport, Share};
pub use crate::simulation::{RuleSet, Simulation, Undecided};

/// The crate's README, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReplayReadme;
