//! The same requests for every limiter, in turns, with many in flight.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use slidegate_testbed::RedisServer;
use tokio::task::JoinSet;

use super::candidates::{Answer, Candidate, Customer, Limiter, UNITS};

/// Decisions that wait for an answer at any time.
pub const IN_FLIGHT: usize = 64;

/// Who sends how much.
#[derive(Clone, Copy)]
pub struct Load {
    /// The number of the first customer. Loads differ in it, to have accounts of their own.
    pub first: u32,
    /// How many customers there are.
    pub customers: u32,
    /// Decisions of each limiter in each round.
    pub decisions: u64,
    /// How often a round begins. Rounds that take longer follow each other at once.
    pub every: Duration,
}

/// The limiters, connected, with what was seen of each.
pub struct Comparison<'a> {
    server: &'a RedisServer,
    load: Load,
    customers: Arc<[Customer]>,
    limiters: [Arc<Limiter>; 4],
    rounds: u64,
    seen: [Vec<Turn>; 4],
}

/// What was seen of one limiter in one round.
pub struct Turn {
    pub decided: u64,
    pub allowed: u64,
    /// Units in use, as the answers say, summed up.
    pub used: u64,
    pub took: Duration,
    pub server_cpu: Duration,
    pub client_cpu: Duration,
    pub latencies_ns: Histogram<u64>,
}

/// Whose request comes next.
#[derive(Clone, Copy)]
enum Order {
    /// Anybody's, the same in every run.
    Random,
    /// Everybody's, one after the other.
    InTurn,
}

impl<'a> Comparison<'a> {
    /// Connects all limiters and makes the customers.
    pub async fn new(server: &'a RedisServer, load: Load) -> anyhow::Result<Self> {
        let numbers = load.first..load.first + load.customers;
        let url = server.url();
        let connect = |candidate| Limiter::connect(candidate, &url);
        let [pipeline, script, sorted_set, packed] = Candidate::ALL.map(connect);
        let limiters = [pipeline.await?, script.await?, sorted_set.await?, packed.await?];
        Ok(Self {
            server,
            load,
            customers: numbers.map(Customer::new).collect(),
            limiters: limiters.map(Arc::new),
            rounds: 0,
            seen: Default::default(),
        })
    }

    /// Plays rounds for this long, and forgets what was seen.
    pub async fn warm_up(&mut self, time: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.round().await?;
        }
        self.seen = Default::default();
        Ok(())
    }

    /// Lets every customer spend all units with every limiter.
    pub async fn fill(&mut self) -> anyhow::Result<()> {
        let requests = u64::from(self.load.customers) * u64::from(UNITS);
        for limiter in &self.limiters {
            turn(limiter, &self.customers, 0..requests, Order::InTurn).await?;
        }
        Ok(())
    }

    /// One turn for each limiter, from another one on each time. All decide the same requests.
    pub async fn round(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let requests = self.rounds * self.load.decisions..(self.rounds + 1) * self.load.decisions;
        for place in 0..self.limiters.len() {
            let place = (place + self.rounds as usize) % self.limiters.len();
            let (server, client) = (server_cpu(self.server), client_cpu()?);
            let limiter = &self.limiters[place];
            let mut turn = turn(limiter, &self.customers, requests.clone(), Order::Random).await?;
            turn.client_cpu = client_cpu()?.saturating_sub(client);
            turn.server_cpu = server_cpu(self.server).saturating_sub(server);
            self.seen[place].push(turn);
        }
        self.rounds += 1;
        tokio::time::sleep(self.load.every.saturating_sub(start.elapsed())).await;
        Ok(())
    }

    /// What was seen of each limiter, by round.
    pub fn seen(self) -> [Vec<Turn>; 4] {
        self.seen
    }
}

impl Turn {
    fn new() -> Self {
        Self {
            decided: 0,
            allowed: 0,
            used: 0,
            took: Duration::ZERO,
            server_cpu: Duration::ZERO,
            client_cpu: Duration::ZERO,
            latencies_ns: latencies(),
        }
    }

    fn add(&mut self, answer: Answer, latency: Duration) {
        self.decided += 1;
        self.allowed += u64::from(answer.allowed);
        self.used += u64::from(UNITS.saturating_sub(answer.remaining));
        self.latencies_ns.saturating_record(latency.as_nanos() as u64);
    }

    /// Decisions per second.
    pub fn rate(&self) -> f64 {
        self.decided as f64 / self.took.as_secs_f64()
    }
}

/// No latencies yet: there is room for up to a minute, with three digits.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// Decides these requests, [`IN_FLIGHT`] at a time.
async fn turn(
    limiter: &Arc<Limiter>,
    customers: &Arc<[Customer]>,
    requests: Range<u64>,
    order: Order,
) -> anyhow::Result<Turn> {
    let next = Arc::new(AtomicU64::new(requests.start));
    let mut workers = JoinSet::new();
    let start = Instant::now();
    for _ in 0..IN_FLIGHT {
        let (limiter, customers, next) = (limiter.clone(), customers.clone(), next.clone());
        workers.spawn(async move { work(&limiter, &customers, &next, requests.end, order).await });
    }
    let answers = workers.join_all().await;
    let mut turn = Turn::new();
    turn.took = start.elapsed();
    for own in answers {
        own?.into_iter().for_each(|(answer, latency)| turn.add(answer, latency));
    }
    Ok(turn)
}

/// Takes one request after the other until `end`.
async fn work(
    limiter: &Limiter,
    customers: &[Customer],
    next: &AtomicU64,
    end: u64,
    order: Order,
) -> anyhow::Result<Vec<(Answer, Duration)>> {
    let mut answers = Vec::new();
    loop {
        let request = next.fetch_add(1, Ordering::Relaxed);
        if request >= end {
            return Ok(answers);
        }
        let customer = &customers[order.customer(request, customers.len())];
        let start = Instant::now();
        let answer = limiter.decide(customer).await?;
        answers.push((answer, start.elapsed()));
    }
}

impl Order {
    fn customer(self, request: u64, customers: usize) -> usize {
        match self {
            Self::Random => fastrand::Rng::with_seed(request).usize(..customers),
            Self::InTurn => (request % customers as u64) as usize,
        }
    }
}

/// The processor time of the server so far, by its own account: to the microsecond, where the
/// kernel's file is to a hundredth of a second.
pub fn server_cpu(server: &RedisServer) -> Duration {
    let info = server.command(&["INFO", "cpu"]).text();
    let fields = ["used_cpu_sys:", "used_cpu_user:"];
    let seconds = info.lines().filter_map(|line| {
        let value = fields.iter().find_map(|field| line.strip_prefix(field))?;
        value.parse::<f64>().ok()
    });
    Duration::from_secs_f64(seconds.sum())
}

/// The processor time of this thread so far, which does all that a client has to.
pub fn client_cpu() -> anyhow::Result<Duration> {
    let path = "/proc/thread-self/schedstat";
    let stat = fs::read_to_string(path).with_context(|| path.to_owned())?;
    let ns = stat.split_whitespace().next().and_then(|ns| ns.parse().ok());
    Ok(Duration::from_nanos(ns.with_context(|| format!("{path}: {stat:?}"))?))
}
