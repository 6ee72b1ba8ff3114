//! Temporary bans after repeated denials.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::limit::clock::{Clock, Timestamp, Warning};
use crate::limit::memory::shards_for;
use crate::limit::{Account, Ledger, Name, Period, Quota, StoreError};

/// How often an identity may be denied under a policy, and how long it is refused after that.
///
/// ```
/// use std::time::Duration;
///
/// use slidegate::{Ban, Policy, Quota};
///
/// let twenty_a_minute = Ban::after(Quota::per_minute(20));
/// let login = Policy::new("login")
///     .quota(Quota::per_minute(5))
///     .ban(twenty_a_minute.lasting(Duration::from_secs(600)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ban {
    /// How many denials in which window begin it.
    pub denials: Quota,
    /// How long it lasts.
    pub length: Duration,
}

impl Ban {
    /// The longest ban that a policy can have.
    pub const MAX_LENGTH: Duration = Quota::MAX_WINDOW;

    /// A ban on who is denied as often as this: after `20/min`, the 20th denial in any minute
    /// begins it. It lasts as long as the quota's window.
    pub fn after(denials: Quota) -> Self {
        Self { denials, length: denials.window() }
    }

    /// Makes it last longer or shorter: more than no time, and at most [`Ban::MAX_LENGTH`].
    #[must_use]
    pub fn lasting(self, length: Duration) -> Self {
        Self { length, ..self }
    }
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, window) = (Period(self.length), Period(self.denials.window()));
        let denials = self.denials.units();
        let noun = if denials.get() == 1 { "denial" } else { "denials" };
        write!(f, "{length} after {denials} {noun} in {window}")
    }
}

/// A ban that is in force, as gates pass it to each other, or save it for a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveBan {
    /// The identity that is banned, and under which policy.
    pub account: Account,
    /// How much of it is left.
    pub rest: Duration,
    /// When the account is to come back: not before the ban is over, and later if a quota that
    /// denied when it began has no room for longer.
    pub retry_after: Duration,
}

/// What a gate knows of its bans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BanStats {
    /// Accounts that are banned or have denials counted, live and not yet swept.
    pub accounts: usize,
    /// How many there may be.
    pub capacity: usize,
    /// Bans that began here since the gate was made.
    pub begun: u64,
    /// Bans that began elsewhere and were put in force here since the gate was made.
    pub adopted: u64,
    /// Denials, and bans by hand or from elsewhere, that found no room since the gate was made.
    pub over_capacity: u64,
}

/// The accounts of a gate that are banned, or have denials that count towards a ban. They are
/// separate from the accounts of a store: a lookup spends no quota.
///
/// It has room for a fixed number. Those whose ban and denials are over make way; when all in a
/// newcomer's shard are live, its denials are not counted, so a full table bans no account by mistake.
pub(crate) struct Bans {
    /// By the account's hash, as the shards of a memory store.
    shards: Box<[Mutex<BanTable>]>,
    hasher: RandomState,
    /// Read under the lock, so that time does not go back.
    clock: Arc<dyn Clock>,
    /// In all shards. Read without a lock: nearly always there are none.
    accounts: AtomicUsize,
    warning: Warning,
    pub(crate) listener: Option<BanListener>,
}

/// Called with each ban that denials began.
pub(crate) type BanListener = Box<dyn Fn(&ActiveBan) + Send + Sync>;

#[derive(Default)]
struct BanTable {
    records: HashMap<Account, BanRecord, RandomState>,
    stats: BanStats,
    /// Since the last sweep.
    newcomers: usize,
    swept_at: Timestamp,
}

/// The denials that count towards a ban, or the ban that they have led to.
enum BanRecord {
    Denials(Ledger),
    Term {
        begun: Timestamp,
        length: Duration,
        /// `retry_after` when the ban began: its length, or longer if a quota had no room for
        /// longer.
        wait: Duration,
    },
}

/// How many records are looked through for each newcomer, one time with another.
const SWEEP_PER_NEW: usize = 16;
/// How often a full table is looked through at least, while newcomers find no room: so seldom that
/// no flood of them makes it costly.
const FULL_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

