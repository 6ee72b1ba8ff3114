//! Policies that are decided without waiting for Redis, beside the same ones that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::Method;
use slidegate::{Consistency, Facts, Gate, Policies, Policy, Quota, Source};
use slidegate_redis::{LeasedStore, RedisStore, ResilientStore};
use slidegate_testbed::{CommandCounts, RedisServer};
use tokio::task::{JoinSet, yield_now};

use crate::spread::Spread;

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds of a second for each way of deciding; they take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Windows of ten seconds over which the use of the quota is counted.
    #[arg(long, default_value_t = 2)]
    windows: u32,
}

/// Decisions that are under way at any time, where as many are made as can be.
const IN_FLIGHT: usize = 64;
/// Decisions a second, where they are paced.
const PACE: u64 = 10_000;
/// A quota that is never reached.
const AMPLE: Quota = Quota::per_minute(u32::MAX);
const WINDOW: Duration = Duration::from_secs(10);

type LeasedGate = Arc<Gate<LeasedStore>>;

/// Measures one hot account and a thousand, and prints the result.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut result = "RESULT async".to_owned();
        for (accounts, suffix) in [(1, ""), (1000, "_1k")] {
            println!("{accounts} accounts");
            let calls = calls_per_1000(accounts).await?;
            println!("  calls to Redis for 1,000 decisions at {PACE} a second: {calls:.1}");
            let ratio = throughput(accounts, options.rounds).await?;
            let Spread { least, middle, most, .. } = ratio;
            println!(
                "  decisions a second, of those in sync: {middle:.1} ({least:.1} to {most:.1})"
            );
            let used = used_of_quota(accounts, options.windows).await?;
            println!("  of the quota used at twice its demand: {used:.3}");
            result += &format!(
                " calls_per_1000{suffix}={calls:.1} throughput_vs_sync{suffix}={middle:.1} \
                 used_of_quota{suffix}={used:.3}"
            );
        }
        println!("\n{result}");
        Ok(())
    })
}

fn gate(
    server: &RedisServer,
    quota: Quota,
    consistency: Consistency,
) -> anyhow::Result<LeasedGate> {
    let name = if consistency == Consistency::Sync { "sync" } else { "async" };
    let policy = Policy::new(name).identity([Source::User]).quota(quota).consistency(consistency);
    // A busy machine is not what is measured.
    let redis = RedisStore::builder(server.url()).deadline(Duration::from_secs(2)).build()?;
    let store = LeasedStore::new(ResilientStore::new(redis));
    Ok(Arc::new(Gate::new(Policies::builder().policy(policy).build()?, store)))
}

/// Decides for one of the accounts; returns whether it was allowed.
async fn decide(gate: &LeasedGate, request: u64, users: &[String]) -> anyhow::Result<bool> {
    let user = &users[request as usize % users.len()];
    let decision = gate.decide(&Facts::new(&Method::GET, "/").user(user)).await?;
    anyhow::ensure!(!decision.is_degraded(), "Redis did not decide");
    Ok(decision.is_allowed())
}

fn users(accounts: u32) -> Arc<[String]> {
    (0..accounts).map(|n| format!("user-{n}")).collect()
}

/// Decides at so many a second for so long; returns how many were allowed.
async fn paced(
    gate: &LeasedGate,
    users: &Arc<[String]>,
    pace: u64,
    time: Duration,
) -> anyhow::Result<u64> {
    let (start, allowed) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let (mut tasks, mut sent) = (JoinSet::new(), 0);
    while start.elapsed() < time {
        let due = (start.elapsed().as_secs_f64() * pace as f64) as u64;
        for request in sent..due {
            let (gate, users, allowed) = (gate.clone(), users.clone(), allowed.clone());
            tasks.spawn(async move {
                let is_allowed = decide(&gate, request, &users).await?;
                allowed.fetch_add(u64::from(is_allowed), Ordering::Relaxed);
                anyhow::Ok(())
            });
        }
        sent = due;
        tokio::time::sleep(Duration::from_millis(1)).await;
        while let Some(done) = tasks.try_join_next() {
            done??;
        }
    }
    tasks.join_all().await.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(allowed.load(Ordering::Relaxed))
}

async fn calls_per_1000(accounts: u32) -> anyhow::Result<f64> {
    let server = RedisServer::start();
    let (gate, users) = (gate(&server, AMPLE, Consistency::ASYNC)?, users(accounts));
    paced(&gate, &users, PACE, Duration::from_secs(1)).await?;
    let before = CommandCounts::of([&server]);
    let decided = paced(&gate, &users, PACE, Duration::from_secs(3)).await?;
    let calls = CommandCounts::of([&server]).since(&before).calls("evalsha");
    Ok(calls as f64 * 1000.0 / decided as f64)
}

/// Decisions a second without waiting, for each that is made in sync.
async fn throughput(accounts: u32, rounds: usize) -> anyhow::Result<Spread> {
    let server = RedisServer::start();
    let users = users(accounts);
    let gates = [Consistency::Sync, Consistency::ASYNC].map(|way| gate(&server, AMPLE, way));
    let [sync, without_waiting] = gates;
    let (sync, without_waiting) = (sync?, without_waiting?);
    let mut ratios = Vec::new();
    for _ in 0..rounds.max(1) {
        let in_sync = unpaced(&sync, &users).await?;
        ratios.push(unpaced(&without_waiting, &users).await? / in_sync);
    }
    Ok(Spread::of(ratios))
}

/// How many decisions were made in a second.
async fn unpaced(gate: &LeasedGate, users: &Arc<[String]>) -> anyhow::Result<f64> {
    let (start, mut workers) = (Instant::now(), JoinSet::new());
    for worker in 0..IN_FLIGHT as u64 {
        let (gate, users) = (gate.clone(), users.clone());
        workers.spawn(async move {
            let mut decided = 0;
            while start.elapsed() < Duration::from_secs(1) {
                decide(&gate, worker + decided * IN_FLIGHT as u64, &users).await?;
                decided += 1;
                // Every server has something else to do between two requests.
                yield_now().await;
            }
            anyhow::Ok(decided)
        });
    }
    let decided: anyhow::Result<Vec<u64>> = workers.join_all().await.into_iter().collect();
    Ok(decided?.into_iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64())
}

/// Which part of its quota an account gets that asks for twice as much, after a first window.
async fn used_of_quota(accounts: u32, windows: u32) -> anyhow::Result<f64> {
    let server = RedisServer::start();
    let units = (PACE * WINDOW.as_secs() / 2 / u64::from(accounts)) as u32;
    let quota = Quota::new(units.try_into()?, WINDOW)?;
    let (gate, users) = (gate(&server, quota, Consistency::ASYNC)?, users(accounts));
    paced(&gate, &users, PACE, WINDOW).await?;
    let used = paced(&gate, &users, PACE, WINDOW * windows).await?;
    Ok(used as f64 / f64::from(units * windows * accounts))
}
