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
mod side_by_side;
mod url_shortener;
mod whistle;

#[allow(dead_code, unused_imports, reason = "the tests of the gateway use the rest")]
#[path = "../gateway/support/mod.rs"]
mod support;
