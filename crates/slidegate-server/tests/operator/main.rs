//! What an operator sees and does, through the API and the command line of the real program.

#![allow(clippy::disallowed_methods, reason = "the program under test lives by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod accounts;
mod bans;
mod command_line;
mod customers;
mod dashboard;
mod dashboard_requests;
mod density;
mod gateways;
mod health;
mod keys;
mod names;
mod now;
mod overrides;
mod plan;
mod requests;
mod restarts;
mod terminal;
mod top;
mod trail;

use slidegate_testbed::{Gateway, GatewayOptions, Slidegate, SlidegateOptions, Upstream};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_slidegate");

/// The program under test, to be started with any arguments.
fn options() -> SlidegateOptions {
    Slidegate::options(PROGRAM)
}

/// The configuration of a gateway in front of one upstream.
fn configure(upstream: &Upstream) -> GatewayOptions {
    Gateway::options(PROGRAM).upstream(upstream)
}

/// A gateway in front of one upstream that limits nothing.
fn unlimited(upstream: &Upstream) -> Gateway {
    configure(upstream).start()
}
