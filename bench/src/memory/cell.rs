//! One cell of the comparison: so many keys, so many threads, one kind of traffic.

use std::fmt;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::candidates::{Candidate, UNITS};
use crate::spread::Spread;

/// What the clients do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Nearly all requests come from clients that are over their quota.
    Hot,
    /// Every client stays below its quota.
    Cold,
}

/// One cell.
#[derive(Clone, Copy)]
pub struct Cell {
    pub keys: usize,
    pub threads: usize,
    pub traffic: Traffic,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let traffic = if self.traffic == Traffic::Hot { "hot" } else { "cold" };
        write!(f, "{:>9} keys, {}, {} thread(s)", self.keys, traffic, self.threads)
    }
}

/// How many clients hammer in hot traffic.
const HAMMERING: usize = 1000;
/// Requests between two looks at the clock.
const BATCH: usize = 256;
/// In cold traffic a client may use this much of its quota before the limiter is made anew.
const COLD_SPENDS: usize = UNITS as usize / 2;
/// Filling a slow limiter with all keys may take longer than measuring it.
const MAX_FILLING: Duration = Duration::from_secs(3);

/// What was seen of one limiter in one cell.
#[derive(Default, Clone)]
pub struct Seen {
    /// Decisions per second, by round.
    pub rates: Vec<f64>,
    pub decided: u64,
    pub allowed: u64,
    /// Set if not every key was in the limiter when it was measured.
    pub filled_in_part: bool,
}

impl Seen {
    /// The rate of the middle round.
    pub fn rate(&self) -> f64 {
        Spread::of(self.rates.iter().copied()).middle
    }
}

/// A limiter with the cell's traffic laid out for it.
pub struct CandidateRun<R: Candidate> {
    limiter: R,
    cell: Cell,
    keys: Vec<R::Key>,
    /// In which order the keys are made known. Not that of the traffic, or a limiter that keeps
    /// accounts in the order of their making would find the next one beside the last.
    fill_order: Vec<u32>,
    /// In which order the keys come, round and round.
    visits: Vec<u32>,
    /// How far cold traffic has come.
    spends: usize,
    pub seen: Seen,
}

/// A limiter that takes part, whatever it is.
pub trait AnyRun {
    fn round(&mut self, slice: Duration);
    fn seen(&self) -> &Seen;
}

impl<R: Candidate> CandidateRun<R> {
    pub fn new(cell: Cell) -> Self {
        let mut run = Self {
            limiter: R::new(),
            cell,
            keys: shuffled(cell.keys, KEY_SEED).into_iter().map(|i| address(i).into()).collect(),
            fill_order: shuffled(cell.keys, FILL_SEED),
            visits: visits(cell),
            spends: 0,
            seen: Seen::default(),
        };
        run.fill();
        run
    }

    /// Makes every key known and, for hot traffic, uses up the hammering ones.
    fn fill(&mut self) {
        self.limiter = R::new();
        self.spends = 1;
        let start = Instant::now();
        for (i, key) in self.fill_order.iter().enumerate() {
            self.limiter.decide(&self.keys[*key as usize]);
            if i % BATCH == 0 && start.elapsed() > MAX_FILLING {
                self.seen.filled_in_part = true;
                break;
            }
        }
        if self.cell.traffic == Traffic::Hot {
            for key in &self.keys[..HAMMERING] {
                while self.limiter.decide(key) {}
            }
        }
    }

    /// Decides for at most `slice`, from all threads; tells how many and how long.
    fn run(&mut self, slice: Duration) -> (u64, Duration) {
        let most = match self.cell.traffic {
            Traffic::Hot => usize::MAX,
            Traffic::Cold => (COLD_SPENDS - self.spends) * self.keys.len() / self.cell.threads,
        };
        let barrier = Barrier::new(self.cell.threads);
        let this = &*self;
        let results: Vec<(u64, u64, Duration)> = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.cell.threads)
                .map(|i| {
                    scope.spawn({
                        let barrier = &barrier;
                        move || this.work(i, most, slice, barrier)
                    })
                })
                .collect();
            workers.into_iter().map(|w| w.join().expect("no panics")).collect()
        });
        let decided: u64 = results.iter().map(|r| r.0).sum();
        self.seen.decided += decided;
        self.seen.allowed += results.iter().map(|r| r.1).sum::<u64>();
        self.spends += (decided as usize).div_ceil(self.keys.len());
        (decided, results.iter().map(|r| r.2).max().unwrap_or_default())
    }

    fn work(
        &self,
        thread: usize,
        most: usize,
        slice: Duration,
        barrier: &Barrier,
    ) -> (u64, u64, Duration) {
        let mut at = self.visits.len() / self.cell.threads * thread;
        let (mut decided, mut allowed) = (0, 0);
        barrier.wait();
        let start = Instant::now();
        while decided < most && start.elapsed() < slice {
            for _ in 0..BATCH.min(most - decided) {
                let key = &self.keys[self.visits[at] as usize];
                allowed += u64::from(self.limiter.decide(key));
                decided += 1;
                at += 1;
                if at == self.visits.len() {
                    at = 0;
                }
            }
        }
        (decided as u64, allowed, start.elapsed())
    }
}

impl<R: Candidate> AnyRun for CandidateRun<R> {
    /// Measures for `slice`. Cold traffic starts over with a new limiter whenever its clients have
    /// used half their quota.
    fn round(&mut self, slice: Duration) {
        let (mut decided, mut took) = (0, Duration::ZERO);
        while took < slice {
            if self.cell.traffic == Traffic::Cold && self.spends >= COLD_SPENDS {
                self.fill();
            }
            let (more, time) = self.run(slice - took);
            decided += more;
            took += time;
        }
        self.seen.rates.push(decided as f64 / took.as_secs_f64());
    }

    fn seen(&self) -> &Seen {
        &self.seen
    }
}

/// The order in which requests come. Keys lie in memory in the order of cold traffic, so that what
/// is measured is the limiter's memory and not the benchmark's.
fn visits(cell: Cell) -> Vec<u32> {
    if cell.traffic == Traffic::Cold || cell.keys <= HAMMERING {
        return (0..cell.keys as u32).collect();
    }
    let mut random = fastrand::Rng::with_seed(KEY_SEED);
    let mut visit = || {
        let among = if random.u32(..20) == 0 { cell.keys } else { HAMMERING };
        random.u32(..among as u32)
    };
    (0..1 << 20).map(|_| visit()).collect()
}

/// The address of the i-th client.
pub fn address(i: u32) -> String {
    let [a, b, c, d] = (0x0a00_0000 + i).to_be_bytes();
    format!("{a}.{b}.{c}.{d}")
}

/// Seeds of orders that have nothing to do with each other.
const KEY_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FILL_SEED: u64 = 0xd1b5_4a32_d192_ed03;

fn shuffled(n: usize, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    order
}