impl Bans {
    pub(crate) fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        let shards = shards_for(capacity);
        let shard =
            |i| BanStats { capacity: capacity.saturating_add(i) / shards, ..BanStats::default() };
        let table = |stats| Mutex::new(BanTable { stats, ..BanTable::default() });
        Self {
            shards: (0..shards).map(shard).map(table).collect(),
            hasher: RandomState::default(),
            clock,
            accounts: AtomicUsize::default(),
            warning: Warning::default(),
            listener: None,
        }
    }

    /// Whether no account is banned or has denials that count towards a ban.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.accounts.load(Ordering::Relaxed) == 0
    }

    /// When an account is to come back, if it is banned.
    pub(crate) fn retry_after(&self, account: &Account) -> Option<Duration> {
        self.locked(account, |table, now| {
            let record = table.records.get_mut(account)?;
            let rest = record.rest(now);
            if record.is_over(now) {
                table.records.remove(account);
            }
            rest.map(|(_, retry_after)| retry_after)
        })
    }

    /// Whether an account is banned, or has denials that count towards a ban.
    pub(crate) fn has_record(&self, account: &Account) -> bool {
        self.locked(account, |table, now| {
            table.records.get(account).is_some_and(|record| !record.is_over(now))
        })
    }

    /// Counts a denial, which may begin a ban. Returns when the account is to come back, if it is
    /// banned. While it is, nothing is counted: the request was in flight when the ban began.
    pub(crate) fn count(
        &self,
        account: Account,
        ban: Ban,
        denied_for: Duration,
    ) -> Option<Duration> {
        let (rest, begun) = self.locked(&account, |table, now| {
            let Some(record) = self.record(table, &account, ban, now) else { return (None, false) };
            let begun = record.rest(now).is_none() && record.count(ban, denied_for, now);
            let rest = record.rest(now);
            table.stats.begun += u64::from(begun);
            (rest, begun)
        });
        let (rest, retry_after) = rest?;
        if begun {
            log_begun(&account, ban);
            if let Some(listener) = &self.listener {
                listener(&ActiveBan { account, rest, retry_after });
            }
        }
        Some(retry_after)
    }

    /// Begins a ban now, whether there is another or not.
    pub(crate) fn begin(&self, account: &Account, ban: Ban) -> Result<(), StoreError> {
        self.locked(account, |table, now| {
            let record = self.record(table, account, ban, now).ok_or(StoreError::Full)?;
            *record = BanRecord::begin(ban, Duration::ZERO, now);
            table.stats.begun += 1;
            Ok(())
        })
        .inspect(|()| log_begun(account, ban))
    }

    /// Puts a ban in force that began elsewhere, unless the one in force lasts as long.
    pub(crate) fn adopt(&self, active: &ActiveBan, ban: Ban) -> Result<(), StoreError> {
        let rest = active.rest.min(Ban::MAX_LENGTH);
        if rest.is_zero() {
            return Ok(());
        }
        self.locked(&active.account, |table, now| {
            let record = self.record(table, &active.account, ban, now).ok_or(StoreError::Full)?;
            if record.rest(now).is_none_or(|(own, _)| own < rest) {
                *record = BanRecord::begin(ban.lasting(rest), active.retry_after, now);
                table.stats.adopted += 1;
                let Account { policy, identity } = &active.account;
                tracing::debug!(%policy, %identity, ?rest, "ban adopted");
            }
            Ok(())
        })
    }

    /// The bans in force under these policies.
    pub(crate) fn active(&self, policies: &HashSet<&Name>) -> Vec<ActiveBan> {
        let of_shard = |table: &mut BanTable, now| {
            let records = table.records.iter_mut();
            let active = records.filter(|(account, _)| policies.contains(&account.policy));
            let active = active.filter_map(|(account, record)| {
                let (rest, retry_after) = record.rest(now)?;
                Some(ActiveBan { account: account.clone(), rest, retry_after })
            });
            active.collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| self.locked_shard(shard, of_shard)).collect()
    }

    /// Lifts an account's ban and forgets its denials.
    pub(crate) fn forget(&self, account: &Account) {
        self.locked(account, |table, _| table.records.remove(account));
    }

    /// Forgets the accounts of all policies but these.
    pub(crate) fn keep(&self, kept: &HashSet<&Name>) {
        for shard in &self.shards {
            self.locked_shard(shard, |table, _| {
                table.records.retain(|account, _| kept.contains(&account.policy));
            });
        }
    }

    pub(crate) fn stats(&self) -> BanStats {
        let of_shard =
            |table: &mut BanTable, _| BanStats { accounts: table.records.len(), ..table.stats };
        let shards = self.shards.iter().map(|shard| self.locked_shard(shard, of_shard));
        shards.fold(BanStats::default(), |sum, shard| BanStats {
            accounts: sum.accounts + shard.accounts,
            capacity: sum.capacity + shard.capacity,
            begun: sum.begun + shard.begun,
            adopted: sum.adopted + shard.adopted,
            over_capacity: sum.over_capacity + shard.over_capacity,
        })
    }

    /// Works on the shard of an account.
    fn locked<T>(&self, account: &Account, work: impl FnOnce(&mut BanTable, Timestamp) -> T) -> T {
        let hash = self.hasher.hash_one(account) as usize;
        self.locked_shard(&self.shards[hash & (self.shards.len() - 1)], work)
    }

    /// Works on a shard under its lock, as of now, and notes how many accounts it leaves.
    fn locked_shard<T>(
        &self,
        shard: &Mutex<BanTable>,
        work: impl FnOnce(&mut BanTable, Timestamp) -> T,
    ) -> T {
        let mut table = shard.lock();
        let before = table.records.len();
        let output = work(&mut table, self.clock.now());
        let after = table.records.len();
        self.accounts.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        output
    }

    /// An account's record, made if there is room.
    fn record<'t>(
        &self,
        table: &'t mut BanTable,
        account: &Account,
        ban: Ban,
        now: Timestamp,
    ) -> Option<&'t mut BanRecord> {
        if !table.records.contains_key(account) {
            table.sweep_now_and_then(now);
            if table.records.len() >= table.stats.capacity {
                table.stats.over_capacity += 1;
                if self.warning.is_due(now) {
                    tracing::warn!(
                        capacity = table.stats.capacity * self.shards.len(),
                        "the table of bans is full: denials of new identities lead to no bans; \
                         raise store.local_capacity (in Rust, the capacity of the store given to \
                         Gate::with_local)"
                    );
                }
                return None;
            }
        }
        let denials = || BanRecord::Denials(Ledger::new(ban.denials));
        Some(table.records.entry(account.clone()).or_insert_with(denials))
    }
}

