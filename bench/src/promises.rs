//! What the write-ups that Slidegate grew out of promise of latency and memory, measured for both
//! stores with their quota: 100 requests of an identity in 60 seconds.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use http::Method;
use slidegate::limit::{Charge, Charges, Quotas};
use slidegate::policy::Prefixes;
use slidegate::{
    Facts, Gate, Identity, ManualClock, MemoryStore, Name, Policies, Policy, Quota, Source, Store,
};
use slidegate_redis::{RedisStore, ResilientStore};
use slidegate_testbed::{ManualTime, RedisServer};
use tokio::task::JoinSet;

use crate::alloc;

const UNITS: u32 = 100;
const WINDOW: Duration = Duration::from_secs(60);
const IPS: u32 = 100_000;

/// Each at most as promised.
struct Figures {
    decision_p99: Duration,
    /// Of one address that has made 100 requests.
    bytes_100_requests: f64,
    /// Of 100,000 addresses that have made 100 requests each.
    mb_100k_ips: f64,
    /// Of one identity that has been at its limit for longer than a window.
    bytes_per_identity: f64,
}

/// Measures both stores and prints the results.
pub fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (memory, redis) =
        runtime.block_on(async { anyhow::Ok((memory().await?, redis().await?)) })?;
    println!("promised: under 1 ms, at most 800 bytes, 80 MB and about 1 KB (1,024 bytes)");
    for (store, figures) in [("memory", memory), ("redis-packed", redis)] {
        println!(
            "RESULT promises decision_p99_ms={:.4} bytes_100_requests={:.0} mb_100k_ips={:.1} \
             bytes_per_identity={:.0} store={store}",
            figures.decision_p99.as_secs_f64() * 1e3,
            figures.bytes_100_requests,
            figures.mb_100k_ips,
            figures.bytes_per_identity,
        );
    }
    Ok(())
}

async fn memory() -> anyhow::Result<Figures> {
    // One account would be lost in the store's own tables, so it is the average of all.
    let filled = |requests: u32| {
        let identities: Vec<Identity> = (0..IPS).map(identity).collect();
        let (bytes, filled) = alloc::bytes_of(|| {
            let clock = ManualClock::default();
            let store = MemoryStore::builder().clock(clock.clone()).build();
            let account = Account::new()?;
            for _ in 0..requests {
                for identity in &identities {
                    ensure!(store.spend_now(&account.charge(identity).into())?.spent);
                }
                clock.advance(WINDOW / UNITS);
            }
            Ok(store)
        });
        filled.map(|_store| bytes as f64)
    };
    let full = filled(UNITS)?;
    Ok(Figures {
        decision_p99: p99(&gate(MemoryStore::new())?).await?,
        bytes_100_requests: full / f64::from(IPS),
        mb_100k_ips: full / 1e6,
        bytes_per_identity: filled(2 * UNITS)? / f64::from(IPS),
    })
}

async fn redis() -> anyhow::Result<Figures> {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).deadline(Duration::from_secs(30)).build()?;
    let decision_p99 = p99(&gate(ResilientStore::new(store.clone()))?).await?;
    server.command(&["FLUSHALL"]).expect_ok();
    let used = || server.info("used_memory").parse::<f64>();
    let before = used()?;
    fill(&store).await?;
    let mb_100k_ips = (used()? - before) / 1e6;
    drop(server);
    Ok(Figures {
        decision_p99,
        bytes_100_requests: account_in_redis(UNITS).await?,
        mb_100k_ips,
        bytes_per_identity: account_in_redis(2 * UNITS).await?,
    })
}

/// The 99th percentile of decisions that are made one at a time, for two seconds.
async fn p99<S: Store>(gate: &Gate<S>) -> anyhow::Result<Duration> {
    let mut latencies_ns = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let start = Instant::now();
    for number in (0..IPS).cycle() {
        let called = Instant::now();
        if called - start > Duration::from_secs(2) {
            break;
        }
        let decision = gate.decide(&Facts::new(&Method::GET, "/").client(address(number))).await?;
        let took = called.elapsed();
        ensure!(decision.is_allowed() && !decision.is_degraded(), "the store did not allow it");
        latencies_ns.saturating_record(took.as_nanos() as u64);
    }
    Ok(Duration::from_nanos(latencies_ns.value_at_quantile(0.99)))
}

/// Gives 100,000 addresses a full account each. A unit is a slot whether it came alone or not, so
/// one request of 100 units leaves what 100 requests leave.
async fn fill(store: &RedisStore) -> anyhow::Result<()> {
    let next = Arc::new(AtomicU32::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..64 {
        let (store, next) = (store.clone(), next.clone());
        workers.spawn(async move {
            let account = Account::new()?;
            let all = NonZeroU32::new(UNITS).expect("not zero");
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= IPS {
                    return anyhow::Ok(());
                }
                let identity = identity(number);
                let charge = account.charge(&identity).with_cost(all)?;
                ensure!(store.spend(&Charges::from(charge)).await?.spent);
            }
        });
    }
    workers.join_all().await.into_iter().collect()
}

/// The bytes of one account, by `MEMORY USAGE`, after requests that come evenly.
async fn account_in_redis(requests: u32) -> anyhow::Result<f64> {
    let time = ManualTime::new();
    let server = RedisServer::options().time(&time).start();
    let store = RedisStore::builder(server.url()).deadline(Duration::from_secs(30)).build()?;
    let (account, identity) = (Account::new()?, identity(0));
    for _ in 0..requests {
        ensure!(store.spend(&account.charge(&identity).into()).await?.spent);
        time.advance(WINDOW / UNITS);
    }
    let key = server.command(&["RANDOMKEY"]).text();
    Ok(server.command(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]).integer() as f64)
}

fn gate<S: Store>(store: S) -> anyhow::Result<Gate<S>> {
    let policy = Policy::new("api").identity([Source::ip()]).quota(Quota::per_minute(UNITS));
    Ok(Gate::new(Policies::builder().policy(policy).build()?, store))
}

/// What every identity has.
struct Account {
    policy: Name,
    quotas: Quotas,
}

impl Account {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { policy: "api".parse()?, quotas: Quota::per_minute(UNITS).into() })
    }

    fn charge<'a>(&'a self, identity: &'a Identity) -> Charge<'a> {
        Charge::new(&self.policy, identity, &self.quotas)
    }
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + number).into()
}

fn identity(number: u32) -> Identity {
    Identity::ip(address(number), Prefixes::default())
}
