//! The table of all fleets.

use std::fmt::Write as _;
use std::time::Duration;

use slidegate::Consistency;

use super::fleets::{Fleet, Fleets, Load};

/// A table for each load, of the fleets that are shown.
pub fn of(fleets: &Fleets, loads: &[Load], is_shown: fn(&Fleet) -> bool) -> String {
    let tables = loads.iter().map(|load| {
        let rows = fleets.all.iter().filter(|fleet| fleet.load == *load && is_shown(fleet));
        format!("**{}**\n\n{HEAD}{}", load.name(), rows.map(row).collect::<String>())
    });
    tables.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

const HEAD: &str = "\
| gateways | round trip | `consistency` | calls for 1,000 decisions | of the quota used | waited | mean wait, ms | p99 wait, ms | least share | refused without Redis |
|---|---|---|---|---|---|---|---|---|---|
";

fn row(fleet: &Fleet) -> String {
    let figures = &fleet.figures;
    let mut row = String::new();
    let consistency = if fleet.consistency == Consistency::Sync { "sync" } else { "async" };
    let _ = writeln!(
        row,
        "| {} | {} | {consistency} | {:.0} | {:.3} | {:.1} % | {} | {} | {} | {:.2} % |",
        fleet.gateways,
        fleet.round_trip,
        figures.calls_per_1000(),
        figures.used,
        figures.waited * 100.0,
        ms(figures.mean_wait),
        ms(figures.p99_wait),
        share(fleet),
        figures.failed as f64 * 100.0 / figures.decisions as f64,
    );
    row
}

/// Gateways that were there for a part of the time have less for that reason.
fn share(fleet: &Fleet) -> String {
    match fleet.load {
        Load::Turmoil => "–".to_owned(),
        _ => format!("{:.2}", fleet.figures.least_share),
    }
}

fn ms(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}
