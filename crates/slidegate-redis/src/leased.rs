//! Prefetched units, so that requests of busy accounts need not wait for Redis.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use slidegate::limit::{
    AccountReading, Charge, Charges, Difference, OnDenial, Quotas, Receipt, Settled, Settlement,
    Spent, Standings, SystemClock,
};
use slidegate::{Account, Clock, Identity, Name, Standing, Store, StoreError, Timestamp};

use crate::ResilientStore;
use crate::owned::OwnedCharge;

/// A store that decides charges with a [lease](Charge::lease) from prefetched units.
///
/// Taking a lease is an ordinary spend of several units on the account's ledger, whose window is the
/// quota's and the longest lease's length together. A unit of a lease can be used until that length after
/// it was taken, and so leaves the ledger no sooner than a window after it was used: no window ever
/// contains more than the quota, for any number of processes. Unused units of a lease are refunded
/// when it ends.
///
/// - A lease lasts for some thirty requests, at least 200 ms and eight round trips to the store, and at
///   most as long as the charge permits, less a 128th: clocks of gateways may run that much slower than the
///   store's. So a busy account has short leases, and one with ten requests a
///   second asks the store once a second.
/// - It has what the account spends in three quarters of that time, and at most a quarter of what the store
///   has left for all processes. So no process takes what others need, and the last few units are spent
///   one request at a time.
/// - It is renewed in the background when an eighth of it is left, or what is used during two round trips.
///   A request that finds no lease is decided by the store, and so is one whose cost exceeds what is left
///   of each lease.
/// - Leases are taken if they are for two requests at least, for up to 100,000 accounts at a time, and an
///   account has up to 16 that are not used up.
///   Others are decided by the store.
/// - While the store fails, no leases are taken; existing ones are used up.
///
/// Where a quota stands is what this process knows: what the store had left when it was last asked,
/// and what is left of the leases here.
///
/// ```no_run
/// use slidegate::{Consistency, Gate, Policies, Policy, Quota};
/// use slidegate_redis::{LeasedStore, RedisStore, ResilientStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let api = Policy::new("api").quota(Quota::per_minute(10_000)).consistency(Consistency::ASYNC);
/// let policies = Policies::builder().policy(api).build()?;
/// let redis = RedisStore::builder("redis://127.0.0.1:6379").build()?;
/// let gate = Gate::new(policies, LeasedStore::new(ResilientStore::new(redis)));
/// # Ok(())
/// # }
/// ```
pub struct LeasedStore<S = ResilientStore>(Arc<LeasedInner<S>>);

struct LeasedInner<S> {
    store: S,
    accounts: Mutex<LeasedAccounts>,
    clock: Arc<dyn Clock>,
}

/// Counters of a [`LeasedStore`] since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Leases taken.
    pub leases: u64,
    /// Units taken with them.
    pub units: u64,
    /// Units refunded, because no request used them.
    pub refunded: u64,
    /// Requests decided from a lease, without asking the store.
    pub decisions: u64,
    /// Accounts whose demand is tracked.
    pub accounts: usize,
}

impl<S: Store> LeasedStore<S> {
    /// Takes leases from this store.
    pub fn new(store: S) -> Self {
        Self::with_clock(store, SystemClock::new())
    }

    /// The same, with leases that end by this clock, for tests.
    pub fn with_clock(store: S, clock: impl Clock) -> Self {
        let (accounts, clock) = (Mutex::default(), Arc::new(clock));
        Self(Arc::new(LeasedInner { store, accounts, clock }))
    }

    /// The store that leases are taken from.
    pub fn inner(&self) -> &S {
        &self.0.store
    }

    /// Counters since the start.
    pub fn stats(&self) -> LeaseStats {
        let accounts = self.0.accounts.lock();
        LeaseStats { accounts: accounts.table.len(), ..accounts.stats }
    }

