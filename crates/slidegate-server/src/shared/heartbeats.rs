//! The gateways that share one Redis, known by heartbeats.
//!
//! Each gateway writes a heartbeat to Redis that expires unless it is written again, and reads those of
//! the others.

use std::process;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use slidegate::{Policies, Timestamp};
use slidegate_redis::SharedEntry;

use super::meaning::{differing, meanings};
use crate::api::GatewayView;
use crate::calendar::Rfc3339;
use crate::observe::PolicyConflict;

/// The heartbeat of this gateway, and those of the others. Without Redis there are no others. Times
/// are on the gate's clock.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    own: GatewayEntry,
    others: Mutex<Vec<OtherGateway>>,
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
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// For every this many gateways the interval is `HEARTBEAT_INTERVAL` longer, so that all of them
/// together send Redis at most 25 heartbeats a second.
const GATEWAYS_PER_INTERVAL: usize = 50;
/// A gateway without a heartbeat for this many intervals is gone.
const MAX_MISSED_HEARTBEATS: u32 = 3;
/// The most that are listed.
const MAX_LISTED: usize = 1000;

impl Heartbeats {
    /// Of a gateway that began at this calendar time.
    pub(crate) fn new(started: Timestamp) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let own = GatewayEntry {
            name: format!("{host}:{}", process::id()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: Rfc3339(started),
            lasts_ms: 0,
            policies: String::new(),
        };
        Self { own, others: Mutex::default() }
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

    /// The text of the next heartbeat, with what these policies mean, and how long it lasts.
    pub(super) fn next(&self, policies: &Policies) -> (String, Duration) {
        let lasting = self.pause() * MAX_MISSED_HEARTBEATS;
        let (lasts_ms, policies) = (lasting.as_millis() as u64, meanings(policies));
        let own = GatewayEntry { lasts_ms, policies, ..self.own.clone() };
        (serde_json::to_string(&own).expect("strings and numbers can be JSON"), lasting)
    }

    /// How long to wait until the next heartbeat.
    pub(super) fn pause(&self) -> Duration {
        HEARTBEAT_INTERVAL * (1 + self.others.lock().len() / GATEWAYS_PER_INTERVAL) as u32
    }

    /// Takes the heartbeats of the others that were read now, which is `redis_ms` by the clock of
    /// Redis.
    pub(super) fn replace_others(&self, read: &[SharedEntry], redis_ms: u64, now: Timestamp) {
        let others = read.iter().filter_map(|entry| OtherGateway::read(entry, redis_ms, now));
        let mut others: Vec<OtherGateway> = others.collect();
        others.sort_unstable_by(|a, b| a.entry.name.cmp(&b.entry.name));
        *self.others.lock() = others;
    }

    /// The policies that other gateways define in another way.
    pub(super) fn conflicts(&self, policies: &Policies, now: Timestamp) -> Vec<PolicyConflict> {
        let (own, others) = (meanings(policies), self.others.lock());
        let live = others.iter().filter(|other| other.until > now);
        let conflicts = live.flat_map(|OtherGateway { entry, .. }| {
            let differing = differing(policies, &own, &entry.policies).into_iter();
            differing.map(|policy| PolicyConflict { policy, gateway: entry.name.clone() })
        });
        conflicts.take(MAX_LISTED).collect()
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
