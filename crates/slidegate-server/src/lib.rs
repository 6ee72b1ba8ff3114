//! The server and the command line of [Slidegate](slidegate), the exact sliding-window rate limiter for
//! HTTP APIs.
//!
//! The program `slidegate` is [`Cli`]: it parses the command line, and does what was asked for. To limit
//! requests inside a program of yours, use the crates [`slidegate`], `slidegate-tower` and
//! [`slidegate-redis`](slidegate_redis) instead.

mod admin;
mod api;
mod calendar;
mod certificates;
mod check;
mod cli;
mod client;
mod config;
mod customers;
mod decisions;
mod demo;
mod digest;
mod disk;
mod endpoint;
mod envoy;
mod explain;
mod file;
mod gateway;
mod holds;
mod identity_text;
mod import;
mod live_config;
mod logs;
mod man;
mod observe;
mod policy_test;
mod preflight;
mod reload;
mod replay;
mod resp;
mod server;
mod shared;
mod size;
mod standing;
mod store;
mod terminal;
mod visible;

pub use crate::cli::Cli;
