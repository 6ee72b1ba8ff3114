//! The gateways that share one Redis, known by heartbeats.
//!
//! Each gateway writes an entry to a map in Redis that expires unless it is written again, and reads
//! those of the others. No decision waits for it, and while Redis is unreachable there is nothing but
//! a line in the debug log: the breaker tells of that.

use std::process;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use slidegate::{Clock, Policies, Timestamp};
use slidegate_redis::{SharedEntry, SharedMap, SharedMapError};
use tokio::sync;

use super::meaning::{differing, meanings};
use crate::api::GatewayView;
use crate::calendar::Rfc3339;
use crate::observe::{Observer, PolicyConflict};

/// Writes the heartbeat of this gateway, and knows those of the others.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    /// Without Redis there are no others.
    map: Option<SharedMap>,
    /// The id of its entry: names may be the same, as in containers, where the process is always 1.
    id: String,
    own: GatewayEntry,
    /// What the policies in force mean, as the next heartbeat tells it.
    meanings: Mutex<String>,
    others: Mutex<Vec<OtherGateway>>,
    /// Held during a call, so that none overtakes another.
    presence: sync::Mutex<Presence>,
}

/// Whether Redis has an entry of this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Presence {
    #[default]
    Unknown,
    Written,
    /// And no other is written.
    Removed,
}

/// What a gateway tells of itself. Other fields are passed over: a newer version may write them.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct GatewayEntry {
    name: String,
    version: String,
    started: Rfc3339,
    /// How long the entry lasts after it was written.
    lasts_ms: u64,
    /// What its policies mean; older versions tell nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    policies: String,
}

/// Another gateway, by this one's clock.
#[derive(Debug)]
struct OtherGateway {
    entry: GatewayEntry,
    seen: Timestamp,
    until: Timestamp,
}

/// Between two heartbeats, if there are few gateways.
const PAUSE: Duration = Duration::from_secs(2);
/// For each so many gateways the pause is as long again, so that all of them together send Redis at
/// most 25 heartbeats a second.
const CROWD: usize = 50;
/// So many pauses without a heartbeat, and a gateway is gone.
const MISSED: u32 = 3;
/// How much longer the process may live for its heartbeat.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// The most that are listed.
const MAX_LISTED: usize = 1000;

impl Heartbeats {
    /// Of a gateway that began at this calendar time.
    pub(crate) fn new(map: Option<SharedMap>, started: Timestamp) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let own = GatewayEntry {
            name: format!("{host}:{}", process::id()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: Rfc3339(started),
            lasts_ms: 0,
            policies: String::new(),
        };
        let id = format!("{:016x}", fastrand::u64(..));
        let (meanings, others) = (Mutex::default(), Mutex::default());
        Self { map, id, own, meanings, others, presence: sync::Mutex::default() }
    }

