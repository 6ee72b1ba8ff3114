//! In-memory decisions: Slidegate's limiter and store beside governor, throttlecrab and a map of
//! timestamp vectors.

pub mod candidates;
mod cell;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use slidegate::Quota;

use self::candidates::{Candidate, Governor, Limiter, Naive, Store, Throttlecrab};
use self::cell::{AnyRun, CandidateRun, Cell, Seen, Traffic, address};
use crate::alloc;

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Milliseconds for each limiter in each round.
    #[arg(long, default_value_t = 150)]
    slice_ms: u64,
    /// Rounds; in each, the limiters take turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Only the cells with this many keys.
    #[arg(long)]
    keys: Option<usize>,
}

const CANDIDATES: [&str; 5] = ["limiter", "store", "governor", "throttlecrab", "naive"];

/// Runs all cells, prints the table and the result.
pub fn run(options: &Options) -> anyhow::Result<()> {
    println!("100 per 60 s; decisions per second, middle of {} rounds", options.rounds);
    println!("{:<36}{}", "", CANDIDATES.map(|name| format!("{name:>13}")).concat());
    let mut ratios = Vec::new();
    for cell in cells().filter(|cell| options.keys.is_none_or(|keys| keys == cell.keys)) {
        let seen = contest(cell, options)?;
        print_row(cell, &seen);
        ratios.push((cell, seen[0].rate() / seen[2].rate()));
    }
    let bytes = Bytes::measure();
    bytes.print();
    println!("\n* not all keys were known: making them took the limiter more than 3 s\n");
    println!("{}", result(&ratios, &bytes));
    Ok(())
}

fn cells() -> impl Iterator<Item = Cell> {
    [1_000, 100_000, 1_000_000].into_iter().flat_map(|keys| {
        [Traffic::Hot, Traffic::Cold].into_iter().flat_map(move |traffic| {
            [1, 2].into_iter().map(move |threads| Cell { keys, threads, traffic })
        })
    })
}

/// Lets all limiters take turns, so that noise hits all alike.
fn contest(cell: Cell, options: &Options) -> anyhow::Result<[Seen; 5]> {
    progress(&format!("{cell}: filling"))?;
    let mut runs: [Box<dyn AnyRun>; 5] = [
        Box::new(CandidateRun::<Limiter>::new(cell)),
        Box::new(CandidateRun::<Store>::new(cell)),
        Box::new(CandidateRun::<Governor>::new(cell)),
        Box::new(CandidateRun::<Throttlecrab>::new(cell)),
        Box::new(CandidateRun::<Naive>::new(cell)),
    ];
    for round in 1..=options.rounds {
        for (run, name) in runs.iter_mut().zip(CANDIDATES) {
            progress(&format!("{cell}: round {round} of {}, {name}", options.rounds))?;
            run.round(Duration::from_millis(options.slice_ms));
        }
    }
    progress("")?;
    Ok(runs.map(|run| run.seen().clone()))
}

/// Shows what is being done, on a terminal.
fn progress(text: &str) -> anyhow::Result<()> {
    let mut err = std::io::stderr();
    if !err.is_terminal() {
        return Ok(());
    }
    write!(err, "\r\x1b[K{text}")?;
    Ok(err.flush()?)
}

fn print_row(cell: Cell, seen: &[Seen; 5]) {
    let rates = seen.each_ref().map(|seen| {
        let mark = if seen.filled_in_part { '*' } else { ' ' };
        format!("{:>12}{mark}", thousands(seen.rate() as u64))
    });
    let allowed = seen[0].allowed * 100 / seen[0].decided.max(1);
    println!("{:<36}{}  {allowed:>3} % allowed", cell.to_string(), rates.concat());
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits"))
        .collect();
    groups.join(",")
}

/// What accounts weigh.
struct Bytes {
    /// With one spend each, a million of them.
    per_account: f64,
    governor_per_account: f64,
    /// In accounts with 600 spends each.
    per_spend: f64,
    /// Of one account with 100 spends.
    hundred_spends: f64,
}

impl Bytes {
    fn measure() -> Self {
        let filled = |quota, accounts: u32, spends: u32| {
            let keys: Vec<_> = (0..accounts).map(|i| address(i).into()).collect();
            let (bytes, _store) = alloc::bytes_of(|| {
                let candidate = Store::with_quota(quota);
                for _ in 0..spends {
                    keys.iter().for_each(|key| assert!(candidate.decide(key)));
                }
                candidate
            });
            bytes as f64 / f64::from(accounts)
        };
        let keys: Vec<_> = (0..1_000_000).map(address).collect();
        let (governor, _limiter) = alloc::bytes_of(|| {
            let candidate = Governor::new();
            keys.iter().for_each(|key| assert!(candidate.decide(key)));
            candidate
        });
        Self {
            per_account: filled(Quota::per_minute(100), 1_000_000, 1),
            governor_per_account: governor as f64 / 1e6,
            per_spend: filled(Quota::per_minute(600), 10_000, 600) / 600.0,
            hundred_spends: filled(Quota::per_minute(100), 10_000, 100),
        }
    }

    fn print(&self) {
        println!("\nbytes in use, by a counting allocator");
        println!("  an account with one spend, of a million    {:>7.1}", self.per_account);
        println!("  the same in governor (GCRA keeps no log)   {:>7.1}", self.governor_per_account);
        println!("  an account with 100 spends                 {:>7.1}", self.hundred_spends);
        println!("  a spend, in accounts with 600              {:>7.1}", self.per_spend);
    }
}

fn result(ratios: &[(Cell, f64)], bytes: &Bytes) -> String {
    let ratio = |keys, traffic, threads| {
        let same = |c: &Cell| c.keys == keys && c.traffic == traffic && c.threads == threads;
        let found = ratios.iter().find(|(cell, _)| same(cell));
        found.map_or("-".to_owned(), |(_, ratio)| format!("{ratio:.2}"))
    };
    format!(
        "RESULT memory governor_ratio_1k={} governor_cold_1k={} governor_cold_100k={} \
         governor_ratio_1m={} threads2_ratio_1k={} bytes_per_account={:.1} bytes_per_spend={:.1}",
        ratio(1_000, Traffic::Hot, 1),
        ratio(1_000, Traffic::Cold, 1),
        ratio(100_000, Traffic::Cold, 1),
        ratio(1_000_000, Traffic::Cold, 1),
        ratio(1_000, Traffic::Hot, 2),
        bytes.per_account,
        bytes.per_spend,
    )
}
