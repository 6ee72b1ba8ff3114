//! Where an operator's orders are taken: given, kept, put in force, lifted.
//!
//! Without Redis an order holds in this process, and in its next life if accounts are saved. With
//! Redis it is put on a board, which every gateway reads four times a second: whatever one of them
//! is told, all of them do. While Redis is gone, the orders that were last read stay in force, and
//! if it has forgotten them when it is back, it is told again.

mod accounts;
mod almanac;
mod error;
mod filed;
mod files;
mod place;
#[cfg(test)]
mod tests;
mod until;

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::quality::RandomState;
use slidegate::policy::{Measure, Orders};
use slidegate::{Account, Gate, Name, Store, Timestamp};
use slidegate_redis::{SharedMap, SharedMapError};
use tokio::sync::Mutex;

use self::almanac::Almanac;
pub(crate) use self::error::DeskError;
pub(crate) use self::filed::{Action, Filed, Motive, Target};
use self::files::{Files, LIFT_LASTS, of_the_same, take};
pub(crate) use self::place::Place;
pub(crate) use self::until::Until;
use crate::shared_bans::SharedBans;

/// Takes the orders for one gate.
#[derive(Debug)]
pub(crate) struct Desk<S> {
    gate: Arc<Gate<S>>,
    place: Place,
    began: Timestamp,
    files: Mutex<Files>,
    /// For the names of resets, which no two gateways may share.
    numbers: (RandomState, AtomicU64),
    /// Where bans are shared that policies begin: a reset lifts them at all gateways.
    bans: Option<Arc<SharedBans<S>>>,
}

/// An order that was taken.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) order: Filed,
    /// The one whose place it took.
    pub(crate) replaced: Option<Filed>,
    /// What else is in force for the same identity.
    pub(crate) others: Vec<Filed>,
}

/// A reset that was done.
#[derive(Debug)]
pub(crate) struct ResetDone {
    /// The policies whose accounts were reset.
    pub(crate) policies: Vec<Name>,
    /// Those of them under which this gateway found nothing to forget.
    pub(crate) untouched: Vec<Name>,
}

/// The orders in force.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) orders: Vec<Filed>,
    /// The present, by the clock that they are dated by.
    pub(crate) now_ms: u64,
    /// Whether there may be others, because Redis cannot be asked.
    pub(crate) is_cut_off: bool,
}

/// How often the board is read: an order given to another gateway holds here after this and a
/// round trip.
const PAUSE: Duration = Duration::from_millis(250);
/// After so many readings the board is read as if for the first time, in case one of the clocks
/// runs faster than the other.
const READINGS_BETWEEN_WHOLE_ONES: u32 = 240;
/// For how long a reset is on the board. A gateway that cannot read it in this time keeps what it
/// knows, which is stricter, never looser.
const RESET_LASTS: Duration = Duration::from_secs(120);
/// A reset may be dated by an estimate of the server's clock.
const SLACK_MS: u64 = 1000;

impl<S: Store> Desk<S> {
    /// A desk with the orders that were kept in a file, if they were; those of a board are read by
    /// [`look`](Self::look).
    pub(crate) fn open(gate: Arc<Gate<S>>, place: Place) -> anyhow::Result<Self> {
        let began = gate.now();
        let orders = match &place {
            Place::File(path) => {
                let orders = place::read(path)?;
                crate::disk::try_writing(path)?;
                orders
            }
            Place::Here | Place::SharedMap(_) => Vec::new(),
        };
        let files = Files {
            orders,
            almanac: Almanac::of_gate(began),
            seen: None,
            read_at: None,
            resets: HashSet::new(),
            is_cut_off: false,
        };
        files.put_in_force(&gate);
        let numbers = (RandomState::default(), AtomicU64::new(0));
        Ok(Self { gate, place, began, files: Mutex::new(files), numbers, bans: None })
    }

    /// Lifts bans at all gateways that share them, if they do.
    pub(crate) fn sharing_bans(self, bans: Option<Arc<SharedBans<S>>>) -> Self {
        Self { bans, ..self }
    }

    pub(crate) fn gate(&self) -> &Arc<Gate<S>> {
        &self.gate
    }

