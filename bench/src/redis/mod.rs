//! Decisions on Redis: the usual pipeline, the usual script, and both of Slidegate's layouts.

mod bytes;
mod candidates;
mod load;
mod scenario;
mod table;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use slidegate::Quota;
use slidegate_testbed::RedisServer;

use self::bytes::Bytes;
use self::candidates::{Candidate, Customer, Limiter, UNITS};
use self::load::{Comparison, IN_FLIGHT, Load, latencies};
pub use self::load::{client_cpu, server_cpu};
use self::scenario::Scenario;
use self::table::Table;

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds that count; in each, the limiters take turns.
    #[arg(long, default_value_t = 31)]
    rounds: usize,
    /// Seconds until accounts are as full as they stay: a whole window.
    #[arg(long, default_value_t = 62)]
    warm_up_s: u64,
    /// A try in a fraction of the time, with accounts that are not yet half full.
    #[arg(long)]
    quick: bool,
}

/// Everybody stays below the quota; accounts become half full.
const ALLOWED: Load =
    Load { first: 0, customers: 1_500, decisions: 5_000, every: Duration::from_millis(667) };
/// Everybody is far above it.
const DENIED: Load =
    Load { first: 1_000_000, customers: 100, decisions: 5_000, every: Duration::ZERO };

/// Measures, and prints the tables and the result.
pub fn run(options: &Options) -> anyhow::Result<()> {
    require("redis-server", "apt-get install redis-server")?;
    require("cc", "apt-get install gcc libc6-dev")?;
    // One thread, so that on a machine with two processors the server has one to itself.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

/// Fails unless the program can be started, and says how to get it.
fn require(program: &str, install: &str) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    let command = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().with_context(|| format!("{program} cannot be run; install it: {install}"))?;
    Ok(())
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let start = Instant::now();
    let progress = |text: &str| eprintln!("{:>4} s  {text}", start.elapsed().as_secs());
    let (rounds, warm_up_s) =
        if options.quick { (5, 5) } else { (options.rounds, options.warm_up_s) };

    let server = RedisServer::start();
    progress(&format!("warming up for {warm_up_s} s, until accounts are as full as they stay"));
    let mut comparison = Comparison::new(&server, ALLOWED).await?;
    comparison.warm_up(Duration::from_secs(warm_up_s)).await?;
    progress(&format!("requests that are allowed, {rounds} rounds"));
    for _ in 0..rounds {
        comparison.round().await?;
    }
    let allowed = Table::new(&comparison.seen());

    progress("using up accounts");
    server.command(&["FLUSHALL"]).expect_ok();
    let mut comparison = Comparison::new(&server, DENIED).await?;
    comparison.fill().await?;
    progress(&format!("requests that are denied, {rounds} rounds"));
    for _ in 0..rounds {
        comparison.round().await?;
    }
    let denied = Table::new(&comparison.seen());

    progress("one decision at a time");
    server.command(&["FLUSHALL"]).expect_ok();
    let idle_p99 = idle_p99(&server).await?;
    drop(server);

    progress("bytes of full accounts");
    let bytes = Bytes::measure().await?;
    progress("the scenario");
    let scenario = Scenario::play().await?;
    progress("done");

    println!(
        "{UNITS} per 60 s, one connection, {IN_FLIGHT} in flight; \
         middle of {rounds} rounds (least to most)"
    );
    allowed.print("requests that are allowed");
    denied.print("requests that are denied");
    bytes.print();
    scenario.print();
    println!("\none decision at a time, packed: p99 {:.2} ms", idle_p99.as_secs_f64() * 1e3);
    println!("\n{}", result(&allowed, idle_p99, &bytes, &scenario));
    Ok(())
}

/// The 99th percentile of decisions that are sent one at a time, for a second.
async fn idle_p99(server: &RedisServer) -> anyhow::Result<Duration> {
    let limiter = Limiter::connect(Candidate::Packed, &server.url()).await?;
    let customers: Vec<Customer> = (2_000_000..2_000_100).map(Customer::new).collect();
    limiter.decide(&customers[0]).await?;
    let (mut latencies_ns, start) = (latencies(), Instant::now());
    for customer in customers.iter().cycle() {
        let sent = Instant::now();
        if sent.duration_since(start) > Duration::from_secs(1) {
            break;
        }
        limiter.decide(customer).await?;
        latencies_ns.saturating_record(sent.elapsed().as_nanos() as u64);
    }
    Ok(Duration::from_nanos(latencies_ns.value_at_quantile(0.99)))
}

fn result(allowed: &Table, idle_p99: Duration, bytes: &Bytes, scenario: &Scenario) -> String {
    let (minute, day) = (Quota::per_minute(600), Quota::per_day(1_000_000));
    format!(
        "RESULT redis packed_vs_s0_throughput={:.2} packed_vs_s3_throughput={:.2} \
         sorted_vs_s3_throughput={:.2} packed_vs_sorted_bytes_600={:.3} p99_ms_idle={:.2} \
         bytes_million_per_day={} abuser_calls_per_1000={:.1}",
        allowed.ratio(Candidate::Packed, Candidate::Pipeline).middle,
        allowed.ratio(Candidate::Packed, Candidate::Script).middle,
        allowed.ratio(Candidate::SortedSet, Candidate::Script).middle,
        bytes.packed_by_sorted_set(minute),
        idle_p99.as_secs_f64() * 1e3,
        bytes.packed(day),
        scenario.abuser_calls_per_1000(),
    )
}
