//! Overrides that all gateways on one Redis share.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use slidegate::Timestamp;
use slidegate_redis::{SharedEntry, SharedMapError, SharedSnapshot};

use super::{OperatorAction, OverrideRecord, OverrideService, OverrideState, Persistence};

/// The poll interval: an override created at another gateway holds here after this and a round trip.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Every this many polls all entries are read again, in case one of the clocks drifts.
const POLLS_PER_FULL_READ: u32 = 240;
/// How long a reset stays in Redis. A gateway that cannot read it in this time keeps its local
/// ledgers, which is stricter, never looser.
pub(super) const RESET_TTL: Duration = Duration::from_secs(120);
/// A reset may be dated by an estimate of the server's clock.
const RESET_SLACK_MS: u64 = 1000;
/// How long a lift stays in Redis. A gateway that has read Redis within this time knows that a
/// missing override was lost, not lifted.
pub(super) const LIFT_TTL: Duration = Duration::from_secs(3600);
/// An override with no more left than this may have ended a moment early by Redis's clock.
const SHORT: Duration = Duration::from_secs(1);

impl OverrideService {
    /// Polls Redis, if overrides are shared, for the life of the process.
    pub(crate) async fn poll(self: Arc<Self>) {
        if !matches!(self.persistence, Persistence::SharedMap(_)) {
            return;
        }
        for poll in 1_u32.. {
            tokio::time::sleep(POLL_INTERVAL).await;
            if poll.is_multiple_of(POLLS_PER_FULL_READ) {
                self.state.lock().await.seen = None;
            }
            self.refresh().await;
        }
    }

    /// Reads the overrides from Redis, if they are shared.
    pub(crate) async fn refresh(&self) {
        // `read` has logged the error.
        let _ = self.read(&mut *self.state.lock().await).await;
    }

    /// Brings the state up to date with Redis, and Redis with the state if it has lost overrides,
    /// as after a failover.
    pub(super) async fn read(&self, state: &mut OverrideState) -> Result<(), SharedMapError> {
        let Persistence::SharedMap(map) = &self.persistence else { return Ok(()) };
        let asked_at = self.gate.now();
        let read = map.read(state.seen).await;
        state.outage.log_change(
            read.as_ref().err(),
            "cannot read overrides from Redis; keeping those last read",
            "reading overrides from Redis again",
        );
        let read_at = self.gate.now();
        if let Some(snapshot) = read? {
            let offset_ms = clock_offset_ms(snapshot.now_ms, read_at);
            let lost = state.lost(&snapshot, read_at, offset_ms);
            let (overrides, resets) = records(&snapshot);
            state.clock_offset_ms = offset_ms;
            // Until all that was lost is written again, the next read is a full one.
            state.seen = None;
            state.replace(overrides.into_iter().chain(lost.iter().cloned()).collect(), &self.gate);
            self.apply_resets(state, &resets, clock_offset_ms(snapshot.now_ms, asked_at));
            if !lost.is_empty() {
                tracing::warn!(overrides = lost.len(), "Redis lost overrides; writing them again");
            }
            for record in &lost {
                let rest = Duration::from_millis(record.until_ms.saturating_sub(snapshot.now_ms));
                map.insert(&record.id, &record.text(), rest).await?;
            }
            state.seen = Some(snapshot.version);
        }
        state.read_at = Some(read_at);
        Ok(())
    }

    /// Applies the resets done at other gateways that are new. They are dated by the clock as it was
    /// before the read, so they seem a little older than they are, never younger: what was spent
    /// since has to count.
    fn apply_resets(&self, state: &mut OverrideState, resets: &[OverrideRecord], offset_ms: i64) {
        let ids = resets.iter().map(|reset| reset.id.clone()).collect();
        let known = std::mem::replace(&mut state.resets, ids);
        let now_ms = self.gate.now().as_millis().saturating_add_signed(offset_ms);
        // This process has spent nothing before it began.
        let began_ms = self.began.as_millis().saturating_add_signed(offset_ms);
        let is_new = |reset: &&OverrideRecord| {
            !known.contains(&reset.id) && reset.created_ms + RESET_SLACK_MS >= began_ms
        };
        for reset in resets.iter().filter(is_new) {
            let ago = Duration::from_millis(now_ms.saturating_sub(reset.created_ms));
            for account in reset.target.accounts(&self.gate.policies()).unwrap_or_default() {
                if let Err(error) = self.gate.admin().forget(&account, ago) {
                    tracing::warn!(%account, %error, "cannot reset an account at this gateway");
                }
            }
        }
    }
}

impl OverrideState {
    /// The overrides that Redis no longer has although they were not lifted, dated by its clock.
    fn lost(
        &self,
        snapshot: &SharedSnapshot,
        now: Timestamp,
        offset_ms: i64,
    ) -> Vec<OverrideRecord> {
        if self.read_at.is_none_or(|read_at| now.saturating_since(read_at) >= LIFT_TTL) {
            return Vec::new();
        }
        let there: HashSet<&str> = snapshot.entries.iter().map(|entry| &*entry.id).collect();
        let is_lost = |record: &&OverrideRecord| {
            let rest = self.gate_time(record.until_ms).saturating_since(now);
            !there.contains(&*record.id) && rest > SHORT
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
fn records(snapshot: &SharedSnapshot) -> (Vec<OverrideRecord>, Vec<OverrideRecord>) {
    let parse = |entry: &SharedEntry| OverrideRecord::parse(&entry.id, &entry.text, entry.until_ms);
    let records: Vec<OverrideRecord> = snapshot.entries.iter().filter_map(parse).collect();
    let foreign = snapshot.entries.len() - records.len();
    if foreign > 0 {
        tracing::warn!(foreign, "ignoring entries in Redis that are not overrides of this version");
    }
    let (resets, overrides): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.action == OperatorAction::Reset);
    let is_override = |record: &OverrideRecord| record.action != OperatorAction::Lift;
    (overrides.into_iter().filter(is_override).collect(), resets)
}
