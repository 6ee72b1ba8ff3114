//! All tests of the public API, but for those that count allocations in a process of their own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod axum;
mod client_address;
mod detectors;
mod fuzz;
mod headers;
mod http_page;
mod outgoing;
mod paths;
mod refusals;
mod service;
mod settle;
mod structured_fields;
mod support;
