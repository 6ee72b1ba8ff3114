//! The limiters that are compared, each asked in its own words over one connection of its own.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};
use slidegate::limit::{Charge, Charges, Quotas};
use slidegate::policy::Prefixes;
use slidegate::{Identity, Name, Quota, Store};
use slidegate_redis::{Layout, RedisStore};

/// Every decision is under this quota: 600 in 60 seconds.
pub const UNITS: u32 = 600;
const WINDOW: Duration = Duration::from_secs(60);
const WINDOW_MS: u64 = WINDOW.as_millis() as u64;

/// No call is to fail because the machine is busy.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// Which limiter it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// Five commands in a pipeline, as in the first of the sources.
    Pipeline,
    /// Four commands in a script, as in the fourth of the sources.
    Script,
    /// Slidegate with sorted sets.
    SortedSet,
    /// Slidegate as it comes.
    Packed,
}

impl Candidate {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Pipeline, Self::Script, Self::SortedSet, Self::Packed];

    /// What the tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline (S0)",
            Self::Script => "script (S3)",
            Self::SortedSet => "slidegate sorted-set",
            Self::Packed => "slidegate packed",
        }
    }
}

/// A client that sends requests.
pub struct Customer {
    address: String,
    identity: Identity,
}

impl Customer {
    /// The customer of this number.
    pub fn new(number: u32) -> Self {
        let address = Ipv4Addr::from_bits(0x0a00_0000 + number);
        Self {
            address: address.to_string(),
            identity: Identity::ip(address.into(), Prefixes::default()),
        }
    }

    /// As Slidegate knows them.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// A limiter's answer.
#[derive(Clone, Copy)]
pub struct Answer {
    pub allowed: bool,
    pub remaining: u32,
}

/// A limiter with its connection.
pub enum Limiter {
    /// Adds first and counts then, so that denied requests count as well.
    Pipeline(Connection),
    /// Counts first and adds if there is room, in one step.
    Script(Connection, Script),
    /// A store of ours.
    Slidegate { store: RedisStore, policy: Name, quotas: Quotas },
}

impl Limiter {
    /// Connects a limiter to the server.
    pub async fn connect(candidate: Candidate, url: &str) -> anyhow::Result<Self> {
        Ok(match candidate {
            Candidate::Pipeline => Self::Pipeline(Connection::open(url).await?),
            Candidate::Script => {
                let mut connection = Connection::open(url).await?;
                let script = Script::new(include_str!("script.lua"));
                script.load_async(&mut connection.multiplexed).await?;
                Self::Script(connection, script)
            }
            // Two layouts on one server cannot have the same keys.
            Candidate::SortedSet => Self::slidegate(url, Layout::SortedSet, "set")?,
            Candidate::Packed => Self::slidegate(url, Layout::Packed, "api")?,
        })
    }

    fn slidegate(url: &str, layout: Layout, policy: &str) -> anyhow::Result<Self> {
        let store = RedisStore::builder(url).layout(layout).deadline(CALL_DEADLINE).build()?;
        let quotas = Quota::per_minute(UNITS).into();
        Ok(Self::Slidegate { store, policy: policy.parse()?, quotas })
    }

    /// Decides one request.
    pub async fn decide(&self, customer: &Customer) -> anyhow::Result<Answer> {
        match self {
            Self::Pipeline(connection) => pipeline(connection, customer).await,
            Self::Script(connection, script) => {
                let now_ms = now_ms();
                let mut call = script.key(format!("throttle:ip:{}:api", customer.address));
                call.arg(now_ms).arg(WINDOW_MS).arg(UNITS).arg(connection.member(now_ms));
                let mut connection = connection.multiplexed.clone();
                let (allowed, remaining) = call.invoke_async(&mut connection).await?;
                Ok(Answer { allowed, remaining })
            }
            Self::Slidegate { store, policy, quotas } => {
                let charge = Charge::new(policy, &customer.identity, quotas);
                let receipt = store.spend(&Charges::from(charge)).await?;
                Ok(Answer { allowed: receipt.spent, remaining: receipt.standings[0].remaining() })
            }
        }
    }
}

async fn pipeline(connection: &Connection, customer: &Customer) -> anyhow::Result<Answer> {
    let now_ms = now_ms();
    let key = format!("rate_limit:{}:post_shorten", customer.address);
    let mut pipeline = redis::pipe();
    pipeline.cmd("ZADD").arg(&key).arg(now_ms).arg(connection.member(now_ms)).ignore();
    pipeline.cmd("ZREMRANGEBYSCORE").arg(&key).arg(0).arg(now_ms - WINDOW_MS).ignore();
    pipeline.cmd("ZCARD").arg(&key);
    pipeline.cmd("ZRANGE").arg(&key).arg(0).arg(0).arg("WITHSCORES");
    pipeline.cmd("EXPIRE").arg(&key).arg(WINDOW.as_secs()).ignore();
    let mut connection = connection.multiplexed.clone();
    let (used, _oldest): (u32, Vec<(String, f64)>) = pipeline.query_async(&mut connection).await?;
    Ok(Answer { allowed: used <= UNITS, remaining: UNITS.saturating_sub(used) })
}

/// The connection of a limiter that is not Slidegate, set up as Slidegate sets up its own: it waits
/// for answers without a timer, and so spares these limiters one.
pub struct Connection {
    multiplexed: MultiplexedConnection,
    members: AtomicU64,
}

impl Connection {
    async fn open(url: &str) -> anyhow::Result<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(url)?;
        let multiplexed = client.get_multiplexed_async_connection_with_config(&config).await;
        let multiplexed = multiplexed.context("no connection to redis-server")?;
        Ok(Self { multiplexed, members: AtomicU64::new(0) })
    }

    /// A member that is in no set yet: the time, and something that two requests at the same time
    /// do not share. The sources take a random number, which is longer.
    fn member(&self, now_ms: u64) -> String {
        member(now_ms, self.members.fetch_add(1, Ordering::Relaxed))
    }
}

/// How the sources name what a request leaves in a sorted set.
pub fn member(now_ms: u64, number: u64) -> String {
    format!("{now_ms}-{number:08x}")
}

/// The client's clock, which the sources go by.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    u64::try_from(now.as_millis()).expect("it is before the year 584,556,019")
}
