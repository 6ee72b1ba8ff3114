//! What an operator sees and does, through the API and the command line of the real program.

#![allow(clippy::disallowed_methods, reason = "the program under test lives by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod accounts;
mod bans;
mod command_line;
mod dashboard;
mod dashboard_requests;
mod density;
mod gateways;
mod health;
mod keys;
mod lives;
mod names;
mod now;
mod overrides;
mod plan;
mod requests;
#[path = "../gateway/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "other tests need the rest of it")]
mod support;
mod terminal;
mod top;
mod trail;
