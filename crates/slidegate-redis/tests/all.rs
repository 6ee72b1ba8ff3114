//! All tests of the store, with real servers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod batches;
mod commands;
mod conformance;
mod expiry;
mod faults;
mod layouts;
mod leases;
mod memory_use;
mod outage;
mod overrides;
mod replay;
mod resilient;
mod runtime;
mod shared_state;
mod sources;
mod spread;
mod support;
mod urls;
