//! What a decision costs in Redis and at the gateway that asks for it: the constants of `slidegate size`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slidegate::limit::{Charge, Charges, Quotas};
use slidegate::{Identity, Name, Quota, Store};
use slidegate_redis::{Layout, RedisStore};
use slidegate_testbed::{CommandCounts, RedisServer};
use tokio::task::JoinSet;

use crate::redis::{client_cpu, server_cpu};
use crate::spread::Spread;

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds of a second for each way of asking; they take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Gateways that ask one server, each over one connection.
const GATEWAYS: u64 = 4;
/// Accounts that are asked about, so that none is in a processor's cache all the time.
const ACCOUNTS: u64 = 20_000;
const ROUND: Duration = Duration::from_secs(1);
const QUOTAS: [Quota; 3] = [Quota::per_minute(600), Quota::per_hour(9000), Quota::per_day(99_000)];

/// A way of asking.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    layout: Layout,
    /// How many windows each decision has.
    ledgers: usize,
    /// Decisions that each gateway waits for at once; they share calls.
    in_flight: u64,
}

const WAYS: [Way; 6] = [
    Way { name: "packed, a call each", layout: Layout::Packed, ledgers: 1, in_flight: 1 },
    Way { name: "packed, two windows", layout: Layout::Packed, ledgers: 2, in_flight: 1 },
    Way { name: "packed, three windows", layout: Layout::Packed, ledgers: 3, in_flight: 1 },
    Way { name: "packed, shared calls", layout: Layout::Packed, ledgers: 1, in_flight: 64 },
    Way { name: "sorted-set, a call each", layout: Layout::SortedSet, ledgers: 1, in_flight: 1 },
    Way { name: "sorted-set, shared calls", layout: Layout::SortedSet, ledgers: 1, in_flight: 64 },
];

/// What was seen in one round, for each decision.
struct Seen {
    calls: f64,
    server_us: f64,
    client_us: f64,
    bytes: f64,
}

/// Measures each way, and prints what a decision costs.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("| | calls for 1,000 | Redis, µs | gateway, µs | bytes |\n|---|---|---|---|---|");
    for way in WAYS {
        let server = RedisServer::start();
        let gateways = (0..GATEWAYS).map(|_| {
            let builder = RedisStore::builder(server.url()).layout(way.layout);
            Ok(Arc::new(builder.deadline(Duration::from_secs(30)).build()?))
        });
        let gateways = gateways.collect::<anyhow::Result<Vec<_>>>()?;
        runtime.block_on(round(&server, &gateways, way))?;
        let mut rounds = Vec::new();
        for _ in 0..options.rounds.max(1) {
            rounds.push(runtime.block_on(round(&server, &gateways, way))?);
        }
        let middle = |of: fn(&Seen) -> f64| Spread::of(rounds.iter().map(of)).middle;
        println!(
            "| {} | {:.0} | {:.2} | {:.2} | {:.0} |",
            way.name,
            middle(|seen| seen.calls) * 1000.0,
            middle(|seen| seen.server_us),
            middle(|seen| seen.client_us),
            middle(|seen| seen.bytes),
        );
    }
    Ok(())
}

async fn round(
    server: &RedisServer,
    gateways: &[Arc<RedisStore>],
    way: Way,
) -> anyhow::Result<Seen> {
    let counts = || (CommandCounts::of([server]), server_cpu(server), bytes(server));
    let ((calls, cpu, carried), client) = (counts(), client_cpu()?);
    let (start, decided) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let quotas = Arc::new(Quotas::new(QUOTAS[..way.ledgers].to_vec())?);
    let mut tasks = JoinSet::new();
    for gateway in gateways {
        for _ in 0..way.in_flight {
            let (gateway, decided) = (gateway.clone(), decided.clone());
            let quotas = quotas.clone();
            tasks.spawn(async move {
                let policy: Name = "api".parse()?;
                while start.elapsed() < ROUND {
                    let number = fastrand::u64(..ACCOUNTS);
                    let identity = Identity::user(&format!("user-{number}"));
                    let charge = Charge::new(&policy, &identity, &quotas);
                    gateway.spend(&Charges::from(charge)).await?;
                    decided.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            });
        }
    }
    tasks.join_all().await.into_iter().collect::<anyhow::Result<()>>()?;
    let ours = client_cpu()?.saturating_sub(client);
    let (calls_now, cpu_now, carried_now) = counts();
    let decided = decided.load(Ordering::Relaxed) as f64;
    Ok(Seen {
        calls: calls_now.since(&calls).calls("evalsha") as f64 / decided,
        server_us: cpu_now.saturating_sub(cpu).as_secs_f64() * 1e6 / decided,
        client_us: ours.as_secs_f64() * 1e6 / decided,
        bytes: (carried_now - carried) as f64 / decided,
    })
}

/// What the server has read and written so far.
fn bytes(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "stats"]).text();
    let fields = ["total_net_input_bytes:", "total_net_output_bytes:"];
    let values = info.lines().filter_map(|line| {
        fields.iter().find_map(|field| line.strip_prefix(field))?.parse::<u64>().ok()
    });
    values.sum()
}