    /// Refunds what is unused of all leases, for a process that ends, and takes no more of them. Returns
    /// the number of units. Each refund ends by the store's deadline. Units that could not be refunded stay
    /// spent until they leave the window, and so do those of a lease that is on its way when its runtime
    /// ends.
    pub async fn release(&self) -> u64 {
        let unused = self.0.accounts.lock().release();
        let refund = async |(charge, at): (OwnedCharge, Timestamp)| {
            let charge = charge.as_charge();
            let refunded = self.0.store.refund(&charge.into(), Spent::At(at)).await;
            refunded.map_or(0, |()| u64::from(charge.cost().get()))
        };
        let refunds = stream::iter(unused).map(refund).buffer_unordered(RELEASES_IN_FLIGHT);
        refunds.fold(0, async |sum, units| sum + units).await
    }

    async fn spend_leased(
        &self,
        charges: &Charges<'_>,
        charge: &Charge<'_>,
        lease: Duration,
    ) -> Result<Receipt, StoreError> {
        let sent = self.0.clock.now();
        let taken = self.0.accounts.lock().take(charge, lease, sent);
        if let Some((receipt, wanted)) = taken {
            self.renew(charge, wanted);
            return Ok(receipt);
        }
        let mut receipt = self.0.store.spend(charges).await?;
        let took = self.0.clock.now().saturating_since(sent);
        let wanted = self.0.accounts.lock().learn(charge, &mut receipt, sent, took);
        self.renew(charge, wanted);
        Ok(receipt)
    }

    /// Takes a lease in the background, and refunds what is left of it when it ends.
    fn renew(&self, charge: &Charge<'_>, wanted: Option<WantedLease>) {
        let Some(WantedLease { account, units, length }) = wanted else { return };
        // Not a client's request: it must fit, and is not counted if denied.
        let charge = charge.shadow(false).count_denied(false);
        let Ok(charge) = charge.with_cost(units) else { return };
        let (store, charge) = (self.clone(), OwnedCharge::from(&charge));
        tokio::spawn(async move {
            let sent = store.0.clock.now();
            let Ok(receipt) = store.0.store.spend(&charge.as_charge().into()).await else {
                store.0.accounts.lock().fail(&charge.as_charge(), store.0.clock.now());
                return;
            };
            let until = sent + length;
            let mut rest = units.get();
            let now = store.0.clock.now();
            if receipt.spent && !receipt.degraded {
                store.0.accounts.lock().round_trip.add(now.saturating_since(sent));
            }
            if store.0.accounts.lock().add(account, &charge.as_charge(), &receipt, sent, until) {
                tokio::time::sleep(until.saturating_since(now)).await;
                rest = store.0.accounts.lock().end(&charge.as_charge(), receipt.at);
            }
            let Some(rest) = NonZeroU32::new(rest).filter(|_| receipt.spent) else { return };
            let Ok(rest) = charge.as_charge().with_cost(rest) else { return };
            // Units that cannot be refunded stay spent until they leave the window.
            if let Err(error) = store.0.store.refund(&rest.into(), Spent::At(receipt.at)).await {
                tracing::debug!(%error, "unused units of a lease were not refunded");
            }
        });
    }
}

impl<S: Store> Store for LeasedStore<S> {
    fn leases(&self) -> bool {
        true
    }

    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        if let [charge] = charges.as_slice()
            && let Some(lease) = charge.lease()
            && charge.on_denial() != OnDenial::Record
        {
            return self.spend_leased(charges, charge, lease).await;
        }
        self.0.store.spend(charges).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        let mut receipt = self.0.store.peek(charges).await?;
        if let [charge] = charges.as_slice() {
            self.0.accounts.lock().peek(charge, &mut receipt, self.0.clock.now());
        }
        Ok(receipt)
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        self.0.store.read(charge).await
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        if let ([charge], Spent::At(at)) = (charges.as_slice(), spent)
            && self.0.accounts.lock().give_back(charge, at, self.0.clock.now())
        {
            return Ok(());
        }
        self.0.store.refund(charges, spent).await
    }

    /// Units of a lease that were not used go back to it, while it lasts.
    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        if let ([charge], None) = (charges.as_slice(), settlement.once)
            && let Difference::Refund(units) = settlement.difference(charge)
            && let Ok(unused) = charge.with_cost(units)
            && self.0.accounts.lock().give_back(&unused, settlement.at, self.0.clock.now())
        {
            return Ok(Settled::Now);
        }
        self.0.store.settle(charges, settlement).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.0.accounts.lock().forget(charges);
        self.0.store.reset(charges).await
    }

    fn has_room_for(&self, policy: &Name, identity: &Identity) -> bool {
        self.0.store.has_room_for(policy, identity)
    }

    fn forget(&self, charges: &Charges<'_>, ago: Duration) {
        self.0.accounts.lock().forget(charges);
        self.0.store.forget(charges, ago);
    }
}

