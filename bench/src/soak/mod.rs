//! A gateway and a Redis under mixed traffic and faults for a long time, judged by what clients and
//! the upstream saw.

mod client;
mod course;
mod decisions;
mod footprint;
mod load;
mod log;
mod oracle;
mod rules;
mod schedule;
mod upstream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::ensure;
use slidegate_testbed::{Gateway, RedisServer, Slidegate};

use self::course::Course;
use self::footprint::{Footprint, Trend, trends};
use self::load::Load;
use self::log::Log;
use self::oracle::{Faults, Reload, Verdict, judge};
use self::upstream::Upstream;
use crate::harness::slidegate;

#[derive(clap::Args)]
pub struct Options {
    /// How long to go on.
    #[arg(value_parser = clap::value_parser!(u64).range(1..=24 * 60))]
    minutes: u64,
    /// Chooses the traffic and the times of the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// For what is in flight without a client to arrive, or to end.
const PAUSE: Duration = Duration::from_secs(3);
const MAX_SHOWN: usize = 30;

/// Runs the soak, prints the figures, and fails if a promise was broken.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    runtime.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    });
    let log = Log::new();
    let upstream = Upstream::start(&log, runtime.handle())?;
    let redis = RedisServer::options().appendonly().start();
    let text = rules::configuration(upstream.address(), &redis.url(), 0);
    let gateway = Gateway::from(Slidegate::start(slidegate()?, &text));
    let idle = Footprint::of(&gateway, log.now());
    let load = Load::new(gateway.listener(), gateway.address("decisions"), &log);
    let first = Reload { version: 0, asked: Duration::ZERO, done: log.now() };
    let faults = Faults { reloads: vec![first], ..Faults::default() };
    let samples = Vec::new();
    let mut course = Course { log: log.clone(), upstream, redis, gateway, faults, samples };
    let clients = runtime.spawn(load.clone().run(options.seed));
    let length = Duration::from_secs(options.minutes * 60);
    course.run(length, options.seed, &interrupted)?;
    load.stop();
    runtime.block_on(clients)?;
    sleep(PAUSE);
    let (exchanges, complaints) = log.take();
    course.upstream.kill();
    let mut broken = Vec::new();
    let left = match course.settle(&idle) {
        Ok(left) => left,
        Err(error) => {
            broken.push(error.to_string());
            Footprint::of(&course.gateway, log.now())
        }
    };
    println!("without clients: {} fds before, {} after", idle.fds, left.fds);
    let trends = trends(&course.samples);
    for trend in &trends {
        println!("{trend}");
    }
    let grown = trends.iter().filter(|trend| !trend.is_flat());
    broken.extend(grown.map(|trend| format!("it grows: {trend}")));
    broken.extend(losses(&course.gateway));
    broken.extend(complaints);
    let verdict = judge(&exchanges, &course.faults);
    println!("{}", result(options, &verdict, &course.faults, &trends));
    broken.extend(verdict.complaints);
    for sentence in broken.iter().take(MAX_SHOWN) {
        eprintln!("FAILED: {sentence}");
    }
    ensure!(broken.is_empty(), "{} broken promises", broken.len());
    Ok(())
}

/// What the gateway itself says that it could not keep.
fn losses(gateway: &Gateway) -> Vec<String> {
    let metrics = [
        ("slidegate_memory_refused_total", ""),
        ("slidegate_store_unmerged_accounts", ""),
        ("slidegate_store_unrecorded_total", ""),
        ("slidegate_log_dropped_total", ""),
        ("slidegate_response_costs_total", "dropped"),
    ];
    let values = metrics.map(|(name, label)| (name, gateway.metric(name, label)));
    let lost = values.into_iter().filter(|(_, value)| *value > 0.0);
    let mut losses: Vec<String> = lost.map(|(name, value)| format!("{name} is {value}")).collect();
    let output = gateway.output();
    let panics = output.lines().filter(|line| line.contains("panicked"));
    losses.extend(panics.map(str::to_owned));
    losses
}

fn result(options: &Options, verdict: &Verdict, faults: &Faults, trends: &[Trend]) -> String {
    let Verdict { requests, admitted, refused, aborted, accounts, .. } = verdict;
    let Verdict { by_upstream, by_redis, repeated, lost, foreign, .. } = verdict;
    let Verdict { over_admitted, beyond_in_faults, .. } = verdict;
    let figure = |name: &str, of: fn(&Trend) -> f64| {
        trends.iter().find(|trend| trend.name == name).map(of).unwrap_or_default()
    };
    let [rss, fds] = ["memory, MB", "file descriptors"]
        .map(|name| [figure(name, |trend| trend.start), figure(name, |trend| trend.end)]);
    format!(
        "RESULT soak minutes={} requests={requests} accounts={accounts} admitted={admitted} \
         refused={refused} aborted={aborted} reloads={} redis_faults={} upstream_kills={} \
         failed_by_upstream={by_upstream} refused_without_redis={by_redis} repeated={repeated} \
         over_admitted={over_admitted} beyond_in_faults={beyond_in_faults} lost={lost} \
         foreign={foreign} rss_start_mb={:.1} rss_end_mb={:.1} fds_start={} fds_end={}",
        options.minutes,
        faults.reloads.len() - 1,
        faults.redis.len(),
        faults.upstream.len(),
        rss[0],
        rss[1],
        fds[0],
        fds[1],
    )
}
