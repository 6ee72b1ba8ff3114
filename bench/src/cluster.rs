//! Redis Clusters under load: what a decision costs the servers by the number of primaries, and what moves
//! of slots and a failing primary cost.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;
use slidegate_testbed::RedisCluster;

use crate::faults::{ACCOUNTS, Cost, Load, cluster_url, everyone, failover_of, observe_at, tag};
use crate::redis::server_cpu;

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Seconds that are measured without a fault, and seconds in which slots move.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..40))]
    seconds: u64,
}

const PRIMARIES: [usize; 3] = [1, 3, 6];
const GATEWAYS: usize = 4;
const WARM_UP: Duration = Duration::from_secs(3);

/// A cluster without a fault, with a gateway for each primary: a server that has less to do takes longer
/// for each call, because it finds fewer of them when it wakes.
struct Steady {
    primaries: usize,
    decisions_per_second: f64,
    /// Of all primaries, for a decision, without what they do when idle.
    server_time: Duration,
    cost: Cost,
}

/// Measures each cluster, and fails if a decision is lost or one too many is admitted by Redis.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let time = Duration::from_secs(options.seconds);
    println!("{ACCOUNTS} accounts, clusters with a replica for each primary\n");
    let (mut steady, mut faults) = (Vec::new(), Vec::new());
    for primaries in PRIMARIES {
        steady.push(undisturbed(primaries, time)?);
        if primaries > 1 {
            faults.push((primaries, "slots move", moving(primaries, time)?));
            let cluster = RedisCluster::options().primaries(primaries).start();
            faults.push((primaries, "a primary fails", failover_of(&cluster, GATEWAYS)?));
        }
    }
    println!(
        "| primaries, gateways | decisions/s | processor time of the servers for one, µs |\n|---|---|---|"
    );
    for row in &steady {
        let us = row.server_time.as_secs_f64() * 1e6;
        println!("| {} | {:.0} | {us:.1} |", row.primaries, row.decisions_per_second);
    }
    println!(
        "\n{GATEWAYS} gateways where there is a fault:\n\n| primaries | fault | decisions | lost | without Redis | beyond, by Redis | beyond, in all \
         | forgotten | overcounted |\n|---|---|---|---|---|---|---|---|---|"
    );
    let undisturbed = steady.iter().map(|row| (row.primaries, "none", &row.cost));
    let disturbed = faults.iter().map(|(primaries, fault, cost)| (*primaries, *fault, cost));
    let all: Vec<_> = undisturbed.chain(disturbed).collect();
    for (primaries, fault, cost) in &all {
        println!(
            "| {primaries} | {fault} | {} | {} | {:.1} % | {} | {} | {} | {} |",
            cost.decisions,
            cost.lost,
            cost.degraded as f64 * 100.0 / cost.decisions as f64,
            cost.beyond_by_redis,
            cost.beyond,
            cost.forgotten,
            cost.overcounted,
        );
    }
    let of = |primaries| steady.iter().find(|row| row.primaries == primaries);
    let ratio = of(6).zip(of(3)).map_or(f64::NAN, |(six, three)| {
        six.server_time.as_secs_f64() / three.server_time.as_secs_f64()
    });
    let sum = |of: fn(&Cost) -> usize| all.iter().map(|(.., cost)| of(cost)).sum::<usize>();
    println!(
        "\nRESULT cluster server_time_6_vs_3={ratio:.2} lost={} beyond_by_redis={} forgotten={}",
        sum(|cost| cost.lost),
        sum(|cost| cost.beyond_by_redis),
        sum(|cost| cost.forgotten),
    );
    ensure!(sum(|cost| cost.lost) == 0, "decisions were lost");
    ensure!(sum(|cost| cost.beyond_by_redis) == 0, "Redis has admitted more than a quota");
    Ok(())
}

/// A cluster whose replicas do not take over because the machine is busy.
fn patient(primaries: usize) -> RedisCluster {
    RedisCluster::options().primaries(primaries).line("cluster-node-timeout 15000").start()
}

fn undisturbed(primaries: usize, time: Duration) -> anyhow::Result<Steady> {
    let cluster = patient(primaries);
    let serving = &cluster.nodes()[..primaries];
    let spent = |time| {
        let before: Duration = serving.iter().map(server_cpu).sum();
        sleep(time);
        serving.iter().map(server_cpu).sum::<Duration>().saturating_sub(before)
    };
    let idle = spent(WARM_UP).div_f64(WARM_UP.as_secs_f64());
    let load = Load::start(&cluster_url(&cluster), primaries)?;
    sleep(WARM_UP);
    let (before, began) = (load.calls().len(), Instant::now());
    let busy = spent(time);
    let (decisions, took) = ((load.calls().len() - before) as f64, began.elapsed().as_secs_f64());
    Ok(Steady {
        primaries,
        decisions_per_second: decisions / took,
        server_time: busy.saturating_sub(idle.mul_f64(took)).div_f64(decisions),
        cost: Cost::new(&load.stop()?, None, Duration::ZERO),
    })
}

/// Moves the slot of one account after the other to the primary of the next.
fn moving(primaries: usize, time: Duration) -> anyhow::Result<Cost> {
    let cluster = RedisCluster::options().primaries(primaries).start();
    let slot_of = |account: usize| cluster.slot_of(&tag(account % ACCOUNTS));
    observe_at(GATEWAYS, &cluster_url(&cluster), everyone(), || {
        let (began, mut moved) = (Instant::now(), 0);
        for account in (0..ACCOUNTS).cycle() {
            if began.elapsed() > time {
                break;
            }
            let (slot, to) = (slot_of(account), cluster.primary_of(slot_of(account + 1)));
            if cluster.primary_of(slot).port() != to.port() {
                cluster.migrate_slot(slot, to);
                moved += 1;
            }
        }
        eprintln!("{moved} slots moved among {primaries} primaries");
        Instant::now()
    })
}
