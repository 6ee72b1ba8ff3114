//! The service behind the operator's overrides: creates, persists, applies and lifts them.
//!
//! Without Redis an override holds in this process, and after a restart if accounts are saved. With
//! Redis it is written to a map shared by all gateways, which each of them polls four times a
//! second. While Redis is unreachable, the overrides last read stay in force; if Redis has lost them
//! when it is back, they are written again.

mod accounts;
mod clock_offset;
mod error;
mod expiry;
mod persistence;
mod record;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::quality::RandomState;
use slidegate::policy::{Action, Overrides};
use slidegate::{Account, Gate, Name, Store, Timestamp};
use slidegate_redis::{SharedMap, SharedMapError};
use tokio::sync::Mutex;

use self::clock_offset::ClockOffset;
pub(crate) use self::error::OverrideError;
pub(crate) use self::expiry::Expiry;
pub(crate) use self::persistence::Persistence;
pub(crate) use self::record::{Actor, OperatorAction, OverrideRecord, Target};
use self::state::{LIFT_TTL, OverrideState, of_same_identity, take};
use crate::shared_bans::SharedBans;

/// Manages the overrides of one gate.
#[derive(Debug)]
pub(crate) struct OverrideService<S> {
    gate: Arc<Gate<S>>,
    persistence: Persistence,
    began: Timestamp,
    state: Mutex<OverrideState>,
    /// Makes ids of resets, unique among gateways.
    numbers: (RandomState, AtomicU64),
    /// The policies' bans that gateways share: a reset lifts them at all gateways.
    bans: Option<Arc<SharedBans<S>>>,
}

/// The result of creating an override.
#[derive(Debug)]
pub(crate) struct CreatedOverride {
    pub(crate) record: OverrideRecord,
    /// The override it replaced.
    pub(crate) replaced: Option<OverrideRecord>,
    /// The identity's other overrides in force.
    pub(crate) others: Vec<OverrideRecord>,
}

/// A reset that was done.
#[derive(Debug)]
pub(crate) struct ResetDone {
    /// The policies whose accounts were reset.
    pub(crate) policies: Vec<Name>,
    /// Those of them under which the account had spent nothing.
    pub(crate) untouched: Vec<Name>,
}

/// The overrides in force.
#[derive(Debug)]
pub(crate) struct ActiveOverrides {
    pub(crate) overrides: Vec<OverrideRecord>,
    /// The current time on the clock of the overrides.
    pub(crate) now_ms: u64,
    /// Whether there may be others because Redis is unreachable.
    pub(crate) is_cut_off: bool,
}

/// The poll interval: an override created at another gateway holds here after this and a round trip.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Every this many polls all entries are read again, in case one of the clocks drifts.
const POLLS_PER_FULL_READ: u32 = 240;
/// How long a reset stays in Redis. A gateway that cannot read it in this time keeps its local
/// ledgers, which is stricter, never looser.
const RESET_TTL: Duration = Duration::from_secs(120);
/// A reset may be dated by an estimate of the server's clock.
const SLACK_MS: u64 = 1000;

impl<S: Store> OverrideService<S> {
    /// A service with the overrides of the file, if there is one; those in Redis are read by
    /// [`refresh`](Self::refresh).
    pub(crate) fn open(gate: Arc<Gate<S>>, persistence: Persistence) -> anyhow::Result<Self> {
        let began = gate.now();
        let overrides = match &persistence {
            Persistence::File(path) => {
                let overrides = persistence::read(path)?;
                crate::disk::try_writing(path)?;
                overrides
            }
            Persistence::Process | Persistence::SharedMap(_) => Vec::new(),
        };
        let state = OverrideState {
            overrides,
            offset: ClockOffset::of_gate(began),
            seen: None,
            read_at: None,
            resets: HashSet::new(),
            is_cut_off: false,
        };
        state.apply(&gate);
        let numbers = (RandomState::default(), AtomicU64::new(0));
        Ok(Self { gate, persistence, began, state: Mutex::new(state), numbers, bans: None })
    }

    /// Makes resets lift the bans that gateways share.
    pub(crate) fn sharing_bans(self, bans: Option<Arc<SharedBans<S>>>) -> Self {
        Self { bans, ..self }
    }

    pub(crate) fn gate(&self) -> &Arc<Gate<S>> {
        &self.gate
    }

