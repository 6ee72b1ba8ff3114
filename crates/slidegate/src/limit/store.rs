//! Where ledgers are kept: the contract of a store.

use std::cmp::Ordering;
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use smallvec::SmallVec;

use crate::identity::Identity;
use crate::limit::{AccountReading, Charge, Charges, Name, Quota, Settled, Settlement, Timestamp};

/// Keeps the ledgers of all accounts, on one clock.
///
/// # What an implementation guarantees
/// - `spend` is one atomic step: whatever else goes on, it spends every charge or none.
/// - Over any interval of a quota's window, no more than the units of an account are admitted.
/// - A denied request leaves nothing behind, except in charges that [say otherwise](Charge::on_denial);
///   those are recorded at the expense of the oldest units. Which quotas are
///   [violated](Standing::is_violated) is decided before they are recorded.
/// - What is admitted keeps to the units; what is [recorded](Charge::record) may exceed them.
/// - A shadow charge is spent if it fits and the request is allowed, and denies nothing.
/// - Receipts are true at the instant of the call: see [`Standing`].
/// - History goes with the account and the window: a call may bring other units than the last.
/// - It answers in bounded time, and what it cannot count it says: [`StoreError`].
///
/// The suite in `slidegate::conformance` (feature `conformance`) checks all of this.
///
/// A [`Gate`](crate::Gate) calls a store for its policies. It can also be called by itself:
///
/// ```
/// use slidegate::limit::{Charge, Quotas};
/// use slidegate::{Identity, MemoryStore, Name, Quota, Store, StoreError};
///
/// /// Spends one of a user's 20 messages a minute, in whichever store has the accounts.
/// async fn may_send(store: &impl Store, user: &str) -> Result<bool, StoreError> {
///     let policy: Name = "messages".parse().expect("a valid name");
///     let (user, quotas) = (Identity::user(user), Quotas::from(Quota::per_minute(20)));
///     let receipt = store.spend(&Charge::new(&policy, &user, &quotas).into()).await?;
///     Ok(receipt.spent)
/// }
///
/// # async fn send() -> Result<(), StoreError> {
/// assert!(may_send(&MemoryStore::new(), "42").await?);
/// # Ok(())
/// # }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Whether every future of this store is ready when it is first polled, so that callers need not
    /// be prepared to wait.
    const NEVER_WAITS: bool = false;

    /// Spends every charge, or none of them, atomically.
    fn spend(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Receipt, StoreError>> + Send;

    /// Tells whether `spend` would spend, and spends nothing. Standings are as they are.
    fn peek(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Receipt, StoreError>> + Send;

    /// Reads what is spent in the windows of one charge's quotas, and spends nothing. It has every
    /// unit that [`peek`](Self::peek) counts and no other: none that has left the window, and none
    /// that is stamped later than a spend at this instant would be.
    fn read(
        &self,
        charge: Charge<'_>,
    ) -> impl Future<Output = Result<AccountReading, StoreError>> + Send;

    /// Takes back each charge's cost, as far as it is there.
    fn refund(
        &self,
        charges: &Charges<'_>,
        spent: Spent,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Settles charges that were spent together: each held its cost, and turned out to cost
    /// [`Settlement::units`]. Units that a record has pushed out meanwhile are not refunded.
    ///
    /// After an error it is unknown whether the charges are settled. A call under the same
    /// [name](Settlement::once) can be repeated.
    fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Forgets the accounts of the charges, with all that is kept under their quotas' windows.
    fn reset(&self, charges: &Charges<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether this store takes units ahead for charges with a [lease](Charge::lease). A gate then
    /// makes a separate call for each of them, before the one for all others, and refunds them if a
    /// later one is denied.
    fn leases(&self) -> bool {
        false
    }

    /// Whether this account is there, or there is room for it beside what is kept for identities that
    /// clients cannot choose. It is asked about those that they can before their first charge.
    ///
    /// A store without a bound always has room.
    fn has_room_for(&self, policy: &Name, identity: &Identity) -> bool {
        let _ = (policy, identity);
        true
    }

    /// Forgets what this process keeps of the accounts apart from their ledgers, after another
    /// process reset them `ago` ago. What was spent since then counts, there as here.
    ///
    /// A store that keeps nothing apart has nothing to do.
    fn forget(&self, charges: &Charges<'_>, ago: Duration) {
        let _ = (charges, ago);
    }
}

/// Which units a refund takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// Those spent at this instant, by [`Receipt::at`]. If they are gone, nothing is taken back.
    At(Timestamp),
    /// The newest.
    Newest,
}

/// A store's answer to a spend: yes or no, and where every quota stands.
#[derive(Debug, Clone, Default)]
pub struct Receipt {
    /// Whether everything was spent; if not, nothing was.
    pub spent: bool,
    /// The instant of the call, on the store's clock.
    pub at: Timestamp,
    /// When each charge was spent, if the store keeps them on several clocks; else empty.
    pub times: Vec<Timestamp>,
    /// Whether a charge was decided by its `on_store_error` because it could not be counted.
    pub degraded: bool,
    /// For each charge, in order, its quotas, in order.
    pub standings: Standings,
}

impl Receipt {
    /// The instant at which a charge was spent, counted from 0, for its refund or settlement.
    pub fn at_of(&self, charge: usize) -> Timestamp {
        self.times.get(charge).copied().unwrap_or(self.at)
    }
}

/// Standings, nearly always few enough to need no allocation.
pub type Standings = SmallVec<[Standing; 2]>;

/// Where one quota stands after a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub(crate) quota: Quota,
    pub(crate) remaining: u32,
    /// Whether the request fitted and was counted although another quota denied it.
    pub(crate) had_room: bool,
    pub(crate) retry_after_ns: u64,
    pub(crate) reset_after_ns: u64,
}

impl Standing {
    /// The standing of a quota that nothing has been spent from.
    #[inline]
    pub fn untouched(quota: Quota) -> Self {
        Self {
            quota,
            remaining: quota.units().get(),
            had_room: false,
            retry_after_ns: 0,
            reset_after_ns: 0,
        }
    }

    /// The standing of a quota with this much left and some of it spent.
    #[must_use]
    pub fn with_remaining(self, units: u32) -> Self {
        Self { remaining: units, ..self }
    }

    /// Says how long until the same request would fit: if that is not zero, it does not fit now.
    #[must_use]
    #[inline]
    pub fn with_retry_after(self, after: Duration) -> Self {
        Self { retry_after_ns: nanos(after), had_room: false, ..self }
    }

    /// Says how long until the first spent unit is free again.
    #[must_use]
    pub fn with_reset_after(self, after: Duration) -> Self {
        Self { reset_after_ns: nanos(after), ..self }
    }

    /// Says that the request fitted this quota when it was decided. A charge that counts denied
    /// requests may have no room left once a request that another quota denied has been counted:
    /// the wait is then real, but this quota is not [violated](Self::is_violated).
    #[must_use]
    pub fn with_room(self) -> Self {
        Self { had_room: self.retry_after_ns > 0, ..self }
    }

    /// The same standing, of another quota.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self { quota, ..self }
    }

    /// The quota.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// How many units are left.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Compares by which part of the units is left.
    pub(crate) fn cmp_part_left(&self, other: &Self) -> Ordering {
        let scaled =
            |one: &Self, by: &Self| u64::from(one.remaining) * u64::from(by.quota.units().get());
        scaled(self, other).cmp(&scaled(other, self))
    }

    /// How long until the same request would fit this quota if nothing else is spent. Zero if it
    /// fits, or was spent.
    pub fn retry_after(&self) -> Duration {
        Duration::from_nanos(self.retry_after_ns)
    }

    /// Whether the request did not fit this quota, as of before it was counted.
    pub fn is_violated(&self) -> bool {
        self.retry_after_ns > 0 && !self.had_room
    }

    /// How long until the first spent unit is free again. Zero if none is spent.
    pub fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.reset_after_ns)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Why a store could not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Every place for an account is taken by a live one.
    #[error("the store is full: no room for another account")]
    Full,
    /// No answer came in time.
    #[error("the store gave no answer within {0:?}")]
    Deadline(Duration),
    /// The store cannot be reached or did not do what it was asked.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}
