//! The simulated Redis is like the real one, and fleets keep to their quotas.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod conformance;
mod fleets;
