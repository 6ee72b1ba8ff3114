//! The example configurations of the five sources and the packaging, with the real program, a real
//! Redis and a service behind the gateway.

#![allow(clippy::disallowed_methods, reason = "the program under test lives by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod admissions;
mod environment;
mod example;
mod examples;
mod packaging;
mod s0;
mod s1;
mod s2;
mod s3;
mod s4;
mod whistle;

#[allow(dead_code, unused_imports, reason = "the tests of the gateway use the rest")]
#[path = "../gateway/support/mod.rs"]
mod support;