impl<S> Clone for LeasedStore<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: fmt::Debug> fmt::Debug for LeasedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeasedStore({:?})", self.0.store)
    }
}

/// Maximum accounts whose demand is tracked.
const MAX_ACCOUNTS: usize = 100_000;
/// Maximum leases of an account that are not used up. Each has at most a quarter of what is left.
const MAX_LEASES: usize = 16;
/// Refunds of leases at the same time when the process ends.
const RELEASES_IN_FLIGHT: usize = 64;
/// By one of this many parts a lease is shorter than it may be. A clock of a gateway that is disciplined
/// runs slower than the store's by a 2,000th at most, and one of a bad machine by a few times that.
const CLOCK_MARGIN_PARTS: u32 = 128;
/// With fewer, no idle ones are looked for.
const MIN_SWEPT_ACCOUNTS: usize = 1024;
/// Minimum interval between searches for idle accounts.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// A lease takes at most one of this many parts of the remaining units.
const REMAINING_PARTS: u32 = 4;
/// A lease lasts until about this many requests have used it: then few calls are left to save.
const REQUESTS_OF_A_LEASE: f64 = 32.0;
/// For fewer requests than this, taking a lease saves nothing.
const MIN_REQUESTS_OF_A_LEASE: u32 = 2;
/// Long enough for some hundred calls to Redis, and shorter than what a client notices.
const MIN_LEASE: Duration = Duration::from_millis(200);
/// A lease lasts for this many round trips at least, or most of it would pass while the next is taken.
const MIN_ROUND_TRIPS: u32 = 8;
/// How much of a lease's length its units are for. Units that are not used take a call to be refunded.
const FILLED: f64 = 0.75;

#[derive(Default)]
struct LeasedAccounts {
    table: HashMap<Account, LeasedAccount>,
    made: u64,
    swept_at: Timestamp,
    /// With so many accounts it is looked for idle ones.
    sweep_at: usize,
    /// Whether no further leases are taken.
    is_released: bool,
    round_trip: AverageRoundTrip,
    stats: LeaseStats,
}

/// An account's leases, and the demand that determines the size of the next one.
struct LeasedAccount {
    /// Distinguishes it from one of the same name before a reset.
    id: u64,
    /// The leases are for these quotas only.
    quotas: Quotas,
    leases: Vec<Lease>,
    /// The last reply of the store, and when it was requested.
    known: Standings,
    known_at: Timestamp,
    /// The longest that a lease of it may last.
    longest: Duration,
    demand: Demand,
    /// No further lease is requested before this instant.
    renewing_until: Timestamp,
}

struct Lease {
    /// When it was taken, by the store's clock. A refund needs this time.
    at: Timestamp,
    /// When it was requested, not later than it was taken.
    sent: Timestamp,
    until: Timestamp,
    left: u32,
}

/// The units requested in a slice of time, and in the one before it.
#[derive(Default)]
struct Demand {
    since: Timestamp,
    units: u32,
    before: u32,
    before_lasted: Duration,
}

/// How long the store takes to reply, on average of the last few leases.
#[derive(Default)]
struct AverageRoundTrip(Duration);

/// A lease to take.
#[derive(Clone, Copy)]
struct WantedLease {
    account: u64,
    units: NonZeroU32,
    length: Duration,
}

