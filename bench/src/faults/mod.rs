//! What each fault of Redis costs while requests go on, as docs/reliability.md shows it.

mod cost;
mod list;
mod load;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use self::cost::BOUND;
pub use self::cost::Cost;
use self::list::{FAULTS, Fault};
pub use self::list::{cluster_url, everyone, failover_of, observe_at, tag};
pub use self::load::{ACCOUNTS, Load};
use crate::harness::fill;

#[derive(clap::Args)]
pub struct Options {
    /// Only the faults with this text in their name; the page is then left as it is.
    #[arg(long, default_value = "")]
    only: String,
    /// The page to write.
    #[arg(long, default_value = "docs/reliability.md")]
    page: PathBuf,
}

/// Makes every fault, writes the page, and fails if a decision hung or was lost.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut rows = Vec::new();
    for fault in FAULTS.into_iter().filter(|(name, ..)| name.contains(&options.only)) {
        let (name, _, run) = fault;
        eprintln!("{:>4} s  {name}", start.elapsed().as_secs());
        rows.push((fault, run().context(name)?));
    }
    let (table, result) = (table(&rows), result(&rows));
    println!("{table}\n\n{result}");
    if options.only.is_empty() {
        let page = fill(include_str!("reliability.md"), &[("TABLE", table), ("RESULT", result)]);
        let path = &options.page;
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let hung: usize = rows.iter().map(|(_, cost)| cost.hung).sum();
    let lost: usize = rows.iter().map(|(_, cost)| cost.lost).sum();
    ensure!(hung == 0, "{hung} decisions took longer than {} ms", ms(BOUND));
    ensure!(lost == 0, "{lost} decisions were lost");
    Ok(())
}

fn ms(duration: Duration) -> String {
    format!("{:.0}", duration.as_secs_f64() * 1e3)
}

fn table(rows: &[(Fault, Cost)]) -> String {
    let mut table =
        "| fault | longest, ms | without lag | lag, ms | lost | without Redis | beyond, by Redis \
                     | beyond, in all | forgotten | overcounted | heals in, ms |\n\
                     |---|---|---|---|---|---|---|---|---|---|---|"
            .to_owned();
    for ((name, how, _), cost) in rows {
        let agreed = match name.ends_with("failover") {
            true => format!(" ({})", ms(cost.agreed)),
            false => String::new(),
        };
        table += &format!(
            "\n| **{name}**: {how} | {} | {} | {} | {} | {:.1} % | {} | {} | {} | {} | {}{agreed} |",
            ms(cost.longest),
            ms(cost.longest_without_lag),
            ms(cost.lag),
            cost.lost,
            cost.degraded as f64 * 100.0 / cost.decisions as f64,
            cost.beyond_by_redis,
            cost.beyond,
            cost.forgotten,
            cost.overcounted,
            cost.heal.map_or("–".to_owned(), ms),
        );
    }
    table
}

fn result(rows: &[(Fault, Cost)]) -> String {
    let longest = |of: fn(&Cost) -> Duration| {
        ms(rows.iter().map(|(_, cost)| of(cost)).max().unwrap_or_default())
    };
    let most = |of: fn(&Cost) -> usize| {
        let failovers = rows.iter().filter(|((name, ..), _)| name.ends_with("failover"));
        failovers.map(|(_, cost)| of(cost)).max().unwrap_or_default()
    };
    format!(
        "RESULT faults longest_ms={} without_lag_ms={} lag_ms={} lost={} hung={} failover_beyond={} \
         failover_forgotten={} slowest_heal_ms={}",
        longest(|cost| cost.longest),
        longest(|cost| cost.longest_without_lag),
        longest(|cost| cost.lag),
        rows.iter().map(|(_, cost)| cost.lost).sum::<usize>(),
        rows.iter().map(|(_, cost)| cost.hung).sum::<usize>(),
        most(|cost| cost.beyond_by_redis),
        most(|cost| cost.forgotten),
        longest(|cost| cost.heal.unwrap_or_default()),
    )
}
