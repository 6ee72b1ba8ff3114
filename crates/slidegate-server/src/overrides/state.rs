//! The overrides as last known, and how they are applied to the gate.

use std::collections::HashSet;
use std::error::Error as _;
use std::time::Duration;

use slidegate::policy::{Override, Overrides};
use slidegate::{Gate, Store, Timestamp};
use slidegate_redis::{MapVersion, SharedEntry, SharedMapError, SharedSnapshot};

use super::clock_offset::ClockOffset;
use super::record::{OperatorAction, OverrideRecord};

/// The overrides as last known.
#[derive(Debug)]
pub(super) struct OverrideState {
    pub(super) overrides: Vec<OverrideRecord>,
    pub(super) offset: ClockOffset,
    /// The version last read; `None` forces a full read.
    pub(super) seen: Option<MapVersion>,
    /// When it was last read.
    pub(super) read_at: Option<Timestamp>,
    /// Ids of the resets in Redis that were applied here.
    pub(super) resets: HashSet<String>,
    /// Whether the last read failed.
    pub(super) is_cut_off: bool,
}

/// How long a lift stays in Redis. A gateway that has read Redis within this time knows that a
/// missing override was lost, not lifted.
pub(super) const LIFT_TTL: Duration = Duration::from_secs(3600);
/// An override with no more left than this may have ended a moment early by Redis's clock.
const SHORT: Duration = Duration::from_secs(1);

impl OverrideState {
    /// Replaces the known overrides by those that were read, and returns the new resets.
    pub(super) fn take<S: Store>(
        &mut self,
        reading: &SharedSnapshot,
        gate: &Gate<S>,
    ) -> Vec<OverrideRecord> {
        self.offset = ClockOffset::new(gate.now(), reading.now_ms);
        self.seen = Some(reading.version);
        let read =
            |notice: &SharedEntry| OverrideRecord::read(&notice.id, &notice.text, notice.until_ms);
        let filed: Vec<OverrideRecord> = reading.entries.iter().filter_map(read).collect();
        let foreign = reading.entries.len() - filed.len();
        if foreign > 0 {
            tracing::warn!(
                foreign,
                "ignoring entries in Redis that are not overrides of this version"
            );
        }
        let is_override = |filed: &OverrideRecord| filed.override_action().is_some();
        let (overrides, others): (Vec<_>, Vec<_>) = filed.into_iter().partition(is_override);
        self.replace(overrides, gate);
        let resets: Vec<OverrideRecord> =
            others.into_iter().filter(|f| f.action == OperatorAction::Reset).collect();
        let known = std::mem::take(&mut self.resets);
        self.resets = resets.iter().map(|reset| reset.id.clone()).collect();
        resets.into_iter().filter(|reset| !known.contains(&reset.id)).collect()
    }

    /// Logs when Redis becomes unreadable and when it can be read again.
    pub(super) fn note_trouble(&mut self, error: Option<&SharedMapError>) {
        let was_cut_off = std::mem::replace(&mut self.is_cut_off, error.is_some());
        match error {
            Some(error) if !was_cut_off => tracing::warn!(
                %error,
                cause = error.source().map(tracing::field::display),
                "cannot read overrides from Redis; keeping those last read"
            ),
            None if was_cut_off => {
                tracing::info!("reading overrides from Redis again");
            }
            _ => {}
        }
    }

    /// The overrides that Redis no longer has although they were not lifted, with their remaining time.
    pub(super) fn lost(
        &self,
        reading: &SharedSnapshot,
        now: Timestamp,
    ) -> Vec<(OverrideRecord, Duration)> {
        let knows_lifts =
            self.read_at.is_some_and(|read_at| now.saturating_since(read_at) < LIFT_TTL);
        if !knows_lifts {
            return Vec::new();
        }
        let there: HashSet<&str> = reading.entries.iter().map(|notice| &*notice.id).collect();
        let rest =
            |record: &OverrideRecord| self.offset.gate_at(record.until_ms).saturating_since(now);
        let lost = self.overrides.iter().filter(|record| !there.contains(&*record.id));
        lost.map(|record| (record.clone(), rest(record)))
            .filter(|(_, rest)| *rest > SHORT)
            .collect()
    }

    pub(super) fn replace<S: Store>(&mut self, overrides: Vec<OverrideRecord>, gate: &Gate<S>) {
        self.overrides = overrides;
        self.apply(gate);
    }

    pub(super) fn apply<S: Store>(&self, gate: &Gate<S>) {
        let record = |filed: &OverrideRecord| {
            let (identity, policy) = (filed.target.identity, filed.target.policy.clone());
            let until = self.offset.gate_at(filed.until_ms);
            Some(Override { identity, policy, action: filed.override_action()?, until })
        };
        match Overrides::new(self.overrides.iter().filter_map(record)) {
            Ok(overrides) => gate.admin().replace_overrides(overrides),
            Err(error) => {
                tracing::error!(%error, "cannot apply overrides; keeping the previous ones");
            }
        }
    }

    /// Drops expired overrides and returns the current time in milliseconds.
    pub(super) fn forget_ended<S: Store>(&mut self, gate: &Gate<S>) -> u64 {
        let now_ms = self.offset.ms_at(gate.now());
        self.overrides.retain(|record| record.until_ms > now_ms);
        now_ms
    }
}

/// Removes an override by its id.
pub(super) fn take(overrides: &mut Vec<OverrideRecord>, id: &str) -> Option<OverrideRecord> {
    let index = overrides.iter().position(|record| record.id == id)?;
    Some(overrides.swap_remove(index))
}

pub(super) fn of_same_identity(
    overrides: &[OverrideRecord],
    record: &OverrideRecord,
) -> Vec<OverrideRecord> {
    let same = |other: &&OverrideRecord| other.target.identity == record.target.identity;
    overrides.iter().filter(same).cloned().collect()
}