    /// Takes an order, here and for all who share the board.
    pub(crate) async fn give(
        &self,
        measure: Measure,
        target: Target,
        until: Until,
        motive: Motive,
    ) -> Result<Given, DeskError> {
        self.check(&target)?;
        let is_for_one = target.policy.is_some() || matches!(measure, Measure::Grant(_));
        if is_for_one && !accounts::are_there(&self.gate.policies(), &target) {
            return Err(DeskError::Network);
        }
        let mut files = self.files.lock().await;
        self.know_the_time(&mut files).await?;
        let now_ms = files.forget_ended(&self.gate);
        let lasting = until.lasting(now_ms)?;
        let lasting_ms = u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX);
        let order = Filed {
            id: Filed::id_of(measure, &target),
            action: Action::Order(measure),
            target,
            motive,
            given_ms: now_ms,
            until_ms: now_ms.saturating_add(lasting_ms),
        };
        let mut orders = files.orders.clone();
        let replaced = take(&mut orders, &order.id);
        let others = of_the_same(&orders, &order);
        orders.push(order.clone());
        if orders.len() > Orders::MAX {
            return Err(DeskError::Full);
        }
        match &self.place {
            Place::SharedMap(map) => map.insert(&order.id, &order.text(), lasting).await?,
            _ => self.keep(&orders).await?,
        }
        files.replace(orders, &self.gate);
        Ok(Given { order, replaced, others })
    }

    /// Ends an order before its time.
    pub(crate) async fn lift(&self, id: &str, motive: Motive) -> Result<Filed, DeskError> {
        let mut files = self.files.lock().await;
        // Another gateway may have taken it just now.
        let _ = self.read(&mut files).await;
        let now_ms = files.forget_ended(&self.gate);
        let mut orders = files.orders.clone();
        let lifted = take(&mut orders, id).ok_or_else(|| DeskError::UnknownOrder(id.to_owned()))?;
        match &self.place {
            Place::SharedMap(map) => {
                let note = Filed { action: Action::Lift, motive, ..lifted.clone() };
                let lasting = LIFT_LASTS.min(Duration::from_millis(lifted.until_ms - now_ms));
                map.insert(id, &note.text(), lasting).await?;
            }
            _ => self.keep(&orders).await?,
        }
        files.replace(orders, &self.gate);
        Ok(lifted)
    }

    /// An order, if it is in force here.
    pub(crate) async fn find(&self, id: &str) -> Option<Filed> {
        self.files.lock().await.orders.iter().find(|order| order.id == id).cloned()
    }

    /// The orders in force, those that end first coming first.
    pub(crate) async fn in_force(&self) -> InForce {
        let mut files = self.files.lock().await;
        let _ = self.read(&mut files).await;
        let now_ms = files.forget_ended(&self.gate);
        let mut orders = files.orders.clone();
        orders.sort_by(|a, b| (a.until_ms, &a.id).cmp(&(b.until_ms, &b.id)));
        InForce { orders, now_ms, is_cut_off: files.is_cut_off }
    }

    /// The present, by the clock that orders are dated by.
    pub(crate) async fn now_ms(&self) -> u64 {
        self.files.lock().await.almanac.ms_at(self.gate.now())
    }

    /// Forgets what accounts have spent, here at once and at the other gateways when they read of
    /// it.
    pub(crate) async fn reset(
        &self,
        target: Target,
        motive: Motive,
    ) -> Result<ResetDone, DeskError> {
        self.check(&target)?;
        let policies = self.gate.policies();
        if !accounts::are_there(&policies, &target) {
            return Err(DeskError::Network);
        }
        let accounts = accounts::of(&policies, &target);
        let untouched = self.untouched(&accounts).await;
        if let Place::SharedMap(map) = &self.place {
            let mut files = self.files.lock().await;
            // All of it, so that the reset is dated as exactly as can be, and if Redis is gone,
            // nothing is done.
            files.seen = None;
            self.read(&mut files).await?;
            let given_ms = files.forget_ended(&self.gate);
            let (id, action) = (self.name_a_reset(), Action::Reset);
            let reset = Filed { id, action, target, motive, given_ms, until_ms: 0 };
            // Before the others are told: what they hear from Redis then is no older.
            self.reset_all(&accounts).await?;
            if let Some(bans) = &self.bans {
                bans.lift(&accounts).await?;
            }
            map.insert(&reset.id, &reset.text(), RESET_LASTS).await?;
            files.resets.insert(reset.id);
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
            if self.gate.is_untouched(account).await.is_ok_and(|is_untouched| is_untouched) {
                untouched.push(account.policy.clone());
            }
        }
        untouched
    }

    async fn reset_all(&self, accounts: &[Account]) -> Result<(), DeskError> {
        for account in accounts {
            self.gate.reset(account).await?;
        }
        Ok(())
    }

    /// Reads the board, if there is one, for as long as the process lives.
    pub(crate) async fn attend(self: Arc<Self>) {
        if !matches!(self.place, Place::SharedMap(_)) {
            return;
        }
        for reading in 1_u32.. {
            tokio::time::sleep(PAUSE).await;
            if reading.is_multiple_of(READINGS_BETWEEN_WHOLE_ONES) {
                self.files.lock().await.seen = None;
            }
            self.look().await;
        }
    }

    /// Reads the board, if there is one.
    pub(crate) async fn look(&self) {
        let mut files = self.files.lock().await;
        // Whoever reads says so if it cannot be done.
        let _ = self.read(&mut files).await;
    }

    fn check(&self, target: &Target) -> Result<(), DeskError> {
        let policies = self.gate.policies();
        let Some(policy) = &target.policy else { return Ok(()) };
        if policies.names().any(|name| name == policy) {
            return Ok(());
        }
        let known = policies.names().map(ToString::to_string).collect();
        Err(DeskError::UnknownPolicy { policy: policy.to_string(), known })
    }

    /// Makes sure that orders are dated by the board's clock, not by this machine's.
    async fn know_the_time(&self, files: &mut Files) -> Result<(), DeskError> {
        match files.seen {
            None => Ok(self.read(files).await?),
            Some(_) => Ok(()),
        }
    }

    async fn read(&self, files: &mut Files) -> Result<(), SharedMapError> {
        let Place::SharedMap(map) = &self.place else { return Ok(()) };
        let asked = self.gate.now();
        let read = map.read(files.seen).await;
        files.note_trouble(read.as_ref().err());
        let reading = read?;
        let now = self.gate.now();
        if let Some(reading) = reading {
            let lost = files.lost(&reading, now);
            let resets = files.take(&reading, &self.gate);
            self.follow(resets, Almanac::new(asked, reading.now_ms));
            self.restore(lost, files, map).await?;
        }
        files.read_at = Some(now);
        Ok(())
    }

    /// Puts orders on the board again that Redis has lost, as after a failover.
    async fn restore(
        &self,
        lost: Vec<(Filed, Duration)>,
        files: &mut Files,
        map: &SharedMap,
    ) -> Result<(), SharedMapError> {
        if lost.is_empty() {
            return Ok(());
        }
        tracing::warn!(orders = lost.len(), "Redis has lost operator's orders: it is told again");
        let now_ms = files.almanac.ms_at(self.gate.now());
        let mut orders = files.orders.clone();
        for (order, lasting) in &lost {
            let until_ms = now_ms + u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX);
            orders.push(Filed { until_ms, ..order.clone() });
        }
        files.replace(orders, &self.gate);
        // Until all of them are there, what is missing is looked for again.
        let seen = files.seen.take();
        for (order, lasting) in &lost {
            map.insert(&order.id, &order.text(), *lasting).await?;
        }
        files.seen = seen;
        Ok(())
    }

    /// Does here what is left to do of the resets that others were told to do. The almanac is of
    /// when the board was asked, so that they seem a little older than they are, never younger:
    /// what was spent since they were done has to count.
    fn follow(&self, resets: Vec<Filed>, almanac: Almanac) {
        let began_ms = almanac.ms_at(self.began);
        // What was reset before this process began is nothing that it could know.
        let own_time = |reset: &Filed| reset.given_ms.saturating_add(SLACK_MS) >= began_ms;
        for reset in resets.into_iter().filter(own_time) {
            let now_ms = almanac.ms_at(self.gate.now());
            let ago = Duration::from_millis(now_ms.saturating_sub(reset.given_ms));
            for account in accounts::of(&self.gate.policies(), &reset.target) {
                if let Err(error) = self.gate.forget(&account, ago) {
                    tracing::warn!(%account, %error, "an account could not be reset here");
                }
            }
        }
    }

    /// Writes the orders down, on a thread that may wait for the disk.
    async fn keep(&self, orders: &[Filed]) -> Result<(), DeskError> {
        let Place::File(path) = &self.place else { return Ok(()) };
        let (path, orders) = (path.clone(), orders.to_vec());
        let written = tokio::task::spawn_blocking(move || place::write(&path, &orders)).await;
        written.unwrap_or_else(|panicked| Err(panicked.into())).map_err(DeskError::Disk)
    }

    fn name_a_reset(&self) -> String {
        let (hasher, numbers) = &self.numbers;
        let number = hasher.hash_one(numbers.fetch_add(1, Ordering::Relaxed));
        format!("reset-{}", filed::hex(&number.to_be_bytes()))
    }
}

// What fits on the board can be put in force.
const _: () = assert!(SharedMap::MOST <= Orders::MAX);
