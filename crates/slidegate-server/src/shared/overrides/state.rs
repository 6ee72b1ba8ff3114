//! The overrides as last known, and how they follow those in Redis that all gateways share.

use std::collections::HashSet;
use std::time::Duration;

use slidegate::policy::{Override, Overrides};
use slidegate::{Gate, Timestamp};
use slidegate_redis::SharedEntry;

use super::{OperatorAction, OverrideRecord, Target};
use crate::store::AnyStore;

/// The overrides as last known.
#[derive(Debug, Default)]
pub(in crate::shared) struct OverrideState {
    pub(super) overrides: Vec<OverrideRecord>,
    /// When this process began.
    began: Timestamp,
    /// How far the clock of the overrides is ahead of the gate's. With Redis they are dated by its
    /// clock, which all gateways share; their own may be hours off.
    clock_offset_ms: i64,
    /// When Redis was last read.
    pub(in crate::shared) read_at: Option<Timestamp>,
    /// When all entries in Redis were last read; `None` forces such a read.
    pub(in crate::shared) fully_read_at: Option<Timestamp>,
    /// Ids of the resets in Redis that were applied here.
    pub(super) resets: HashSet<String>,
}

/// So often all entries are read again, in case one of the clocks drifts.
const FULL_READ_INTERVAL: Duration = Duration::from_secs(60);
/// How long a reset stays in Redis. A gateway that cannot read it in this time keeps its local
/// ledgers, which is stricter, never looser.
pub(super) const RESET_TTL: Duration = Duration::from_secs(120);
/// A reset may be dated by an estimate of the server's clock.
const RESET_SLACK_MS: u64 = 1000;
/// How long a lift stays in Redis. A gateway that has read Redis within this time knows that a
/// missing override was lost, not lifted.
pub(super) const LIFT_TTL: Duration = Duration::from_secs(3600);
/// An override with no more left than this may have ended a moment early by Redis's clock.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

impl OverrideState {
    /// None, in a process that began at this time.
    pub(in crate::shared) fn new(began: Timestamp) -> Self {
        Self { began, ..Self::default() }
    }

    pub(super) fn now_ms(&self, gate: &Gate<AnyStore>) -> u64 {
        gate.now().as_millis().saturating_add_signed(self.clock_offset_ms)
    }

    /// A time of the overrides' clock on the gate's.
    fn gate_time(&self, ms: u64) -> Timestamp {
        Timestamp::from_millis(ms.saturating_add_signed(self.clock_offset_ms.saturating_neg()))
    }

    /// Drops expired overrides and returns the current time on their clock.
    pub(super) fn drop_ended(&mut self, gate: &Gate<AnyStore>) -> u64 {
        let now_ms = self.now_ms(gate);
        self.overrides.retain(|record| record.until_ms > now_ms);
        now_ms
    }

    /// Puts these overrides in force.
    pub(super) fn replace(&mut self, overrides: Vec<OverrideRecord>, gate: &Gate<AnyStore>) {
        self.overrides = overrides;
        let in_force = self.overrides.iter().filter_map(|record| {
            let OperatorAction::Override(action) = record.action else { return None };
            let Target { identity, policy } = record.target.clone();
            Some(Override { identity, policy, action, until: self.gate_time(record.until_ms) })
        });
        match Overrides::new(in_force) {
            Ok(overrides) => gate.admin().replace_overrides(overrides),
            Err(error) => {
                tracing::error!(%error, "cannot apply overrides; keeping the previous ones");
            }
        }
    }

    /// Whether all entries are to be read, changed or not.
    pub(in crate::shared) fn is_full_read_due(&self, now: Timestamp) -> bool {
        self.fully_read_at.is_none_or(|at| now.saturating_since(at) >= FULL_READ_INTERVAL)
    }

