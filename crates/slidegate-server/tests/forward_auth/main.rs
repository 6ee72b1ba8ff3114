//! The examples for proxies and languages, with the real programs: each in front of an application,
//! asking a real `slidegate serve`.

#![allow(clippy::disallowed_methods, reason = "the program under test lives by the real clock")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod application;
mod caddy;
mod clients;
mod envoy;
mod envoy_costs;
mod envoy_grpc;
mod frameworks;
mod haproxy;
mod nginx;
mod packages;
mod proxy;
mod redis_clients;
mod site;
mod traefik;
