//! The gateway, seen from outside: real sockets, an upstream whose bytes the tests write and read
//! themselves, and the program as it is started.

#![allow(clippy::disallowed_methods, reason = "the program under test lives by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod advisories;
mod ambiguity;
mod audit;
mod behind_proxies;
mod clients;
mod connections;
mod control;
mod corpus;
mod cpu;
mod customers;
mod failures;
mod files;
mod flood_guard;
mod forwarding;
mod hardening;
mod headers;
mod http2;
mod key_source;
mod keys;
mod lifecycle;
mod limits;
mod operation;
mod paths;
mod redis;
mod reload;
mod response_costs;
mod routes;
mod settle;
mod size;
mod smuggling;
mod snapshot;
mod standing;
mod standing_page;
mod start;
mod streaming;
mod systemd;
mod traces;
mod unread_bodies;
mod upgrades;
mod users;

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
