//! The example configurations of the five sources and the packaging, with the real program, a real
//! Redis and a service behind the gateway.

#![allow(clippy::disallowed_methods, reason = "the program under test lives by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod admissions;
mod api_service;
mod environment;
mod example;
mod examples;
mod go_shortener;
mod packaging;
mod production_guide;
mod saas_plans;
mod schema;
mod side_by_side;
mod stop_guard;
mod url_shortener;

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
