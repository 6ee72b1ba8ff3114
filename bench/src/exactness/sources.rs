//! The limiters that Slidegate's sources describe, each written anew by its commands on Redis.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::servers::Verdict;
use super::traffic::LIMIT;

/// One of the five.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A URL shortener in TypeScript: records first, then counts.
    S0,
    /// A developer-tools API: counts, records, and takes back everything of a refused millisecond.
    S1,
    /// An API service: counts, records, and refuses what is beyond its limit and one.
    S2,
    /// A production guide: a script that records what has room.
    S3,
    /// A URL shortener in Go: counts and records, in nanoseconds.
    S4,
}

impl Source {
    pub const ALL: [Self; 5] = [Self::S0, Self::S1, Self::S2, Self::S3, Self::S4];
}

/// A limiter of a source with its connection. All of them go by the clock of the process.
#[derive(Clone)]
pub struct SourceLimiter {
    source: Source,
    connection: MultiplexedConnection,
}

const WINDOW_MS: u64 = LIMIT.window.as_millis() as u64;

impl SourceLimiter {
    pub async fn connect(source: Source, url: &str) -> anyhow::Result<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(url)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        Ok(Self { source, connection: connection.context("no connection to redis-server")? })
    }

    pub async fn decide(&self) -> anyhow::Result<Verdict> {
        match self.source {
            Source::S0 => self.record_then_count().await,
            Source::S1 => self.count_record_and_take_back().await,
            Source::S2 => {
                let now_ms = now().as_millis() as u64;
                let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
                let (now, left) = (seconds(now_ms), seconds(now_ms - WINDOW_MS));
                let count = self.count_and_record("ratelimit:ip:client", &now, &left, &now).await?;
                Ok(Verdict::new(count <= LIMIT.units, LIMIT.window))
            }
            Source::S3 => self.run_script().await,
            Source::S4 => {
                let now = now();
                let left = (now - LIMIT.window).as_nanos().to_string();
                let now = now.as_nanos().to_string();
                let count = self.count_and_record("ratelimit:client", &now, &left, &now).await?;
                Ok(Verdict::new(count < LIMIT.units, LIMIT.window))
            }
        }
    }

    async fn record_then_count(&self) -> anyhow::Result<Verdict> {
        let (key, now_ms) = ("rate_limit:client:post_shorten", now().as_millis() as u64);
        let mut pipe = redis::pipe();
        pipe.cmd("ZADD").arg(key).arg(now_ms).arg(format!("{now_ms}-{}", random())).ignore();
        pipe.cmd("ZREMRANGEBYSCORE").arg(key).arg(0).arg(now_ms - WINDOW_MS).ignore();
        pipe.cmd("ZCARD").arg(key);
        pipe.cmd("ZRANGE").arg(key).arg(0).arg(0).arg("WITHSCORES");
        pipe.cmd("EXPIRE").arg(key).arg(LIMIT.window.as_secs()).ignore();
        let (count, oldest) = pipe.query_async(&mut self.connection.clone()).await?;
        let count: usize = count;
        Ok(Verdict::new(count <= LIMIT.units, until_free(oldest, now_ms)))
    }

    async fn count_record_and_take_back(&self) -> anyhow::Result<Verdict> {
        let (key, now_ms) = ("ratelimit:min:client", now().as_millis() as u64);
        let mut pipe = redis::pipe();
        pipe.cmd("ZREMRANGEBYSCORE").arg(key).arg(0).arg(now_ms - WINDOW_MS).ignore();
        pipe.cmd("ZCARD").arg(key);
        pipe.cmd("ZADD").arg(key).arg(now_ms).arg(format!("{now_ms}:{}", random())).ignore();
        pipe.cmd("PEXPIRE").arg(key).arg(WINDOW_MS).ignore();
        let (count,): (usize,) = pipe.query_async(&mut self.connection.clone()).await?;
        if count < LIMIT.units {
            return Ok(Verdict::Admitted);
        }
        let mut pipe = redis::pipe();
        pipe.cmd("ZREMRANGEBYSCORE").arg(key).arg(now_ms).arg(now_ms).ignore();
        pipe.cmd("ZRANGE").arg(key).arg(0).arg(0).arg("WITHSCORES");
        let (oldest,) = pipe.query_async(&mut self.connection.clone()).await?;
        Ok(Verdict::Refused { retry_after: until_free(oldest, now_ms) })
    }

    /// How many there were before this one.
    async fn count_and_record(
        &self,
        key: &str,
        now: &str,
        left: &str,
        member: &str,
    ) -> anyhow::Result<usize> {
        let mut pipe = redis::pipe();
        pipe.cmd("ZREMRANGEBYSCORE").arg(key).arg("0").arg(left).ignore();
        pipe.cmd("ZCARD").arg(key);
        pipe.cmd("ZADD").arg(key).arg(now).arg(member).ignore();
        pipe.cmd("EXPIRE").arg(key).arg(LIMIT.window.as_secs()).ignore();
        let (count,) = pipe.query_async(&mut self.connection.clone()).await?;
        Ok(count)
    }

    async fn run_script(&self) -> anyhow::Result<Verdict> {
        let now_ms = now().as_millis() as u64;
        let mut call = redis::cmd("EVAL");
        call.arg(include_str!("s3.lua")).arg(1).arg("throttle:ip:client:api");
        call.arg(now_ms).arg(WINDOW_MS).arg(LIMIT.units).arg(format!("{now_ms}:{}", random()));
        let (admitted, _remaining): (u32, u32) =
            call.query_async(&mut self.connection.clone()).await?;
        Ok(Verdict::new(admitted == 1, LIMIT.window))
    }
}

/// How long until the oldest entry leaves.
fn until_free(oldest: Vec<(String, f64)>, now_ms: u64) -> Duration {
    let oldest_ms = oldest.first().map_or(now_ms, |(_, score)| *score as u64);
    Duration::from_millis((oldest_ms + WINDOW_MS).saturating_sub(now_ms))
}

fn random() -> u32 {
    fastrand::u32(..999_999)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970")
}