    /// Puts the overrides in Redis in force, which were asked for at this time, and applies the
    /// resets. Returns the overrides that Redis has lost, as after a failover. Until they are written
    /// again, each read is a full one.
    pub(in crate::shared) fn apply(
        &mut self,
        entries: &[SharedEntry],
        redis_ms: u64,
        asked_at: Timestamp,
        gate: &Gate<AnyStore>,
    ) -> Vec<OverrideRecord> {
        let now = gate.now();
        let offset_ms = clock_offset_ms(redis_ms, now);
        let lost = self.lost(entries, now, offset_ms);
        let (overrides, resets) = records(entries);
        self.clock_offset_ms = offset_ms;
        self.fully_read_at = None;
        self.replace(overrides.into_iter().chain(lost.iter().cloned()).collect(), gate);
        self.apply_resets(&resets, clock_offset_ms(redis_ms, asked_at), gate);
        if !lost.is_empty() {
            tracing::warn!(overrides = lost.len(), "Redis lost overrides; writing them again");
        }
        lost
    }

    /// Applies the resets done at other gateways that are new. They are dated by the clock as it was
    /// before the read, so they seem a little older than they are, never younger: what was spent
    /// since has to count.
    fn apply_resets(&mut self, resets: &[OverrideRecord], offset_ms: i64, gate: &Gate<AnyStore>) {
        let ids = resets.iter().map(|reset| reset.id.clone()).collect();
        let known = std::mem::replace(&mut self.resets, ids);
        let now_ms = gate.now().as_millis().saturating_add_signed(offset_ms);
        // This process has spent nothing before it began.
        let began_ms = self.began.as_millis().saturating_add_signed(offset_ms);
        let is_new = |reset: &&OverrideRecord| {
            !known.contains(&reset.id) && reset.created_ms + RESET_SLACK_MS >= began_ms
        };
        for reset in resets.iter().filter(is_new) {
            let ago = Duration::from_millis(now_ms.saturating_sub(reset.created_ms));
            for account in reset.target.accounts(&gate.policies()).unwrap_or_default() {
                if let Err(error) = gate.admin().forget(&account, ago) {
                    tracing::warn!(%account, %error, "cannot reset an account at this gateway");
                }
            }
        }
    }

    /// The overrides that Redis no longer has although they were not lifted, dated by its clock.
    fn lost(&self, entries: &[SharedEntry], now: Timestamp, offset_ms: i64) -> Vec<OverrideRecord> {
        if self.read_at.is_none_or(|read_at| now.saturating_since(read_at) >= LIFT_TTL) {
            return Vec::new();
        }
        let there: HashSet<&str> = entries.iter().map(|entry| &*entry.id).collect();
        let is_lost = |record: &&OverrideRecord| {
            let rest = self.gate_time(record.until_ms).saturating_since(now);
            !there.contains(&*record.id) && rest > CLOCK_TOLERANCE
        };
        let step_ms = offset_ms.saturating_sub(self.clock_offset_ms);
        let lost = self.overrides.iter().filter(is_lost).cloned();
        lost.map(|record| OverrideRecord {
            until_ms: record.until_ms.saturating_add_signed(step_ms),
            ..record
        })
        .collect()
    }
}

/// How far Redis's clock is ahead of the gate's.
fn clock_offset_ms(redis_ms: u64, gate: Timestamp) -> i64 {
    redis_ms.wrapping_sub(gate.as_millis()).cast_signed()
}

/// The overrides and the resets in Redis.
fn records(entries: &[SharedEntry]) -> (Vec<OverrideRecord>, Vec<OverrideRecord>) {
    let parse = |entry: &SharedEntry| OverrideRecord::parse(&entry.id, &entry.text, entry.until_ms);
    let records: Vec<OverrideRecord> = entries.iter().filter_map(parse).collect();
    let foreign = entries.len() - records.len();
    if foreign > 0 {
        tracing::warn!(foreign, "ignoring entries in Redis that are not overrides of this version");
    }
    let (resets, overrides): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.action == OperatorAction::Reset);
    let is_override = |record: &OverrideRecord| record.action != OperatorAction::Lift;
    (overrides.into_iter().filter(is_override).collect(), resets)
}
