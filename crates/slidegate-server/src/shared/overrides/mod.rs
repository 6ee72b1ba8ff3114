//! The service behind the operator's overrides: creates, persists, applies and lifts them.
//!
//! Without Redis an override holds in this process, and after a restart if accounts are saved. With
//! Redis it is written to a map shared by all gateways, which each of them polls four times a
//! second. While Redis is unreachable, the overrides last read stay in force; if Redis has lost them
//! when it is back, they are written again.

mod persistence;
mod record;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use slidegate::policy::{Action, Override, Overrides};
use slidegate::{AccountError, Gate, Identity, Policies, Timestamp};
use slidegate_redis::{EventLogError, MapVersion, SharedMap, SharedMapError};
use tokio::sync::Mutex;

pub(crate) use self::persistence::Persistence;
pub(crate) use self::record::{Actor, Expiry, OperatorAction, OverrideRecord, Target, window_text};
use self::shared::{LIFT_TTL, RESET_TTL};
use super::bans::SharedBans;
use super::outage::Outage;
use crate::api::{AccountsReset, OverrideCreated, OverrideLifted, OverrideList, OverrideView};
use crate::calendar::Rfc3339;
use crate::store::AnyStore;

/// Manages the overrides of one gate.
#[derive(Debug)]
pub(crate) struct OverrideService {
    gate: Arc<Gate<AnyStore>>,
    persistence: Persistence,
    began: Timestamp,
    state: Mutex<OverrideState>,
    /// The policies' bans that gateways share: a reset lifts them at all gateways.
    bans: Option<Arc<SharedBans>>,
}

/// The overrides as last known.
#[derive(Debug, Default)]
struct OverrideState {
    overrides: Vec<OverrideRecord>,
    /// How far the clock of the overrides is ahead of the gate's. With Redis they are dated by its
    /// clock, which all gateways share; their own may be hours off.
    clock_offset_ms: i64,
    /// The version last read from Redis; `None` forces a full read.
    seen: Option<MapVersion>,
    /// When Redis was last read.
    read_at: Option<Timestamp>,
    /// Ids of the resets in Redis that were applied here.
    resets: HashSet<String>,
    outage: Outage,
}