    /// Exchanges heartbeats until this gateway leaves, and reports policies that others define in
    /// another way.
    pub(crate) async fn run(self: Arc<Self>, clock: impl Clock, observer: Observer) {
        loop {
            let policies = observer.gate().policies();
            self.tell(&policies);
            if self.exchange(clock.now()).await == Presence::Removed {
                return;
            }
            observer.policy_conflicts(self.conflicts(&policies, clock.now()));
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Has the next heartbeat tell of these policies.
    fn tell(&self, policies: &Policies) {
        *self.meanings.lock() = meanings(policies);
    }

    /// The policies that other gateways define in another way.
    fn conflicts(&self, policies: &Policies, now: Timestamp) -> Vec<PolicyConflict> {
        let (own, others) = (self.meanings.lock(), self.others.lock());
        let live = others.iter().filter(|other| other.until > now);
        let conflicts = live.flat_map(|OtherGateway { entry, .. }| {
            let differing = differing(policies, &own, &entry.policies).into_iter();
            differing.map(|policy| PolicyConflict { policy, gateway: entry.name.clone() })
        });
        conflicts.take(MAX_LISTED).collect()
    }

    /// Lets the other gateways know that this one goes. If that takes too long, its heartbeat expires.
    pub(crate) async fn leave(&self) {
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.remove()).await;
    }

    /// Removes the heartbeat. If the last one could not be written, it is left to expire, because
    /// Redis would not answer.
    async fn remove(&self) {
        let Some(map) = &self.map else { return };
        let mut presence = self.presence.lock().await;
        if *presence == Presence::Written
            && let Err(error) = map.remove(&self.id).await
        {
            tracing::debug!(%error, "heartbeat not removed from Redis");
        }
        *presence = Presence::Removed;
    }

    /// This gateway, and the others whose heartbeats have not expired, by name.
    pub(crate) fn gateways(&self, now: Timestamp) -> Vec<GatewayView> {
        let mut others = self.others.lock();
        others.retain(|other| other.until > now);
        let seen = others.iter().map(|other| {
            let seen_ms = now.saturating_since(other.seen).as_millis() as u64;
            GatewayView { seen_ms, ..other.entry.view() }
        });
        let this = GatewayView { this: true, ..self.own.view() };
        std::iter::once(this).chain(seen).take(MAX_LISTED).collect()
    }

    /// How long to wait until the next heartbeat.
    fn pause(&self) -> Duration {
        PAUSE * (1 + self.others.lock().len() / CROWD) as u32
    }

    /// Writes the heartbeat, if one is to be written, and reads those of the others.
    async fn exchange(&self, now: Timestamp) -> Presence {
        let Some(map) = &self.map else { return Presence::Removed };
        let mut presence = self.presence.lock().await;
        if *presence != Presence::Removed {
            *presence = match self.write_and_read(map, now).await {
                Ok(()) => Presence::Written,
                Err(error) => {
                    tracing::debug!(%error, "no heartbeat in Redis");
                    Presence::Unknown
                }
            };
        }
        *presence
    }

    async fn write_and_read(&self, map: &SharedMap, now: Timestamp) -> Result<(), SharedMapError> {
        let lasting = self.pause() * MISSED;
        let (lasts_ms, policies) = (lasting.as_millis() as u64, self.meanings.lock().clone());
        let own = GatewayEntry { lasts_ms, policies, ..self.own.clone() };
        let text = serde_json::to_string(&own).expect("strings and numbers can be JSON");
        map.insert(&self.id, &text, lasting).await?;
        let Some(snapshot) = map.read(None).await? else { return Ok(()) };
        let others = snapshot.entries.iter().filter(|entry| entry.id != self.id);
        let others = others.filter_map(|entry| OtherGateway::read(entry, snapshot.now_ms, now));
        let mut others: Vec<OtherGateway> = others.collect();
        others.sort_unstable_by(|a, b| a.entry.name.cmp(&b.entry.name));
        *self.others.lock() = others;
        Ok(())
    }
}

impl OtherGateway {
    /// Of an entry that was read now, which is `redis_ms` by the clock of Redis.
    fn read(shared: &SharedEntry, redis_ms: u64, now: Timestamp) -> Option<Self> {
        let entry: GatewayEntry = serde_json::from_str(&shared.text).ok()?;
        let rest_ms = shared.until_ms.saturating_sub(redis_ms);
        let seen = now - Duration::from_millis(entry.lasts_ms.saturating_sub(rest_ms));
        Some(Self { entry, seen, until: now + Duration::from_millis(rest_ms) })
    }
}

impl GatewayEntry {
    fn view(&self) -> GatewayView {
        let Self { name, version, started, .. } = self.clone();
        GatewayView { name, this: false, version, started, seen_ms: 0 }
    }
}

#[cfg(test)]
mod tests {
    use slidegate_redis::RedisStore;
    use slidegate_testbed::{ManualTime, RedisServer};

    use super::*;

    fn gateway_map(redis: &RedisServer) -> SharedMap {
        let store = RedisStore::builder(redis.url()).deadline(Duration::from_secs(2)).build();
        store.unwrap().shared_map_named(&"gateways".parse().unwrap())
    }

    #[tokio::test]
    async fn gateways_on_one_redis_see_each_other_until_one_leaves_or_is_silent() {
        let time = ManualTime::new();
        let redis = RedisServer::options().time(&time).start();
        let map = gateway_map(&redis);
        let now = Timestamp::from_millis(7_000_000);
        let gateways = [(); 3].map(|()| Heartbeats::new(Some(map.clone()), now));
        let exchange = async || {
            for gateway in &gateways {
                gateway.exchange(now).await;
            }
        };
        let counts = |now| gateways.each_ref().map(|gateway| gateway.gateways(now).len());
        exchange().await;
        assert_eq!(counts(now), [1, 2, 3], "in the order of their first heartbeats");
        time.advance(Duration::from_secs(2));
        exchange().await;
        assert_eq!(counts(now), [3, 3, 3]);
        let [this, other, _] = &gateways[0].gateways(now)[..] else { panic!("three") };
        assert!(this.this && !other.this && this.name.contains(':'), "{this:?}");
        assert_eq!(
            (&other.name, &other.version, other.started),
            (&this.name, &this.version, this.started)
        );
        assert!(other.seen_ms.abs_diff(2000) < 100, "{other:?}");

        gateways[2].leave().await;
        exchange().await;
        assert_eq!(counts(now)[..2], [2, 2], "it has left, and writes no heartbeat any more");
        time.advance(Duration::from_secs(7));
        gateways[0].exchange(now).await;
        assert_eq!(counts(now)[0], 1, "the other has been silent");
        assert_eq!(counts(now)[1], 2);
        assert_eq!(
            counts(now + Duration::from_secs(7))[1],
            1,
            "it forgets by itself what it has read"
        );
        time.advance(Duration::from_secs(7));
        assert_eq!(redis.command(&["KEYS", "*gateways*"]).array().len(), 0, "and Redis does too");
    }
}