/// Not under the lock: where log lines go is the application's affair.
fn log_begun(Account { policy, identity }: &Account, ban: Ban) {
    tracing::info!(%policy, %identity, length = ?ban.length, "banned");
}

impl fmt::Debug for Bans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bans").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl BanTable {
    /// Looks through all records, so seldom that it comes to a few for each newcomer, or once in a
    /// while if there is no room.
    fn sweep_now_and_then(&mut self, now: Timestamp) {
        self.newcomers += 1;
        let is_full = self.records.len() >= self.stats.capacity;
        let is_overdue = is_full && now.saturating_since(self.swept_at) >= FULL_SWEEP_INTERVAL;
        if self.newcomers * SWEEP_PER_NEW < self.records.len() && !is_overdue {
            return;
        }
        self.newcomers = 0;
        self.swept_at = now;
        self.records.retain(|_, record| !record.is_over(now));
        if self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len() * 2);
        }
    }
}

impl BanRecord {
    /// What is left of a ban in force, and when to come back. If the clock has stepped back, neither
    /// is further away than it was when the ban began.
    fn rest(&mut self, now: Timestamp) -> Option<(Duration, Duration)> {
        let Self::Term { begun, length, wait } = self else { return None };
        *begun = now.min(*begun);
        let passed = now.saturating_since(*begun);
        (passed < *length).then(|| (*length - passed, *wait - passed))
    }

    /// Counts a denial of an account that is not banned. Returns whether that begins a ban.
    fn count(&mut self, ban: Ban, denied_for: Duration, now: Timestamp) -> bool {
        let quota = ban.denials;
        let denials = match self {
            Self::Denials(denials) if denials.window.ms() == quota.window_ms() => denials,
            // The ban is over, or the policy counts in another window now.
            _ => {
                *self = Self::Denials(Ledger::new(quota));
                return self.count(ban, denied_for, now);
            }
        };
        denials.expire(now);
        let is_last = denials.remaining(quota) <= 1;
        if is_last {
            *self = Self::begin(ban, denied_for, now);
        } else {
            denials.spend(quota, 1, now);
        }
        is_last
    }

    /// A ban that begins now, of an account that quotas deny for `denied_for`. It replaces the
    /// denials that led to it.
    fn begin(ban: Ban, denied_for: Duration, now: Timestamp) -> Self {
        Self::Term { begun: now, length: ban.length, wait: ban.length.max(denied_for) }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        match self {
            Self::Denials(denials) => denials.is_over(now),
            Self::Term { begun, length, .. } => now.saturating_since(*begun) >= *length,
        }
    }
}