impl LeasedAccounts {
    /// Takes a request's cost from a lease that has enough units. Also returns the next lease to take.
    fn take(
        &mut self,
        charge: &Charge<'_>,
        lease: Duration,
        now: Timestamp,
    ) -> Option<(Receipt, Option<WantedLease>)> {
        let (round_trip, is_released) = (self.round_trip.0, self.is_released);
        let account = self.watch(charge, lease, now)?;
        account.demand.add(charge.cost().get(), now, account.slice());
        let taken = account.leases.iter_mut().find(|lease| lease.has(charge, now))?;
        taken.left -= charge.cost().get();
        let (at, sent) = (taken.at, taken.sent);
        let standings = account.standings(sent, now);
        let wanted = account.wanted(charge, round_trip, now).filter(|_| !is_released);
        self.stats.decisions += 1;
        Some((Receipt { spent: true, at, standings, ..Receipt::default() }, wanted))
    }

    /// Records the reply of the store, and adds the unused units of the leases to it.
    fn learn(
        &mut self,
        charge: &Charge<'_>,
        receipt: &mut Receipt,
        sent: Timestamp,
        took: Duration,
    ) -> Option<WantedLease> {
        // A denial may be repeated without asking the store.
        if receipt.spent && !receipt.degraded {
            self.round_trip.add(took);
        }
        let (round_trip, is_released) = (self.round_trip.0, self.is_released);
        let account = self.find(charge)?;
        account.know(receipt, sent);
        receipt.standings = account.with_leases(&receipt.standings, sent);
        let takes_more = receipt.spent && !is_released;
        if takes_more { account.wanted(charge, round_trip, sent) } else { None }
    }

    /// Adds the unused units of the leases to the store's reply.
    fn peek(&mut self, charge: &Charge<'_>, receipt: &mut Receipt, now: Timestamp) {
        let Some(account) = self.find(charge) else { return };
        receipt.standings = account.with_leases(&receipt.standings, now);
        if account.leases.iter().any(|lease| lease.has(charge, now)) {
            receipt.spent = true;
            let fits = |standing: &mut Standing| {
                *standing = standing.with_retry_after(Duration::ZERO);
            };
            receipt.standings.iter_mut().for_each(fits);
        }
    }

    /// Adds a lease that was taken. Returns false if it cannot be used: it was denied, counted only
    /// locally, has ended, or its account was reset meanwhile.
    fn add(
        &mut self,
        id: u64,
        charge: &Charge<'_>,
        receipt: &Receipt,
        sent: Timestamp,
        until: Timestamp,
    ) -> bool {
        let is_released = self.is_released;
        let Some(account) = self.find(charge).filter(|account| account.id == id) else {
            return false;
        };
        account.renewing_until = Timestamp::default();
        account.know(receipt, sent);
        if !receipt.spent || receipt.degraded || is_released {
            return false;
        }
        let left = charge.cost().get();
        account.leases.push(Lease { at: receipt.at, sent, until, left });
        self.stats.leases += 1;
        self.stats.units += u64::from(left);
        true
    }

    /// Records that a lease could not be taken. The next one is tried soon.
    fn fail(&mut self, charge: &Charge<'_>, now: Timestamp) {
        if let Some(account) = self.find(charge) {
            account.renewing_until = account.renewing_until.min(now + MIN_LEASE);
        }
    }

    /// Removes a lease that has ended. Returns its unused units.
    fn end(&mut self, charge: &Charge<'_>, at: Timestamp) -> u32 {
        let Some(account) = self.find(charge) else { return 0 };
        let ended = account.leases.iter().position(|lease| lease.at == at);
        let left = ended.map_or(0, |i| account.leases.remove(i).left);
        self.stats.refunded += u64::from(left);
        left
    }

    /// Returns units to their lease. Returns false if the lease has ended.
    fn give_back(&mut self, charge: &Charge<'_>, at: Timestamp, now: Timestamp) -> bool {
        let Some(account) = self.find(charge) else { return false };
        let lease = account.leases.iter_mut().find(|lease| lease.at == at && now < lease.until);
        lease.map(|lease| lease.left += charge.cost().get()).is_some()
    }

