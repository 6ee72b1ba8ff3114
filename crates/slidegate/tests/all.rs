//! All tests of the public API, but for those that count allocations in a process of their own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod anonymous;
mod bans;
mod candidates;
mod conformance;
mod customers;
mod descriptors;
mod exactness;
mod fuzz;
mod gate;
mod invented;
mod limiter;
mod memory;
mod model;
mod named;
mod overrides;
mod paths;
mod policies;
mod scenarios;
mod settle;
mod snapshot;
mod standing;
mod support;
mod threads;
