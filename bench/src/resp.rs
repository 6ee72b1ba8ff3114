//! Decisions over Redis's protocol: Slidegate beside throttlecrab-server, asked by redis-benchmark.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::harness::{Core, Directory, Program, find, free_port, require, slidegate};
use crate::spread::Spread;

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds that count; in each, the servers take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Calls in a turn without pipelining; with 16 at once there are four times as many.
    #[arg(long, default_value_t = 200_000)]
    calls: u32,
}

/// A server, and where it listens.
struct Server {
    program: Program,
    port: u16,
}

/// What was seen of a server in one round.
struct Turn {
    /// Calls a second.
    rate: f64,
    /// The server's own processor time for a call.
    cpu_us: f64,
}

/// Commands that a client sends before it reads the replies.
const PIPELINES: [u32; 2] = [1, 16];
const PEER: &str = "throttlecrab-server";

/// Measures, and prints the rates and the result.
pub fn run(options: &Options) -> anyhow::Result<()> {
    require(&["redis-benchmark"])?;
    let directory = Directory::new()?;
    if !find(PEER).is_file() {
        println!("SKIPPED {PEER}: it is missing; ./scripts/bench installs it");
        println!("\nRESULT resp throttlecrab_p1_ratio=- throttlecrab_p16_ratio=-");
        return Ok(());
    }
    let (ours, theirs) = (serve(&directory)?, throttlecrab(&directory)?);
    let mut result = "RESULT resp".to_owned();
    for pipeline in PIPELINES {
        let calls = if pipeline == 1 { options.calls } else { options.calls * 4 };
        let turn = || anyhow::Ok([ours.turn(calls, pipeline)?, theirs.turn(calls, pipeline)?]);
        // A round to warm up.
        turn()?;
        let rounds = (0..options.rounds.max(1)).map(|_| turn());
        let rounds = rounds.collect::<anyhow::Result<Vec<[Turn; 2]>>>()?;
        for (server, name) in ["slidegate", PEER].into_iter().enumerate() {
            let middle = |figure: fn(&Turn) -> f64| {
                Spread::of(rounds.iter().map(|turns| figure(&turns[server]))).middle
            };
            let (rate, cpu_us) = (middle(|turn| turn.rate), middle(|turn| turn.cpu_us));
            println!(
                "{pipeline:>2} at once, {name:<20} {rate:>9.0}/s, {cpu_us:.1} us of its processor"
            );
        }
        let ratio = Spread::of(rounds.iter().map(|[ours, theirs]| ours.rate / theirs.rate));
        let (least, middle, most) = (ratio.least, ratio.middle, ratio.most);
        println!("{pipeline:>2} at once, ratio {middle:.2} ({least:.2} to {most:.2})");
        // One call at a time, redis-benchmark is busier than either server, and bounds the rate.
        let cpu = Spread::of(rounds.iter().map(|[ours, theirs]| theirs.cpu_us / ours.cpu_us));
        result += &format!(
            " throttlecrab_p{pipeline}_ratio={middle:.2} throttlecrab_p{pipeline}_cpu_ratio={:.2}",
            cpu.middle
        );
    }
    println!("\n{result}");
    Ok(())
}

impl Server {
    /// Calls a second, for 1,000 keys and 50 connections.
    fn turn(&self, calls: u32, pipeline: u32) -> anyhow::Result<Turn> {
        let (before, count) = (self.program.usage()?.cpu, calls);
        let [port, calls, pipeline] = [self.port.into(), calls, pipeline].map(|n| n.to_string());
        let mut load: Command = Core::Rest.command(find("redis-benchmark"));
        load.args(["-p", &port, "-n", &calls, "-P", &pipeline, "-c", "50", "-r", "1000", "--csv"]);
        // As many at once as in a minute: both then decide by one limit.
        load.args(["THROTTLE", "key:__rand_int__", "600000", "600000", "60"]);
        let output = load.output().context("redis-benchmark cannot be run")?;
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "redis-benchmark failed: {said}{errors}");
        // "test","rps",… and below it the figures, each in quotation marks.
        let rate = said.lines().last().and_then(|line| line.split("\",\"").nth(1));
        let rate = rate.and_then(|rate| rate.trim_matches('"').parse().ok());
        let rate =
            rate.with_context(|| format!("no rate in what redis-benchmark says: {said}{errors}"))?;
        let cpu = self.program.usage()?.cpu.saturating_sub(before);
        Ok(Turn { rate, cpu_us: cpu.as_secs_f64() * 1e6 / f64::from(count) })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn serve(directory: &Directory) -> anyhow::Result<Server> {
    let (port, admin) = (free_port()?, free_port()?);
    let listen = |port| format!("listen = \"127.0.0.1:{port}\"\n");
    let config = format!("[resp]\n{}[admin]\n{}", listen(port), listen(admin));
    let config = directory.write("slidegate.toml", &config)?;
    let mut command = Core::Tested.command(slidegate()?);
    command.args(["serve", "--config"]).arg(config);
    Ok(Server { program: Program::start(&mut command, port, directory)?, port })
}

fn throttlecrab(directory: &Directory) -> anyhow::Result<Server> {
    let port = free_port()?;
    let mut command = Core::Tested.command(find(PEER));
    command.args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &port.to_string()]);
    // It has no setting for this, but its runtime has.
    command.env("TOKIO_WORKER_THREADS", "1");
    Ok(Server { program: Program::start(&mut command, port, directory)?, port })
}
