//! Servers under the load of `wrk`, taking turns.

mod clients;
mod program;
mod table;

use std::time::{Duration, Instant};

use anyhow::ensure;

use self::clients::CLIENTS;
pub use self::clients::{Ask, Clients, Seen};
pub use self::program::{
    Core, Directory, Program, cpu, fill, find, free_port, peak_rss_bytes, peers_directory, require,
    slidegate,
};
pub use self::table::{Pair, Table};

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds that count; in each, the servers take turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds that a turn takes, less than a minute.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..60))]
    seconds: u64,
    /// Only the rows with this text in their name, such as "nginx" or "refused", and an upstream.
    #[arg(long, default_value = "")]
    only: String,
}

impl Options {
    pub fn rounds(&self) -> usize {
        self.rounds.max(1)
    }

    /// How long a turn takes.
    pub fn turn(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Whether the row is to be measured.
    pub fn want(&self, name: &str, traffic: Traffic) -> bool {
        format!("{name}, {}", traffic.name()).contains(&self.only)
    }
}

/// Whether clients are within their quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    Allowed,
    Refused,
}

impl Traffic {
    pub const ALL: [Self; 2] = [Self::Allowed, Self::Refused];

    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
        }
    }
}

/// A server that takes part.
pub struct Runner {
    pub name: &'static str,
    pub traffic: Traffic,
    pub program: Program,
    pub port: u16,
    pub ask: Ask,
}

/// What was seen of a server in one round.
pub struct Turn {
    /// Answers per second.
    rate: f64,
    p50: Duration,
    p99: Duration,
    /// The server's own processor time, for each answer.
    cpu: Duration,
    /// The part of the time in which the server was at work.
    busy: f64,
    /// Bytes of memory that the server had at the end.
    rss_bytes: u64,
}

/// Connections that the clients share.
const CONNECTIONS: u32 = 64;

/// Where one request a minute is allowed, a client gets through at most so often in a turn that is
/// shorter than a minute: at its beginning, and when the minute of an earlier one is over.
const MAX_ADMITTED: u64 = 2;

/// Runs all rounds, after one that does not count.
pub fn run(runners: &[Runner], options: &Options, directory: &Directory) -> anyhow::Result<Table> {
    let start = Instant::now();
    let progress = |text: &str| eprintln!("{:>4} s  {text}", start.elapsed().as_secs());
    let clients = Clients::new(directory, CONNECTIONS)?;
    let rounds = options.rounds();
    let turn = |runner: &Runner| runner.turn(&clients, options.turn());
    progress("a round to warm up");
    runners.iter().try_for_each(|runner| turn(runner).map(drop))?;
    let mut turns: Vec<Vec<Turn>> = runners.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        progress(&format!("round {round} of {rounds}"));
        for (runner, turns) in runners.iter().zip(&mut turns) {
            turns.push(turn(runner)?);
        }
    }
    progress("done");
    Ok(Table::new(runners, turns))
}

impl Runner {
    fn turn(&self, clients: &Clients, length: Duration) -> anyhow::Result<Turn> {
        let before = self.program.usage()?;
        let seen = clients.send(self.port, &self.ask, length)?;
        let after = self.program.usage()?;
        self.check(&seen)?;
        let answers = seen.answers as f64;
        let cpu = after.cpu.saturating_sub(before.cpu);
        Ok(Turn {
            rate: answers / seen.took.as_secs_f64(),
            p50: seen.p50,
            p99: seen.p99,
            cpu: cpu.div_f64(answers),
            busy: cpu.as_secs_f64() / seen.took.as_secs_f64(),
            rss_bytes: after.rss_bytes,
        })
    }

    /// A turn of the wrong answers would be the wrong figure.
    fn check(&self, seen: &Seen) -> anyhow::Result<()> {
        let (name, traffic) = (self.name, self.traffic.name());
        ensure!(seen.answers > 0, "{name}, {traffic}: no answers");
        ensure!(seen.broken == 0, "{name}, {traffic}: {} requests came to nothing", seen.broken);
        let (answers, refused) = (seen.answers, seen.bad_statuses);
        let good = match (&self.ask, self.traffic) {
            (Ask::Get { .. }, Traffic::Refused) => {
                answers - refused <= MAX_ADMITTED * u64::from(CLIENTS)
            }
            // A decision that is asked for is an answer, whatever it says.
            (Ask::Get { .. }, Traffic::Allowed) | (Ask::Post { .. }, _) => refused == 0,
        };
        ensure!(good, "{name}, {traffic}: {refused} of {answers} were refused");
        Ok(())
    }
}
