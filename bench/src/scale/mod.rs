//! How fleets of gateways grow, in virtual time, as docs/scale.md shows it.

mod fleets;
mod picture;
mod sizes;
mod table;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};
use slidegate::Consistency;

use self::fleets::{Fleet, Fleets, Load, ROUND_TRIPS};
use crate::harness::fill;

#[derive(clap::Args)]
pub struct Options {
    /// Where all chance begins: the same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The directory of the page and its pictures; without it, nothing is written.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// Runs all fleets, and fails if one of them has admitted more than a quota permits.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let start = Instant::now();
    let fleets = Fleets::run(options.seed);
    println!("{}", table::of(&fleets, &Load::ALL, |_| true));
    println!("\n{}", fleets.result());
    eprintln!("{} fleets in {} s", fleets.all.len(), start.elapsed().as_secs());
    if let Some(docs) = &options.docs {
        write(docs, &fleets)?;
    }
    ensure!(fleets.beyond() == 0, "a window has more than the quota: {} units", fleets.beyond());
    Ok(())
}

fn write(docs: &std::path::Path, fleets: &Fleets) -> anyhow::Result<()> {
    // The way between zones, and the one to another region, which is for leases.
    let is_shown = |fleet: &Fleet| match fleet.consistency {
        Consistency::Sync => fleet.round_trip == ROUND_TRIPS[1].0,
        Consistency::Async { .. } => fleet.round_trip != ROUND_TRIPS[0].0,
    };
    let loads = [Load::Steady, Load::Hot, Load::Lukewarm, Load::Zipf(1_000_000)];
    let blanks = [
        ("SIZES", sizes::table()?),
        ("TABLE", table::of(fleets, &loads, is_shown)),
        ("RESULT", fleets.result()),
    ];
    let page = fill(include_str!("scale.md"), &blanks);
    let pictures = picture::all(fleets)?;
    for (name, text) in pictures.into_iter().chain([("scale.md", page)]) {
        let path = docs.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