    /// Creates an override, here and at all gateways on the same Redis.
    pub(crate) async fn create(
        &self,
        action: Action,
        target: Target,
        until: Expiry,
        actor: Actor,
    ) -> Result<CreatedOverride, OverrideError> {
        self.check(&target)?;
        let is_for_one = target.policy.is_some() || matches!(action, Action::Grant(_));
        if is_for_one && !accounts::are_there(&self.gate.policies(), &target) {
            return Err(OverrideError::Network);
        }
        let mut state = self.state.lock().await;
        self.sync_clock(&mut state).await?;
        let now_ms = state.forget_ended(&self.gate);
        let lasting = until.lasting(now_ms)?;
        let lasting_ms = u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX);
        let record = OverrideRecord {
            id: OverrideRecord::id_of(action, &target),
            action: OperatorAction::Override(action),
            target,
            actor,
            created_ms: now_ms,
            until_ms: now_ms.saturating_add(lasting_ms),
        };
        let mut overrides = state.overrides.clone();
        let replaced = take(&mut overrides, &record.id);
        let others = of_same_identity(&overrides, &record);
        overrides.push(record.clone());
        if overrides.len() > Overrides::MAX {
            return Err(OverrideError::Full);
        }
        match &self.persistence {
            Persistence::SharedMap(map) => map.insert(&record.id, &record.text(), lasting).await?,
            _ => self.keep(&overrides).await?,
        }
        state.replace(overrides, &self.gate);
        Ok(CreatedOverride { record, replaced, others })
    }

    /// Ends an override early.
    pub(crate) async fn lift(
        &self,
        id: &str,
        actor: Actor,
    ) -> Result<OverrideRecord, OverrideError> {
        let mut state = self.state.lock().await;
        // Another gateway may have created it just now.
        let _ = self.read(&mut state).await;
        let now_ms = state.forget_ended(&self.gate);
        let mut overrides = state.overrides.clone();
        let lifted = take(&mut overrides, id)
            .ok_or_else(|| OverrideError::UnknownOverride(id.to_owned()))?;
        match &self.persistence {
            Persistence::SharedMap(map) => {
                let note = OverrideRecord { action: OperatorAction::Lift, actor, ..lifted.clone() };
                let lasting = LIFT_TTL.min(Duration::from_millis(lifted.until_ms - now_ms));
                map.insert(id, &note.text(), lasting).await?;
            }
            _ => self.keep(&overrides).await?,
        }
        state.replace(overrides, &self.gate);
        Ok(lifted)
    }

    /// An override, if it is in force here.
    pub(crate) async fn find(&self, id: &str) -> Option<OverrideRecord> {
        self.state.lock().await.overrides.iter().find(|record| record.id == id).cloned()
    }

    /// The overrides in force, by their end.
    pub(crate) async fn active(&self) -> ActiveOverrides {
        let mut state = self.state.lock().await;
        let _ = self.read(&mut state).await;
        let now_ms = state.forget_ended(&self.gate);
        let mut overrides = state.overrides.clone();
        overrides.sort_by(|a, b| (a.until_ms, &a.id).cmp(&(b.until_ms, &b.id)));
        ActiveOverrides { overrides, now_ms, is_cut_off: state.is_cut_off }
    }

    /// The current time on the clock of the overrides.
    pub(crate) async fn now_ms(&self) -> u64 {
        self.state.lock().await.offset.ms_at(self.gate.now())
    }

    /// Resets the ledgers of accounts, here at once and at other gateways with their next poll.
    pub(crate) async fn reset(
        &self,
        target: Target,
        actor: Actor,
    ) -> Result<ResetDone, OverrideError> {
        self.check(&target)?;
        let policies = self.gate.policies();
        if !accounts::are_there(&policies, &target) {
            return Err(OverrideError::Network);
        }
        let accounts = accounts::of(&policies, &target);
        let untouched = self.untouched(&accounts).await;
        if let Persistence::SharedMap(map) = &self.persistence {
            let mut state = self.state.lock().await;
            // A full read, so that the reset gets an exact date, and fails before anything is
            // reset if Redis is unreachable.
            state.seen = None;
            self.read(&mut state).await?;
            let created_ms = state.forget_ended(&self.gate);
            let (id, action) = (self.new_reset_id(), OperatorAction::Reset);
            let reset = OverrideRecord { id, action, target, actor, created_ms, until_ms: 0 };
            // Before the other gateways see the reset: what they then read from Redis is newer.
            self.reset_all(&accounts).await?;
            if let Some(bans) = &self.bans {
                bans.lift(&accounts).await?;
            }
            map.insert(&reset.id, &reset.text(), RESET_TTL).await?;
            state.resets.insert(reset.id);
        } else {
            self.reset_all(&accounts).await?;
        }
        let policies = accounts.into_iter().map(|account| account.policy).collect();
        Ok(ResetDone { policies, untouched })
    }

    /// The policies of the accounts that have nothing to forget. An account that cannot be read,
    /// such as a key of another type in Redis, may have something: a reset is the remedy for it.
    async fn untouched(&self, accounts: &[Account]) -> Vec<Name> {
        let mut untouched = Vec::new();
        for account in accounts {
            if self.gate.admin().is_untouched(account).await.is_ok_and(|is_untouched| is_untouched)
            {
                untouched.push(account.policy.clone());
            }
        }
        untouched
    }

    async fn reset_all(&self, accounts: &[Account]) -> Result<(), OverrideError> {
        for account in accounts {
            self.gate.admin().reset(account).await?;
        }
        Ok(())
    }

    /// Polls Redis, if overrides are shared, for the life of the process.
    pub(crate) async fn poll(self: Arc<Self>) {
        if !matches!(self.persistence, Persistence::SharedMap(_)) {
            return;
        }
        for reading in 1_u32.. {
            tokio::time::sleep(POLL_INTERVAL).await;
            if reading.is_multiple_of(POLLS_PER_FULL_READ) {
                self.state.lock().await.seen = None;
            }
            self.refresh().await;
        }
    }

    /// Reads the shared overrides, if there are any.
    pub(crate) async fn refresh(&self) {
        let mut state = self.state.lock().await;
        // `read` has logged the error.
        let _ = self.read(&mut state).await;
    }

    fn check(&self, target: &Target) -> Result<(), OverrideError> {
        let policies = self.gate.policies();
        let Some(policy) = &target.policy else { return Ok(()) };
        if policies.names().any(|name| name == policy) {
            return Ok(());
        }
        let known = policies.names().map(ToString::to_string).collect();
        Err(OverrideError::UnknownPolicy { policy: policy.to_string(), known })
    }

    /// Ensures that overrides are dated by Redis's clock, not by this machine's.
    async fn sync_clock(&self, state: &mut OverrideState) -> Result<(), OverrideError> {
        match state.seen {
            None => Ok(self.read(state).await?),
            Some(_) => Ok(()),
        }
    }

    async fn read(&self, state: &mut OverrideState) -> Result<(), SharedMapError> {
        let Persistence::SharedMap(map) = &self.persistence else { return Ok(()) };
        let asked = self.gate.now();
        let read = map.read(state.seen).await;
        state.note_trouble(read.as_ref().err());
        let reading = read?;
        let now = self.gate.now();
        if let Some(reading) = reading {
            let lost = state.lost(&reading, now);
            let resets = state.take(&reading, &self.gate);
            self.apply_resets(resets, ClockOffset::new(asked, reading.now_ms));
            self.restore(lost, state, map).await?;
        }
        state.read_at = Some(now);
        Ok(())
    }

    /// Writes overrides again that Redis has lost, as after a failover.
    async fn restore(
        &self,
        lost: Vec<(OverrideRecord, Duration)>,
        state: &mut OverrideState,
        map: &SharedMap,
    ) -> Result<(), SharedMapError> {
        if lost.is_empty() {
            return Ok(());
        }
        tracing::warn!(overrides = lost.len(), "Redis lost overrides; writing them again");
        let now_ms = state.offset.ms_at(self.gate.now());
        let mut overrides = state.overrides.clone();
        for (record, lasting) in &lost {
            let until_ms = now_ms + u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX);
            overrides.push(OverrideRecord { until_ms, ..record.clone() });
        }
        state.replace(overrides, &self.gate);
        // Expiry all of them are there, what is missing is looked for again.
        let seen = state.seen.take();
        for (record, lasting) in &lost {
            map.insert(&record.id, &record.text(), *lasting).await?;
        }
        state.seen = seen;
        Ok(())
    }

    /// Applies the resets done at other gateways. The offset is that of the moment before the read,
    /// so resets seem a little older than they are, never younger: what was spent since has to
    /// count.
    fn apply_resets(&self, resets: Vec<OverrideRecord>, offset: ClockOffset) {
        let began_ms = offset.ms_at(self.began);
        // This process has spent nothing before it began.
        let own_time =
            |reset: &OverrideRecord| reset.created_ms.saturating_add(SLACK_MS) >= began_ms;
        for reset in resets.into_iter().filter(own_time) {
            let now_ms = offset.ms_at(self.gate.now());
            let ago = Duration::from_millis(now_ms.saturating_sub(reset.created_ms));
            for account in accounts::of(&self.gate.policies(), &reset.target) {
                if let Err(error) = self.gate.admin().forget(&account, ago) {
                    tracing::warn!(%account, %error, "cannot reset an account at this gateway");
                }
            }
        }
    }

    /// Writes the overrides to the file, on a blocking thread.
    async fn keep(&self, overrides: &[OverrideRecord]) -> Result<(), OverrideError> {
        let Persistence::File(path) = &self.persistence else { return Ok(()) };
        let (path, overrides) = (path.clone(), overrides.to_vec());
        let written =
            tokio::task::spawn_blocking(move || persistence::write(&path, &overrides)).await;
        written.unwrap_or_else(|panicked| Err(panicked.into())).map_err(OverrideError::Disk)
    }

    fn new_reset_id(&self) -> String {
        let (hasher, numbers) = &self.numbers;
        let number = hasher.hash_one(numbers.fetch_add(1, Ordering::Relaxed));
        format!("reset-{}", record::hex(&number.to_be_bytes()))
    }
}

// All that Redis can hold can be applied.
const _: () = assert!(SharedMap::MOST <= Overrides::MAX);
