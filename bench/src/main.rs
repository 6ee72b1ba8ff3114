//! Every figure that Slidegate claims, side by side with its peers in one run.

mod alloc;
mod calls;
mod cluster;
mod cost;
mod customers;
mod dashboard;
mod decide;
mod exactness;
mod faults;
mod gateway;
mod harness;
mod leases;
mod memory;
mod policies;
mod promises;
mod redis;
mod replay;
mod resp;
mod rls;
mod scale;
mod soak;
mod spread;
mod tls;
mod tower;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Measures Slidegate beside its peers. Build with `--profile dist`.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// In-memory decisions: Slidegate, governor, throttlecrab, and a map of timestamp vectors.
    Memory(memory::Options),
    /// Decisions on Redis: the usual pipeline and the usual script, and both of Slidegate's layouts.
    Redis(redis::Options),
    /// Policies that are decided without waiting for Redis, beside the same ones that wait.
    Async(leases::Options),
    /// Makes a number of calls to one candidate, for scripts/instructions to count.
    Calls(calls::Options),
    /// What a middleware adds to a request: Slidegate's layer and tower_governor.
    Tower(tower::Options),
    /// Gateways in front of an upstream: nginx, HAProxy, Envoy, Traefik and Slidegate.
    Gateway(harness::Options),
    /// Gateways over TLS 1.3, with HTTP/2 and HTTP/1.1: nginx, Envoy and Slidegate.
    Tls(harness::Options),
    /// Decisions over HTTP: Slidegate's decision service and throttlecrab-server.
    Decide(harness::Options),
    /// Envoy's rate limit service over gRPC, beside POST /v1/decide.
    Rls(harness::Options),
    /// Decisions over Redis's protocol: Slidegate and throttlecrab-server.
    Resp(resp::Options),
    /// Decisions while a thousand dashboards are open.
    Dashboard(harness::Options),
    /// A log of ten million lines, played through two policies on one core.
    Replay(replay::Options),
    /// What many policies and long lists of networks add to a decision.
    Policies,
    /// A million keys from PostgreSQL, revocations, and tokens that were verified before.
    Customers,
    /// What the write-ups that Slidegate grew out of promise: latency and memory.
    Promises,
    /// Fleets of up to a thousand gateways, in virtual time; with --docs, writes docs/scale.md.
    Scale(scale::Options),
    /// What a decision costs in Redis and at the gateway that asks: the constants of `slidegate size`.
    Cost(cost::Options),
    /// Redis Clusters of one, three and six primaries, with moving slots and failing primaries.
    Cluster(cluster::Options),
    /// What each fault of Redis costs under load; writes docs/reliability.md.
    Faults(faults::Options),
    /// The most that each limiter admits in any window; writes docs/exactness.md.
    Exactness(exactness::Options),
    /// Mixed traffic and faults for a long time, judged by what clients and the upstream saw.
    Soak(soak::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().bench {
        Bench::Memory(options) => memory::run(&options),
        Bench::Redis(options) => redis::run(&options),
        Bench::Async(options) => leases::run(&options),
        Bench::Calls(options) => calls::run(&options),
        Bench::Policies => policies::run(),
        Bench::Tower(options) => tower::run(&options),
        Bench::Gateway(options) => gateway::run(&options),
        Bench::Tls(options) => tls::run(&options),
        Bench::Decide(options) => decide::run(&options),
        Bench::Rls(options) => rls::run(&options),
        Bench::Resp(options) => resp::run(&options),
        Bench::Dashboard(options) => dashboard::run(&options),
        Bench::Replay(options) => replay::run(&options),
        Bench::Customers => customers::run(),
        Bench::Promises => promises::run(),
        Bench::Scale(options) => scale::run(&options),
        Bench::Cost(options) => cost::run(&options),
        Bench::Cluster(options) => cluster::run(&options),
        Bench::Faults(options) => faults::run(&options),
        Bench::Exactness(options) => exactness::run(&options),
        Bench::Soak(options) => soak::run(&options),
    }
}
