//! Real servers for tests and benchmarks, which end with the value that started them.
//!
//! Everything here panics with the reason when it fails: a test has no better way to go on. It
//! shares no code with the product, so that neither can hide a mistake of the other.

#![allow(clippy::disallowed_methods, reason = "it waits for real processes")]

mod browser;
mod clock;
mod cluster;
mod commands;
mod connection;
mod directory;
mod flavour;
mod formation;
mod gateway;
pub mod http1;
pub mod http2;
mod issuer;
mod member;
mod migration;
mod network;
mod options;
mod postgres;
mod process;
pub mod program;
mod prometheus;
mod relay;
mod reply;
mod sentinel;
mod server;
mod slidegate;
mod tls;
mod tool;
mod upstream;
mod wait;

pub use browser::{Browser, ColorScheme};
pub use clock::ManualTime;
pub use cluster::{ClusterOptions, RedisCluster};
pub use commands::CommandCounts;
pub use directory::Directory;
pub use flavour::Flavour;
pub use gateway::{Gateway, GatewayOptions, ledger_keys};
pub use http1::{Message, Wire};
pub use http2::{Http2Client, Http2Upstream};
pub use issuer::TokenIssuer;
pub use migration::Migration;
pub use network::FaultyNetwork;
pub use options::ServerOptions;
pub use postgres::{Database, PgBouncer, PostgresServer, PostgresSession};
pub use program::Program;
pub use prometheus::Prometheus;
pub use reply::Reply;
pub use sentinel::{RedisSentinels, SentinelOptions};
pub use server::RedisServer;
pub use slidegate::{Slidegate, SlidegateOptions};
pub use tls::Certificates;
pub use tool::tool;
pub use upstream::Upstream;
pub use wait::{assert_no_hang, wait_until};