    /// Removes all leases and takes no more. Returns the unused units, each with the time of its spend.
    fn release(&mut self) -> Vec<(OwnedCharge, Timestamp)> {
        self.is_released = true;
        let mut unused = Vec::new();
        for (Account { policy, identity }, account) in &mut self.table {
            for lease in account.leases.drain(..) {
                let charge = Charge::new(policy, identity, &account.quotas);
                let left = NonZeroU32::new(lease.left);
                let charge = left.and_then(|left| charge.with_cost(left).ok());
                let charge = charge.map(|charge| charge.leased(Some(account.longest)));
                unused.extend(charge.map(|charge| (OwnedCharge::from(&charge), lease.at)));
                self.stats.refunded += u64::from(lease.left);
            }
        }
        unused
    }

    fn forget(&mut self, charges: &Charges<'_>) {
        for charge in charges.as_slice() {
            self.table.remove(&account_of(charge));
        }
    }

    fn find(&mut self, charge: &Charge<'_>) -> Option<&mut LeasedAccount> {
        let account = self.table.get_mut(&account_of(charge))?;
        (account.quotas == *charge.quotas()).then_some(account)
    }

    /// The account of a charge, created if necessary; `None` if the table is full, or if its leases
    /// have the quotas of another plan, or may last for another time than these permit.
    fn watch(
        &mut self,
        charge: &Charge<'_>,
        lease: Duration,
        now: Timestamp,
    ) -> Option<&mut LeasedAccount> {
        let name = account_of(charge);
        if self.table.len() >= self.sweep_at && !self.table.contains_key(&name) {
            self.sweep(now);
            if self.table.len() >= MAX_ACCOUNTS {
                return None;
            }
        }
        self.made += 1;
        let account =
            self.table.entry(name).or_insert_with(|| LeasedAccount::new(self.made, charge, lease));
        if account.quotas != *charge.quotas() || account.longest != lease {
            if account.has_leases(now) {
                return None;
            }
            *account = LeasedAccount::new(self.made, charge, lease);
        }
        Some(account)
    }

    /// Forgets idle accounts. It is done when the table has twice as many as were left the last time, so
    /// that each account pays for a look or two.
    fn sweep(&mut self, now: Timestamp) {
        if now.saturating_since(self.swept_at) < SWEEP_INTERVAL {
            return;
        }
        self.swept_at = now;
        self.table.retain(|_, account| !account.is_idle(now));
        self.sweep_at = (2 * self.table.len()).clamp(MIN_SWEPT_ACCOUNTS, MAX_ACCOUNTS);
        self.table.shrink_to(self.sweep_at);
    }
}

impl LeasedAccount {
    fn new(id: u64, charge: &Charge<'_>, longest: Duration) -> Self {
        Self {
            id,
            quotas: charge.quotas().clone(),
            leases: Vec::new(),
            known: Standings::new(),
            known_at: Timestamp::default(),
            longest,
            demand: Demand::default(),
            renewing_until: Timestamp::default(),
        }
    }

    fn know(&mut self, receipt: &Receipt, sent: Timestamp) {
        self.known_at = sent;
        // A local decision does not show what is left for all processes.
        self.known.clear();
        if !receipt.degraded {
            self.known.extend_from_slice(&receipt.standings);
        }
    }

