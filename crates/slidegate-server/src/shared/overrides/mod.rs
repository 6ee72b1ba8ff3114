//! The service behind the operator's overrides: creates, persists, applies and lifts them.
//!
//! Without Redis an override holds in this process, and after a restart if accounts are saved. With
//! Redis it is written there, and all gateways read it with their next exchange.

mod persistence;
mod record;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use slidegate::policy::{Action, Overrides};
use slidegate::{AccountError, Gate, Identity, Policies, Timestamp};
use slidegate_redis::{SharedState, SharedStateError};
use tokio::sync::Mutex;

pub(crate) use self::persistence::Persistence;
pub(crate) use self::record::{Actor, Expiry, OperatorAction, OverrideRecord, Target, window_text};
pub(super) use self::state::OverrideState;
use self::state::{LIFT_TTL, RESET_TTL};
use crate::api::{AccountsReset, OverrideCreated, OverrideLifted, OverrideList, OverrideView};
use crate::calendar::Rfc3339;
use crate::store::AnyStore;

/// Manages the overrides of one gate.
#[derive(Debug)]
pub(crate) struct OverrideService {
    gate: Arc<Gate<AnyStore>>,
    persistence: Persistence,
    state: Arc<Mutex<OverrideState>>,
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
    Redis(#[source] SharedStateError),
    #[error("cannot write the file of overrides; nothing was changed")]
    Disk(#[source] anyhow::Error),
    #[error("the store failed; the request can be repeated")]
    Account(#[from] AccountError),
}

// All that Redis can hold can be applied.
const _: () = assert!(SharedState::MAX_ENTRIES <= Overrides::MAX);

impl OverrideService {
    /// A service with the overrides of the file, if there is one; those in Redis are read by the
    /// exchange.
    pub(crate) fn open(
        gate: Arc<Gate<AnyStore>>,
        persistence: Persistence,
    ) -> anyhow::Result<Self> {
        let mut state = OverrideState::new(gate.now());
        if let Persistence::File(path) = &persistence {
            state.replace(persistence::read(path)?, &gate);
            crate::disk::try_writing(path)?;
        }
        let state = match &persistence {
            Persistence::Redis(exchange) => exchange.overrides.clone(),
            _ => Arc::new(Mutex::new(state)),
        };
        Ok(Self { gate, persistence, state })
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
        if state.read_at.is_none() {
            self.read(&mut state).await?;
        }
        let now_ms = state.drop_ended(&self.gate);
        let until_ms = expiry.end_ms(now_ms);
        let lasting = Duration::from_millis(until_ms.saturating_sub(now_ms));
        if lasting.is_zero() {
            return Err(OverrideError::Past { now_ms });
        }
        if lasting > SharedState::MAX_TTL {
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
        state.fully_read_at = None;
        self.read(&mut state).await?;
        let created_ms = state.now_ms(&self.gate);
        // Before the other gateways see the reset: what they then read from Redis is newer.
        for account in &accounts {
            self.gate.admin().reset(account).await?;
        }
        if let Persistence::Redis(exchange) = &self.persistence {
            exchange.lift_bans(&accounts).await?;
            let id = format!("reset-{:016x}", fastrand::u64(..));
            let action = OperatorAction::Reset;
            let record = OverrideRecord { id, action, target, actor, created_ms, until_ms: 0 };
            exchange.write(&record, RESET_TTL).await?;
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
        let stale = self.read(&mut state).await.is_err();
        let now_ms = state.drop_ended(&self.gate);
        let is_selected =
            |record: &&OverrideRecord| identity.is_none_or(|one| record.target.concerns(one));
        let mut records: Vec<_> = state.overrides.iter().filter(is_selected).collect();
        records.sort_by_key(|record| (record.until_ms, &record.id));
        let policies = self.gate.policies();
        let view = |record| OverrideView::at(now_ms, record, &policies);
        let overrides = records.into_iter().map(view).collect();
        OverrideList { overrides, stale }
    }

    /// The current time on the clock of the overrides.
    pub(crate) async fn now_ms(&self) -> u64 {
        self.state.lock().await.now_ms(&self.gate)
    }

    /// Brings the state up to date with Redis.
    async fn read(&self, state: &mut OverrideState) -> Result<(), SharedStateError> {
        match &self.persistence {
            Persistence::Redis(exchange) => exchange.exchange(state).await,
            _ => Ok(()),
        }
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
            Persistence::Redis(exchange) => Ok(exchange.write(record, lasting).await?),
            Persistence::File(path) => {
                let (path, overrides) = (path.clone(), overrides.to_vec());
                let write = move || persistence::write(&path, &overrides);
                let written = tokio::task::spawn_blocking(write).await;
                written.unwrap_or_else(|panicked| Err(panicked.into())).map_err(OverrideError::Disk)
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

impl From<SharedStateError> for OverrideError {
    fn from(error: SharedStateError) -> Self {
        match error {
            SharedStateError::Full => Self::Full,
            error => Self::Redis(error),
        }
    }
}
