//! Gateways under a steady load, and every decision that they made.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Method;
use slidegate::{Facts, Gate, OnStoreError, Policies, Policy, Quota, Source, Store};
use slidegate_redis::{RedisStore, ResilientStore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The first one asks for far more than it gets; the others stay far below.
pub const ACCOUNTS: usize = 50;
pub const HOT: usize = 0;
pub const HOT_UNITS: u32 = 50;
/// Longer than a failover takes here, so that what it loses would be admitted again.
pub const HOT_WINDOW: Duration = Duration::from_millis(2500);
/// Of the others, in an hour: nothing leaves, so what Redis has counted can be compared.
const REST_UNITS: u32 = 4000;

/// In each gateway. A task sends a request, every fourth for the hot account, and pauses.
const TASKS: usize = 8;
const REQUEST_PAUSE: Duration = Duration::from_millis(10);
/// A decision that takes this long counts as one that never returns.
const NEVER: Duration = Duration::from_secs(5);
/// The wait between two attempts is at most 3 s.
const REPLAYED_WITHIN: Duration = Duration::from_secs(30);
/// How often the control task looks.
const NAP: Duration = Duration::from_millis(5);

/// One decision, which was made some time between call and return.
pub struct Call {
    pub gateway: usize,
    pub account: usize,
    pub called: Instant,
    pub returned: Instant,
    pub is_admitted: bool,
    pub is_degraded: bool,
    /// It returned an error, or not at all.
    pub is_lost: bool,
}

/// One sleep of the control task.
pub struct Nap {
    pub began: Instant,
    pub woken: Instant,
    /// How long the thread was ready meanwhile and had no processor.
    pub lag: Duration,
}

/// All that is known when the load has ended.
pub struct Seen {
    pub calls: Vec<Call>,
    pub naps: Vec<Nap>,
    /// What Redis has counted in the end, by account.
    pub counted: Vec<u32>,
}

/// A load that goes on until it is stopped.
pub struct Load {
    log: Arc<Log>,
    thread: JoinHandle<anyhow::Result<Vec<u32>>>,
}

struct Log {
    start: Instant,
    stop: AtomicBool,
    hot_requests: AtomicU32,
    calls: Mutex<Vec<Call>>,
    naps: Mutex<Vec<Nap>>,
}

impl Load {
    /// Begins to send, to gateways that each have a gate and a store of their own, as processes would.
    /// One thread does all of it, so the control task sees what holds it up.
    pub fn start(url: &str, gateways: usize) -> anyhow::Result<Self> {
        let log = Arc::new(Log {
            start: Instant::now(),
            stop: AtomicBool::new(false),
            hot_requests: AtomicU32::new(0),
            calls: Mutex::default(),
            naps: Mutex::default(),
        });
        let redis = || RedisStore::builder(url);
        let counter = gate(redis().deadline(NEVER).build()?)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut tasks, mut stores) = (JoinSet::new(), Vec::new());
        for gateway in 0..gateways {
            let store = ResilientStore::new(redis().build()?);
            stores.push(store.clone());
            let gate = Arc::new(gate(store)?);
            for _ in 0..TASKS {
                tasks.spawn_on(send(gateway, gate.clone(), log.clone()), runtime.handle());
            }
        }
        tasks.spawn_on(control(log.clone()), runtime.handle());
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                tasks.join_all().await;
                let all_replayed = async {
                    while stores.iter().any(|store| store.stats().unmerged > 0) {
                        sleep(REQUEST_PAUSE).await;
                    }
                };
                timeout(REPLAYED_WITHIN, all_replayed).await.context("replay takes too long")?;
                count(&counter).await
            })
        });
        Ok(Self { log, thread })
    }

    /// The decisions so far.
    pub fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        lock(&self.log.calls)
    }

    /// Ends the load, and counts.
    pub fn stop(self) -> anyhow::Result<Seen> {
        self.log.stop.store(true, Ordering::Relaxed);
        let counted = self.thread.join().ok().context("the load panicked")??;
        let calls = std::mem::take(&mut *lock(&self.log.calls));
        let naps = std::mem::take(&mut *lock(&self.log.naps));
        Ok(Seen { calls, naps, counted })
    }
}

fn lock<T>(list: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gate<S: Store>(store: S) -> anyhow::Result<Gate<S>> {
    let policy = |name: &str, quota| {
        let policy = Policy::new(name).path(format!("/{name}")).identity([Source::User]);
        policy.quota(quota).on_store_error(OnStoreError::Local)
    };
    let hot = policy("hot", Quota::new(HOT_UNITS.try_into()?, HOT_WINDOW)?);
    let rest = policy("rest", Quota::per_hour(REST_UNITS));
    Ok(Gate::new(Policies::builder().policy(hot).policy(rest).build()?, store))
}

fn facts(account: usize, user: &str) -> Facts<'_> {
    Facts::new(&Method::GET, if account == HOT { "/hot" } else { "/rest" }).user(user)
}

async fn send(gateway: usize, gate: Arc<Gate<ResilientStore>>, log: Arc<Log>) {
    while !log.stop.load(Ordering::Relaxed) {
        let account = log.next_account();
        let user = account.to_string();
        let called = Instant::now();
        let decision = timeout(NEVER, gate.decide(&facts(account, &user))).await;
        let returned = Instant::now();
        let decision = decision.ok().and_then(Result::ok);
        lock(&log.calls).push(Call {
            gateway,
            account,
            called,
            returned,
            is_admitted: decision.as_ref().is_some_and(|decision| decision.is_allowed()),
            is_degraded: decision.as_ref().is_some_and(|decision| decision.is_degraded()),
            is_lost: decision.is_none(),
        });
        sleep(REQUEST_PAUSE).await;
    }
}

/// Tells what the machine holds up from what the code does.
async fn control(log: Arc<Log>) {
    let mut waited = waited_for_processor();
    while !log.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        sleep(NAP).await;
        let before = std::mem::replace(&mut waited, waited_for_processor());
        let lag = waited.saturating_sub(before);
        lock(&log.naps).push(Nap { began, woken: Instant::now(), lag });
    }
}

/// How long this thread has been ready to run and had no processor so far; nothing where the kernel
/// does not tell.
fn waited_for_processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat.split_whitespace().nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or_default())
}

/// What Redis has counted, by account.
async fn count(gate: &Gate<RedisStore>) -> anyhow::Result<Vec<u32>> {
    let mut counted = Vec::new();
    for account in 0..ACCOUNTS {
        let user = account.to_string();
        let decision = gate.peek(&facts(account, &user)).await?;
        let (_, standing) = decision.tightest().context("every request has a policy")?;
        counted.push(standing.quota().units().get() - standing.remaining());
    }
    Ok(counted)
}

impl Log {
    /// In the first window, requests for the hot account come evenly, so that its units leave evenly
    /// from then on.
    fn next_account(&self) -> usize {
        let windows = self.start.elapsed().div_duration_f64(HOT_WINDOW);
        let sent = f64::from(self.hot_requests.load(Ordering::Relaxed));
        let is_due = windows >= 1.0 || sent < windows * f64::from(HOT_UNITS);
        if is_due && fastrand::u8(..4) == 0 {
            self.hot_requests.fetch_add(1, Ordering::Relaxed);
            return HOT;
        }
        fastrand::usize(HOT + 1..ACCOUNTS)
    }
}
