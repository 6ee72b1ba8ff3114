//! Fleets of gateways in virtual time, for tests and benchmarks.
//!
//! A fleet is the product's own code: gates, leases, batches, deadlines and the scripts that Redis runs.
//! Only three things are simulated: the network ([`Network`]), the server that the scripts run in
//! ([`SimulatedRedis`]), and the clients ([`Scenario`]). Time is tokio's paused clock, which moves on when
//! nothing is left to do, so an hour of a fleet takes seconds, and the same seed gives the same run.

#![allow(clippy::expect_used, reason = "a simulation that cannot go on ends")]

mod account;
mod clock;
mod figures;
mod fleet;
mod gateway;
mod lua;
mod network;
mod redis;
mod scenario;

pub use clock::VirtualClock;
pub use figures::Figures;
pub use network::{Network, RoundTripTime};
pub use redis::SimulatedRedis;
pub use scenario::{Change, Scenario};
