//! All tests.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod browser;
mod cluster;
mod commands;
mod network;
mod sentinel;
mod server;
