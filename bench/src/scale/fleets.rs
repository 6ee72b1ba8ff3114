//! The fleets that are simulated, and the figures that sum them up.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use slidegate::{Consistency, Quota};
use slidegate_simulation::{Change, Figures, RoundTripTime, Scenario};

/// How many gateways share the load.
pub const GATEWAYS: [usize; 4] = [1, 10, 100, 1000];
/// The ways to Redis, by name.
pub const ROUND_TRIPS: [(&str, RoundTripTime); 3] = [
    ("0.2 ms", RoundTripTime::NEAR),
    ("1 ms", RoundTripTime::REGION),
    ("80 ms", RoundTripTime::FAR),
];
const MINUTE: Duration = Duration::from_secs(60);

/// Who sends requests, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// One account of 10,000 a minute that asks for twice as much.
    Hot,
    /// A thousand accounts with ten requests a second each, under 1,000 a minute.
    Lukewarm,
    /// So many accounts of 1,000 a minute, as popular as Zipf's law has it.
    Zipf(u32),
    /// One account of 10,000 a minute that asks for 9,000.
    Steady,
    /// As [`Hot`](Self::Hot), while gateways join, pause and die.
    Turmoil,
}

/// A fleet, and what it did.
pub struct Fleet {
    pub load: Load,
    pub gateways: usize,
    /// The name of the way to Redis.
    pub round_trip: &'static str,
    pub consistency: Consistency,
    pub figures: Figures,
}

/// All fleets, in the order of the table.
pub struct Fleets {
    pub all: Vec<Fleet>,
}

impl Load {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Hot,
        Self::Steady,
        Self::Lukewarm,
        Self::Zipf(1000),
        Self::Zipf(1_000_000),
        Self::Turmoil,
    ];

    /// What the tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "one account, twice its quota",
            Self::Steady => "one account, 0.9 of its quota",
            Self::Lukewarm => "1,000 accounts, 10/s each",
            Self::Zipf(1000) => "1,000 accounts, by Zipf's law",
            Self::Zipf(_) => "a million accounts, by Zipf's law",
            Self::Turmoil => {
                "one account, twice its quota; gateways join, pause, are cut off and die"
            }
        }
    }

    fn scenario(self, gateways: usize) -> Scenario {
        let hot = Scenario::new(Quota::per_minute(10_000));
        let many = |accounts: u32, requests_per_second: f64| {
            let quota = Quota::per_minute(1000);
            let units = f64::from(quota.units().get()) * f64::from(accounts);
            let demand = requests_per_second * MINUTE.as_secs_f64() / units;
            Scenario { accounts, demand, ..Scenario::new(quota) }
        };
        match self {
            Self::Hot => hot,
            Self::Steady => Scenario { demand: 0.9, ..hot },
            // No window has to be full to see what they ask of Redis.
            Self::Lukewarm => Scenario {
                warm_up: Duration::from_secs(5),
                measured: Duration::from_secs(20),
                ..many(1000, 10_000.0)
            },
            Self::Zipf(accounts) => Scenario {
                exponent: 1.0,
                warm_up: MINUTE,
                measured: MINUTE,
                ..many(accounts, 2500.0)
            },
            Self::Turmoil => Scenario { changes: changes(gateways), ..hot },
        }
    }
}

/// Every two seconds, one of the gateways that were there first is paused, cut off or gone for ever, and as
/// many join as have died.
fn changes(gateways: usize) -> Vec<(Duration, Change)> {
    let mut changes = Vec::new();
    for step in 1..110_u32 {
        let (at, gateway) = (Duration::from_secs(2) * step, step as usize % gateways);
        if step.is_multiple_of(5) && step as usize <= gateways / 2 {
            changes.extend([(at, Change::Die { gateway }), (at, Change::Join)]);
        } else {
            let gateway = gateways / 2 + step as usize % (gateways / 2);
            let lasts = Duration::from_millis(300) * (step % 7 + 1);
            changes.push(match step % 2 {
                0 => (at, Change::Pause { gateway, lasts }),
                _ => (at, Change::CutOff { gateway, lasts }),
            });
        }
    }
    changes
}

impl Fleets {
    /// Runs all of them, on every processor.
    pub fn run(seed: u64) -> Self {
        let mut plan = Vec::new();
        for load in Load::ALL {
            for gateways in GATEWAYS {
                for way in ROUND_TRIPS {
                    for consistency in [Consistency::Sync, Consistency::ASYNC] {
                        plan.push((load, gateways, way, consistency));
                    }
                }
            }
        }
        // No other gateway could join or stay.
        plan.retain(|(load, gateways, ..)| *load != Load::Turmoil || *gateways > 1);
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some((i, planned)) = {
                let i = next.fetch_add(1, Ordering::Relaxed);
                plan.get(i).map(|planned| (i, planned))
            } {
                let (load, gateways, (round_trip, way), consistency) = *planned;
                let scenario = Scenario {
                    seed: seed.wrapping_add(i as u64),
                    gateways,
                    round_trip: way,
                    consistency,
                    ..load.scenario(gateways)
                };
                let figures = scenario.run();
                eprintln!("{:>3} of {}  {}", i + 1, plan.len(), load.name());
                let fleet = Fleet { load, gateways, round_trip, consistency, figures };
                done.lock().expect("no run panics").push((i, fleet));
            }
        };
        let processors = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| (0..processors).for_each(|_| drop(scope.spawn(work))));
        let mut done = done.into_inner().expect("no run panics");
        done.sort_by_key(|(i, _)| *i);
        Self { all: done.into_iter().map(|(_, fleet)| fleet).collect() }
    }

    /// The most units beyond a quota in any window of any fleet.
    pub fn beyond(&self) -> u32 {
        self.all.iter().map(|fleet| fleet.figures.beyond).max().unwrap_or(0)
    }

    /// Fleets of this load that do not wait for Redis.
    pub fn leased(&self, load: Load) -> impl Iterator<Item = &Fleet> {
        self.all
            .iter()
            .filter(move |fleet| fleet.load == load && fleet.consistency == Consistency::ASYNC)
    }

    /// The worst of each figure that is promised, over the ways to Redis; the wait is of the account that
    /// keeps to its quota, at up to ten gateways.
    pub fn result(&self) -> String {
        let hundred = || self.leased(Load::Hot).filter(|fleet| fleet.gateways == 100);
        let least = |of: fn(&Figures) -> f64| {
            hundred().map(|fleet| of(&fleet.figures)).fold(f64::INFINITY, f64::min)
        };
        let calls = self.leased(Load::Lukewarm).filter(|fleet| fleet.gateways == 1);
        let calls = calls.map(|fleet| fleet.figures.calls_per_1000()).fold(0.0, f64::max);
        let far = self.leased(Load::Steady).filter(|fleet| fleet.round_trip == ROUND_TRIPS[2].0);
        let far = far.filter(|fleet| fleet.gateways <= 10);
        let wait = far.map(|fleet| fleet.figures.p99_wait).max().unwrap_or_default();
        format!(
            "RESULT scale beyond={} used_100_gateways={:.3} calls_per_1000_lukewarm={calls:.0} \
             starved_share={:.2} wait_p99_ms_80ms_rtt={:.0}",
            self.beyond(),
            least(|figures| figures.used),
            least(|figures| figures.least_share),
            wait.as_secs_f64() * 1e3,
        )
    }
}
