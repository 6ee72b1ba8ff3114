//! The gateway, seen from outside: real sockets, an upstream whose bytes the tests write and read
//! themselves, and the program as it is started.

#![allow(clippy::disallowed_methods, reason = "the program under test lives by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod advisories;
mod ambiguity;
mod audit;
mod clients;
mod connections;
mod control;
mod corpus;
mod cpu;
mod failures;
mod files;
mod flood_guard;
mod forwarding;
mod fronts;
mod hardening;
mod headers;
mod http2;
mod keys;
mod lifecycle;
mod limits;
mod operation;
mod paths;
#[path = "../forward_auth/program.rs"]
#[allow(dead_code, reason = "shared with the tests of forward-auth, which use more of it")]
mod program;
mod redis;
mod reload;
mod routes;
mod smuggling;
mod snapshot;
mod start;
mod streaming;
mod support;
mod unread_bodies;
mod upgrades;
mod users;
