//! The simulated Redis is like the real one, and fleets keep to their quotas.

mod conformance;
mod fleets;
