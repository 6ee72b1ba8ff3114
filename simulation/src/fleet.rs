//! Runs a scenario: clients send requests to gateways, and what becomes of each is noted.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use slidegate::{Clock, Timestamp};
use tokio::time::{Instant, sleep_until};

use crate::account::Accounts;
use crate::gateway::{Gateway, Outcome, Verdict};
use crate::network::Network;
use crate::scenario::{Change, Scenario};
use crate::{SimulatedRedis, VirtualClock};

/// What was noted.
#[derive(Default)]
pub(crate) struct Tally {
    /// All of the run.
    pub(crate) admitted: Vec<Admission>,
    /// Those below are of the measured time only. The requests of each account:
    pub(crate) requests: Vec<u32>,
    pub(crate) failed: u64,
    /// How long each request that had to wait has waited.
    pub(crate) waits: Vec<Duration>,
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
    pub(crate) measured_from: Timestamp,
    pub(crate) gateways: usize,
}

/// One admitted request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Admission {
    pub(crate) account: u32,
    pub(crate) at: Timestamp,
    pub(crate) gateway: usize,
}

struct Fleet {
    scenario: Scenario,
    redis: SimulatedRedis,
    start: Instant,
    true_time: VirtualClock,
    gateways: Vec<Arc<Gateway>>,
    /// From when on each gateway gets requests; `None` for one that is gone.
    serves_from: Vec<Option<Instant>>,
    /// The gateways that get requests.
    serving: Vec<usize>,
    tally: Arc<Mutex<Tally>>,
}

/// Clocks of gateways differ by up to this much.
const SKEW: Duration = Duration::from_secs(60 * 60);
/// They run up to this part faster or slower than timers, and that of Redis runs faster by as much: timers
/// and clocks of a gateway are slow together, and the timers here are tokio's for all.
const DRIFT: f64 = 0.002;

pub(crate) async fn run(scenario: &Scenario) -> Tally {
    let mut fleet = Fleet::new(scenario.clone());
    let measured_from = fleet.start + scenario.warm_up;
    fleet.serve_until(measured_from).await;
    let (calls, bytes) = (fleet.redis.calls(), fleet.bytes());
    {
        let mut tally = fleet.tally.lock();
        let admitted = std::mem::take(&mut tally.admitted);
        *tally = Tally { admitted, ..Tally::default() };
        tally.requests = vec![0; scenario.accounts as usize];
        tally.measured_from = fleet.true_time.now();
    }
    fleet.serve_until(measured_from + scenario.measured).await;
    let (calls, bytes) = (fleet.redis.calls() - calls, fleet.bytes() - bytes);
    // What is under way is decided or fails.
    sleep_until(Instant::now() + scenario.deadline).await;
    let mut tally = std::mem::take(&mut *fleet.tally.lock());
    (tally.calls, tally.bytes, tally.gateways) = (calls, bytes, fleet.gateways.len());
    tally
}

impl Fleet {
    fn new(scenario: Scenario) -> Self {
        let start = Instant::now();
        let true_time = VirtualClock::new(start, Duration::ZERO).with_rate(1.0 + DRIFT);
        let mut fleet = Self {
            redis: SimulatedRedis::new(true_time),
            start,
            true_time,
            gateways: Vec::new(),
            serves_from: Vec::new(),
            serving: Vec::new(),
            tally: Arc::new(Mutex::new(Tally {
                requests: vec![0; scenario.accounts as usize],
                ..Tally::default()
            })),
            scenario,
        };
        (0..fleet.scenario.gateways).for_each(|_| fleet.join());
        fleet
    }

    fn join(&mut self) {
        let Scenario { round_trip, round_trip_of_others, .. } = self.scenario;
        let is_other = self.gateways.len() % 2 == 1;
        let round_trip = round_trip_of_others.filter(|_| is_other).unwrap_or(round_trip);
        let network = Network::new(self.redis.clone(), round_trip);
        let clock = VirtualClock::new(self.start, SKEW.mul_f64(fastrand::f64()));
        let clock = clock.with_rate(1.0 + DRIFT * (2.0 * fastrand::f64() - 1.0));
        let gateway = Gateway::new(&self.scenario, network, clock, self.true_time);
        self.serving.push(self.gateways.len());
        self.serves_from.push(Some(Instant::now()));
        self.gateways.push(Arc::new(gateway));
    }

    fn bytes(&self) -> u64 {
        self.gateways.iter().map(|gateway| gateway.network.bytes()).sum()
    }

    /// Sends requests, at instants that do not depend on each other, until this one.
    async fn serve_until(&mut self, end: Instant) {
        let accounts = Accounts::new(self.scenario.accounts, self.scenario.exponent);
        let mut next = Instant::now();
        loop {
            let per_second = self.scenario.requests_per_second(next - self.start);
            next += Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() / per_second);
            if next >= end {
                break sleep_until(end).await;
            }
            if next > Instant::now() {
                sleep_until(next).await;
                self.change();
            }
            self.send(accounts.next());
        }
    }

    /// Makes the changes that are due.
    fn change(&mut self) {
        let now = self.start.elapsed();
        let due = |(at, _): &mut (Duration, Change)| *at <= now;
        let changes: Vec<_> = self.scenario.changes.extract_if(.., due).collect();
        for (_, change) in changes {
            match change {
                Change::Join => self.join(),
                Change::Pause { gateway, lasts } => {
                    let until = Instant::now() + lasts;
                    self.gateways[gateway].network.stall_until(until);
                    if let Some(from) = &mut self.serves_from[gateway] {
                        *from = until.max(*from);
                        self.serving.retain(|serving| *serving != gateway);
                        self.scenario.changes.push((now + lasts, Change::Resume { gateway }));
                    }
                }
                Change::CutOff { gateway, lasts } => {
                    self.gateways[gateway].network.stall_until(Instant::now() + lasts);
                }
                Change::Resume { gateway } => {
                    let is_due = |from: Instant| from <= Instant::now();
                    let is_serving = self.serving.contains(&gateway);
                    if self.serves_from[gateway].is_some_and(is_due) && !is_serving {
                        self.serving.push(gateway);
                    }
                }
                Change::Die { gateway } => {
                    self.serves_from[gateway] = None;
                    self.serving.retain(|serving| *serving != gateway);
                    self.gateways[gateway].network.cut();
                }
            }
        }
    }

    fn send(&self, account: u32) {
        self.tally.lock().requests[account as usize] += 1;
        let gateway = self.serving[fastrand::usize(..self.serving.len())];
        let user: Arc<str> = format!("user-{account}").into();
        let tally = self.tally.clone();
        match self.gateways[gateway].clone().decide(user) {
            Ok(outcome) => tally.lock().note(account, gateway, outcome),
            Err(deciding) => {
                tokio::spawn(async move {
                    let outcome = deciding.await;
                    tally.lock().note(account, gateway, outcome);
                });
            }
        }
    }
}

impl Tally {
    fn note(&mut self, account: u32, gateway: usize, outcome: Outcome) {
        self.waits.extend(outcome.waited);
        match outcome.verdict {
            Verdict::Admitted(at) => self.admitted.push(Admission { account, at, gateway }),
            Verdict::Denied => {}
            Verdict::Failed => self.failed += 1,
        }
    }
}
