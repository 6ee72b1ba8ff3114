//! What a middleware adds to a request: Slidegate's layer beside tower_governor's.

mod calls;
mod services;

use std::fmt;

pub use self::calls::call_often as call;
use self::calls::{Callee, Round, Traffic};
pub use self::services::Service;
use self::services::UNITS;
use crate::spread::Spread;

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds of some 10,000 requests to each service; in each round, the services take turns.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Only the rows with this text in their name, and the bare service.
    #[arg(long, default_value = "")]
    only: String,
}

/// Runs all rounds, prints the table and the result.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let wanted = |of: &(Service, Traffic)| title(of).contains(&options.only);
    let bare = (Service::Bare, Traffic::Allowed);
    let others = candidates().filter(|of| *of != bare && wanted(of));
    let mut seen: Vec<Seen> = [bare].into_iter().chain(others).map(Seen::new).collect();
    for _ in 0..options.rounds.max(1) {
        seen.iter_mut().for_each(Seen::round);
    }
    let rows: Vec<Row> = seen.iter().map(|of| Row::new(of, &seen[0])).collect();
    println!("{UNITS} per 60 s and address, 1000 addresses; nanoseconds per request, middle of");
    println!(
        "{} rounds, and the middle half of what was added to the bare service",
        options.rounds
    );
    println!("{:<40}{:>9}{:>9}{:>16}{:>9}{:>9}", "", "ns", "added", "", "allocs", "added");
    rows.iter().for_each(|row| println!("{row}"));
    println!("\n{}", result(&rows));
    Ok(())
}

/// Every service with clients within their quota, then the middlewares with clients over it.
fn candidates() -> impl Iterator<Item = (Service, Traffic)> {
    let allowed = Service::ALL.into_iter().map(|service| (service, Traffic::Allowed));
    let denied = Service::ALL.into_iter().filter(|service| service.limits());
    allowed.chain(denied.map(|service| (service, Traffic::Denied)))
}

fn title((service, traffic): &(Service, Traffic)) -> String {
    format!("{}, {}", traffic.name(), service.name())
}

/// What was seen of one service under one kind of traffic.
struct Seen {
    callee: Callee,
    counted: Round,
    ns: Vec<f64>,
}

impl Seen {
    fn new((service, traffic): (Service, Traffic)) -> Self {
        let mut callee = Callee::new(service, traffic);
        let counted = callee.count();
        Self { callee, counted, ns: Vec::new() }
    }

    fn round(&mut self) {
        let round = self.callee.time();
        self.ns.push(round.ns());
    }
}

/// A row of the table.
struct Row {
    service: Service,
    traffic: Traffic,
    ns: Spread,
    added_ns: Spread,
    allocations: f64,
    added_allocations: f64,
}

impl Row {
    /// What was seen, beside the bare service in the same rounds.
    fn new(seen: &Seen, bare: &Seen) -> Self {
        let added = seen.ns.iter().zip(&bare.ns).map(|(ns, bare_ns)| ns - bare_ns);
        let allocations = seen.counted.allocations();
        Self {
            service: seen.callee.service,
            traffic: seen.callee.traffic,
            ns: Spread::of(seen.ns.iter().copied()),
            added_ns: Spread::of(added),
            allocations,
            added_allocations: allocations - bare.counted.allocations(),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = title(&(self.service, self.traffic));
        let half = format!("{:.0} to {:.0}", self.added_ns.low, self.added_ns.high);
        write!(f, "{title:<40}{:>9.0}{:>9.0}{half:>16}", self.ns.middle, self.added_ns.middle)?;
        write!(f, "{:>9.2}{:>9.2}", self.allocations, self.added_allocations)
    }
}

fn result(rows: &[Row]) -> String {
    let allowed = |service| {
        let same = |row: &&Row| row.service == service && row.traffic == Traffic::Allowed;
        rows.iter().find(same)
    };
    let ns =
        |row: Option<&Row>| row.map_or("-".to_owned(), |row| format!("{:.0}", row.added_ns.middle));
    let ours = allowed(Service::Slidegate);
    let allocs = ours.map_or("-".to_owned(), |row| format!("{:.2}", row.added_allocations));
    format!(
        "RESULT tower added_ns={} two_headers_added_ns={} governor_added_ns={} added_allocs={allocs}",
        ns(ours),
        ns(allowed(Service::SlidegateTwo)),
        ns(allowed(Service::Governor)),
    )
}