/// Why an override could not be created or lifted, or an account not be reset.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OverrideError {
    #[error("there is no policy {policy:?}; there {known}")]
    UnknownPolicy { policy: String, known: String },
    #[error(
        "identity: expected one address: only a ban or an exemption under all policies can be of a \
         network"
    )]
    Network,
    #[error("there is no override {0:?} in force")]
    UnknownOverride(String),
    #[error("until: that time is over; it is {}", Rfc3339(Timestamp::from_millis(*.now_ms)))]
    Past { now_ms: u64 },
    #[error("until: expected a time within 366 days")]
    TooLong,
    #[error("there are {} overrides in force already: lift some of them first", Overrides::MAX)]
    Full,
    #[error("cannot write to Redis; the change may not be in effect and can be repeated")]
    SharedMap(#[source] SharedMapError),
    #[error("cannot write to Redis; the change may not be in effect and can be repeated")]
    Bans(#[from] EventLogError),
    #[error("cannot write the file of overrides; nothing was changed")]
    Disk(#[source] anyhow::Error),
    #[error("the store failed; the request can be repeated")]
    Account(#[from] AccountError),
}

// All that Redis can hold can be applied.
const _: () = assert!(SharedMap::MAX_ENTRIES <= Overrides::MAX);

impl OverrideService {
    /// A service with the overrides of the file, if there is one; those in Redis are read by
    /// [`refresh`](Self::refresh). Resets lift the bans that gateways share.
    pub(crate) fn open(
        gate: Arc<Gate<AnyStore>>,
        persistence: Persistence,
        bans: Option<Arc<SharedBans>>,
    ) -> anyhow::Result<Self> {
        let mut state = OverrideState::default();
        if let Persistence::File(path) = &persistence {
            state.replace(persistence::read(path)?, &gate);
            crate::disk::try_writing(path)?;
        }
        let (began, state) = (gate.now(), Mutex::new(state));
        Ok(Self { gate, persistence, began, state, bans })
    }

    pub(crate) fn gate(&self) -> &Arc<Gate<AnyStore>> {
        &self.gate
    }

    /// Creates an override, here and at all gateways on the same Redis.
    pub(crate) async fn create(
        &self,
        action: Action,
        target: Target,
        expiry: Expiry,
        actor: Actor,
    ) -> Result<OverrideCreated, OverrideError> {
        if target.policy.is_some() || matches!(action, Action::Grant { .. }) {
            target.accounts(&self.gate.policies())?;
        }
        let mut state = self.state.lock().await;
        // So that the override is dated by Redis's clock, not by this machine's.
        if state.seen.is_none() {
            self.read(&mut state).await?;
        }
        let now_ms = state.drop_ended(&self.gate);
        let until_ms = expiry.end_ms(now_ms);
        let lasting = Duration::from_millis(until_ms.saturating_sub(now_ms));
        if lasting.is_zero() {
            return Err(OverrideError::Past { now_ms });
        }
        if lasting > SharedMap::LONGEST {
            return Err(OverrideError::TooLong);
        }
        let record = OverrideRecord {
            id: OverrideRecord::id_of(action, &target),
            action: OperatorAction::Override(action),
            target,
            actor,
            created_ms: now_ms,
            until_ms,
        };
        let mut overrides = state.overrides.clone();
        let replaced = overrides.extract_if(.., |other| other.id == record.id).next();
        let policies = self.gate.policies();
        let view = |record: &OverrideRecord| OverrideView::at(now_ms, record, &policies);
        let is_other = |other: &&OverrideRecord| other.target.identity == record.target.identity;
        let created = OverrideCreated {
            created: view(&record),
            replaced: replaced.as_ref().map(view),
            others: overrides.iter().filter(is_other).map(view).collect(),
        };
        overrides.push(record.clone());
        if overrides.len() > Overrides::MAX {
            return Err(OverrideError::Full);
        }
        self.persist(&record, lasting, &overrides).await?;
        state.replace(overrides, &self.gate);
        Ok(created)
    }

    /// Ends an override early.
    pub(crate) async fn lift(
        &self,
        id: &str,
        actor: Actor,
    ) -> Result<OverrideLifted, OverrideError> {
        let mut state = self.state.lock().await;
        // Another gateway may have created it just now.
        let _ = self.read(&mut state).await;
        let now_ms = state.drop_ended(&self.gate);
        let mut overrides = state.overrides.clone();
        let lifted = overrides.extract_if(.., |record| record.id == id).next();
        let lifted = lifted.ok_or_else(|| OverrideError::UnknownOverride(id.to_owned()))?;
        let reason = actor.reason.clone();
        let note = OverrideRecord { action: OperatorAction::Lift, actor, ..lifted.clone() };
        let lasting = LIFT_TTL.min(Duration::from_millis(lifted.until_ms - now_ms));
        self.persist(&note, lasting, &overrides).await?;
        state.replace(overrides, &self.gate);
        let lifted = OverrideView::at(now_ms, &lifted, &self.gate.policies());
        Ok(OverrideLifted { lifted, reason })
    }

    /// Resets the ledgers of accounts, here at once and at other gateways with their next poll.
    pub(crate) async fn reset(
        &self,
        target: Target,
        actor: Actor,
    ) -> Result<AccountsReset, OverrideError> {
        let policies = self.gate.policies();
        let accounts = target.accounts(&policies)?;
        let mut reset = AccountsReset {
            reset: policies.shown(&target.identity).into_owned(),
            policies: accounts.iter().map(|account| account.policy.to_string()).collect(),
            nothing_spent: Vec::new(),
            reason: actor.reason.clone(),
        };
        for account in &accounts {
            // One that cannot be read, such as a key of another type in Redis, may have something
            // to forget: a reset is the remedy for it.
            if let Ok(true) = self.gate.admin().is_untouched(account).await {
                reset.nothing_spent.push(account.policy.to_string());
            }
        }
        let mut state = self.state.lock().await;
        // A full read, so that the reset gets an exact date, and fails before anything is reset if
        // Redis is unreachable.
        state.seen = None;
        self.read(&mut state).await?;
        let created_ms = state.now_ms(&self.gate);
        // Before the other gateways see the reset: what they then read from Redis is newer.
        for account in &accounts {
            self.gate.admin().reset(account).await?;
        }
        if let Some(bans) = &self.bans {
            bans.lift(&accounts).await?;
        }
        if let Persistence::SharedMap(map) = &self.persistence {
            let id = format!("reset-{:016x}", fastrand::u64(..));
            let action = OperatorAction::Reset;
            let record = OverrideRecord { id, action, target, actor, created_ms, until_ms: 0 };
            map.insert(&record.id, &record.text(), RESET_TTL).await?;
            state.resets.insert(record.id);
        }
        Ok(reset)
    }

    /// An override, if it is in force here.
    pub(crate) async fn find(&self, id: &str) -> Option<OverrideView> {
        let state = self.state.lock().await;
        let record = state.overrides.iter().find(|record| record.id == id)?;
        Some(OverrideView::at(state.now_ms(&self.gate), record, &self.gate.policies()))
    }

    /// The overrides in force, by their end: all, or those that concern an identity.
    pub(crate) async fn list(&self, identity: Option<&Identity>) -> OverrideList {
        let mut state = self.state.lock().await;
        let _ = self.read(&mut state).await;
        let now_ms = state.drop_ended(&self.gate);
        let is_wanted =
            |record: &&OverrideRecord| identity.is_none_or(|one| record.target.concerns(one));
        let mut records: Vec<_> = state.overrides.iter().filter(is_wanted).collect();
        records.sort_by_key(|record| (record.until_ms, &record.id));
        let policies = self.gate.policies();
        let view = |record| OverrideView::at(now_ms, record, &policies);
        let overrides = records.into_iter().map(view).collect();
        OverrideList { overrides, stale: state.outage.is_on() }
    }

    /// The current time on the clock of the overrides.
    pub(crate) async fn now_ms(&self) -> u64 {
        self.state.lock().await.now_ms(&self.gate)
    }

    /// Writes a record to Redis, or all overrides to the file.
    async fn persist(
        &self,
        record: &OverrideRecord,
        lasting: Duration,
        overrides: &[OverrideRecord],
    ) -> Result<(), OverrideError> {
        match &self.persistence {
            Persistence::Process => Ok(()),
            Persistence::SharedMap(map) => {
                Ok(map.insert(&record.id, &record.text(), lasting).await?)
            }
            Persistence::File(path) => {
                let (path, overrides) = (path.clone(), overrides.to_vec());
                let write = move || persistence::write(&path, &overrides);
                let written = tokio::task::spawn_blocking(write).await;
                written.unwrap_or_else(|panicked| Err(panicked.into())).map_err(OverrideError::Disk)
            }
        }
    }
}

impl OverrideState {
    fn now_ms(&self, gate: &Gate<AnyStore>) -> u64 {
        gate.now().as_millis().saturating_add_signed(self.clock_offset_ms)
    }

    /// A time of the overrides' clock on the gate's.
    fn gate_time(&self, ms: u64) -> Timestamp {
        Timestamp::from_millis(ms.saturating_add_signed(self.clock_offset_ms.saturating_neg()))
    }

    /// Drops expired overrides and returns the current time on their clock.
    fn drop_ended(&mut self, gate: &Gate<AnyStore>) -> u64 {
        let now_ms = self.now_ms(gate);
        self.overrides.retain(|record| record.until_ms > now_ms);
        now_ms
    }

    /// Puts these overrides in force.
    fn replace(&mut self, overrides: Vec<OverrideRecord>, gate: &Gate<AnyStore>) {
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
}

impl OverrideError {
    pub(crate) fn unknown_policy(policy: &str, policies: &Policies) -> Self {
        let names: Vec<&str> = policies.names().map(|name| &**name).collect();
        let known = match names.is_empty() {
            true => "are none".to_owned(),
            false => format!("is {}", names.join(", ")),
        };
        Self::UnknownPolicy { policy: policy.to_owned(), known }
    }
}

impl From<SharedMapError> for OverrideError {
    fn from(error: SharedMapError) -> Self {
        match error {
            SharedMapError::Full => Self::Full,
            error => Self::SharedMap(error),
        }
    }
}
