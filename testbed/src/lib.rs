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
mod member;
mod migration;
mod network;
mod options;
mod process;
mod prometheus;
mod relay;
mod reply;
mod sentinel;
mod server;
mod slidegate;
mod tls;
mod tool;
mod wait;

pub use browser::{Browser, ColorScheme};
pub use clock::ManualTime;
pub use cluster::{ClusterOptions, RedisCluster};
pub use commands::CommandCounts;
pub use directory::Directory;
pub use flavour::Flavour;
pub use migration::Migration;
pub use network::FaultyNetwork;
pub use options::ServerOptions;
pub use prometheus::Prometheus;
pub use reply::Reply;
pub use sentinel::{RedisSentinels, SentinelOptions};
pub use server::RedisServer;
pub use slidegate::{Slidegate, SlidegateOptions};
pub use tls::Certificates;
pub use tool::tool;
pub use wait::wait_until;