    /// The lease to take now, if the others will be used up soon.
    fn wanted(
        &mut self,
        charge: &Charge<'_>,
        round_trip: Duration,
        now: Timestamp,
    ) -> Option<WantedLease> {
        let cost = charge.cost().get();
        let per_second = self.demand.per_second(cost, now);
        let used_up = REQUESTS_OF_A_LEASE * f64::from(cost) / per_second;
        let used_up = Duration::try_from_secs_f64(used_up);
        let used_up = used_up.unwrap_or(self.longest);
        let shortest = MIN_LEASE.max(round_trip * MIN_ROUND_TRIPS);
        let length = used_up.max(shortest).min(self.longest - clock_margin(self.longest));
        let demand = (per_second * length.as_secs_f64() * FILLED) as u32;
        let meanwhile = (per_second * 2.0 * round_trip.as_secs_f64()) as u32;
        let remaining = self.known.iter().map(Standing::remaining).min()?;
        let units = demand.min(remaining / REMAINING_PARTS);
        let is_enough = self.left(now) > meanwhile.max(demand / 8)
            && self.leases.iter().any(|lease| lease.has(charge, now));
        let is_useless = units < cost.saturating_mul(MIN_REQUESTS_OF_A_LEASE)
            // It would end before it has arrived, or soon after that.
            || length <= 2 * round_trip;
        if now < self.renewing_until || is_enough || is_useless {
            return None;
        }
        if self.leases.len() >= MAX_LEASES {
            // One that has ended with units left goes when they are refunded.
            self.leases.retain(|lease| lease.left > 0);
            if self.leases.len() >= MAX_LEASES {
                return None;
            }
        }
        self.renewing_until = now + length;
        Some(WantedLease { account: self.id, units: NonZeroU32::new(units)?, length })
    }

    /// How long demand is counted for.
    fn slice(&self) -> Duration {
        self.longest
    }

    fn left(&self, now: Timestamp) -> u32 {
        self.leases.iter().filter(|lease| now < lease.until).map(|lease| lease.left).sum()
    }

    /// The estimated standings now, for a unit of a lease that was requested at `sent`.
    fn standings(&self, sent: Timestamp, now: Timestamp) -> Standings {
        let ago = now.saturating_since(self.known_at);
        let aged = self.known.iter().map(|standing| {
            let own = (sent + standing.quota().window()).saturating_since(now);
            let first = standing.reset_after().saturating_sub(ago);
            standing.with_retry_after(Duration::ZERO).with_reset_after(if first.is_zero() {
                own
            } else {
                first
            })
        });
        self.with_leases(&aged.collect::<Standings>(), now)
    }

    /// The standings including the unused units of the leases.
    fn with_leases(&self, standings: &[Standing], now: Timestamp) -> Standings {
        let left = self.left(now);
        let with = |standing: &Standing| {
            let units = standing.quota().units().get();
            standing.with_remaining(standing.remaining().saturating_add(left).min(units))
        };
        standings.iter().map(with).collect()
    }

    /// Leases that have ended are not removed if the runtime of their task has ended.
    fn has_leases(&self, now: Timestamp) -> bool {
        self.leases.iter().any(|lease| now < lease.until)
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        !self.has_leases(now) && now.saturating_since(self.demand.since) > 2 * self.longest
    }
}

impl Lease {
    fn has(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        now < self.until && self.left >= charge.cost().get()
    }
}

impl Demand {
    fn add(&mut self, units: u32, now: Timestamp, slice: Duration) {
        let elapsed = now.saturating_since(self.since);
        if elapsed >= slice {
            // Without requests, the slice before was one.
            let is_next = elapsed < 2 * slice;
            (self.before, self.before_lasted) =
                if is_next { (self.units, elapsed) } else { (0, slice) };
            (self.since, self.units) = (now, 0);
        }
        self.units = self.units.saturating_add(units);
    }

    /// The units requested a second, lately: over a slice and what has passed of the next. A shorter time
    /// would take two requests that come together for a busy account. The last request, of this cost,
    /// ends the time.
    fn per_second(&self, cost: u32, now: Timestamp) -> f64 {
        let units = f64::from(self.before) + f64::from(self.units) - f64::from(cost);
        let time = self.before_lasted + now.saturating_since(self.since);
        units.max(0.0) / time.as_secs_f64()
    }
}

impl AverageRoundTrip {
    fn add(&mut self, took: Duration) {
        self.0 = if self.0.is_zero() { took } else { self.0 * 7 / 8 + took / 8 };
    }
}

/// How much shorter a lease is than it may be.
fn clock_margin(longest: Duration) -> Duration {
    (longest / CLOCK_MARGIN_PARTS).max(Duration::from_millis(1)).min(longest)
}

fn account_of(charge: &Charge<'_>) -> Account {
    Account { policy: charge.policy().clone(), identity: *charge.identity() }
}
