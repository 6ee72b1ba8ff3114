//! Who is banned, and the denials that may lead to it.

mod record;
mod shard;

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use self::shard::{Key, Shard};
use crate::limit::charge::Account;
use crate::limit::clock::Timestamp;
use crate::limit::name::Name;
use crate::limit::store::StoreError;
use crate::limit::warning::Warning;
use crate::policy::ban::{ActiveBan, Ban};
use crate::policy::identity::Identity;

/// The accounts of a gate that are banned or on the way to it. They are no accounts of a store:
/// asking here takes from nobody's quota.
///
/// It has room for a fixed number. Those whose ban and denials are over make way; when all are
/// live, the denials of a newcomer are not counted, so a full table bans nobody by mistake.
///
/// Every call gets a clock, which it reads under the lock, so that time does not go back.
pub(crate) struct Bans {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    capacity: usize,
    /// In all shards.
    accounts: AtomicUsize,
    begun: AtomicU64,
    adopted: AtomicU64,
    refused: AtomicU64,
    warning: Warning,
    listener: Option<Listener>,
}

/// Called with each ban that denials began.
pub(crate) type Listener = Box<dyn Fn(&ActiveBan) + Send + Sync>;

/// As in a memory store: enough that threads seldom meet.
const MAX_SHARDS: usize = 64;
const MIN_ACCOUNTS_PER_SHARD: usize = 1024;

/// What a gate knows of its bans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub refused: u64,
}

impl Bans {
    pub(crate) fn new(capacity: usize) -> Self {
        let shards = (capacity / MIN_ACCOUNTS_PER_SHARD).clamp(1, MAX_SHARDS);
        let shard = |i| Shard::new((capacity + i) / shards);
        Self {
            shards: (0..shards).map(|i| Mutex::new(shard(i))).collect(),
            hasher: RandomState::default(),
            capacity,
            accounts: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            adopted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            warning: Warning::default(),
            listener: None,
        }
    }

    pub(crate) fn set_listener(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    /// Whether nobody is banned or on the way to it, which is soon seen.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.accounts.load(Ordering::Relaxed) == 0
    }

    /// When an account is to come back, if it is banned.
    pub(crate) fn retry_after(
        &self,
        policy: &Name,
        identity: &Identity,
        clock: impl Fn() -> Timestamp,
    ) -> Option<Duration> {
        self.locked(policy, identity, |shard, key| {
            let record = shard.record(&key)?;
            let now = clock();
            let retry_after = record.retry_after(now);
            if record.is_over(now) {
                shard.forget(&key);
            }
            retry_after
        })
    }

    /// Whether an account is banned, or has denials that count towards a ban.
    pub(crate) fn has_record(
        &self,
        policy: &Name,
        identity: &Identity,
        clock: impl Fn() -> Timestamp,
    ) -> bool {
        self.locked(policy, identity, |shard, key| {
            shard.record(&key).is_some_and(|record| !record.is_over(clock()))
        })
    }

    /// Counts a denial, for so long, which may begin a ban; tells when the account is to come back,
    /// if it is banned. While it is, nothing is counted: the request was under way when the ban
    /// began.
    pub(crate) fn count(
        &self,
        policy: &Name,
        identity: &Identity,
        ban: Ban,
        denied_for: Duration,
        clock: impl Fn() -> Timestamp,
    ) -> Option<Duration> {
        let (rest, begun) = self.locked(policy, identity, |shard, key| {
            let now = clock();
            let Some(record) = shard.record_or_new(key, ban, now) else {
                self.refuse(now);
                return (None, false);
            };
            let begun = record.retry_after(now).is_none() && record.count(ban, denied_for, now);
            (record.rest(now), begun)
        });
        let (rest, retry_after) = rest?;
        if begun {
            self.announce(policy, identity, ban);
            if let Some(listener) = &self.listener {
                let account = Account { policy: policy.clone(), identity: *identity };
                listener(&ActiveBan { account, rest, retry_after });
            }
        }
        Some(retry_after)
    }

    /// Begins a ban now, whether there is another or not.
    pub(crate) fn begin(
        &self,
        policy: &Name,
        identity: &Identity,
        ban: Ban,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), StoreError> {
        self.locked(policy, identity, |shard, key| {
            let now = clock();
            let Some(record) = shard.record_or_new(key, ban, now) else {
                self.refuse(now);
                return Err(StoreError::Full);
            };
            record.begin(ban, Duration::ZERO, now);
            Ok(())
        })?;
        self.announce(policy, identity, ban);
        Ok(())
    }

    /// Puts a ban in force that began elsewhere, unless the one in force lasts as long.
    pub(crate) fn adopt(
        &self,
        active: &ActiveBan,
        ban: Ban,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), StoreError> {
        let Account { policy, identity } = &active.account;
        let rest = active.rest.min(Ban::MAX_LENGTH);
        if rest.is_zero() {
            return Ok(());
        }
        let adopted = self.locked(policy, identity, |shard, key| {
            let now = clock();
            let Some(record) = shard.record_or_new(key, ban, now) else {
                self.refuse(now);
                return Err(StoreError::Full);
            };
            Ok(record.adopt(ban, rest, active.retry_after, now))
        })?;
        if adopted {
            self.adopted.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%policy, %identity, ?rest, "ban adopted");
        }
        Ok(())
    }

    /// The bans in force under these policies, one shard after another.
    pub(crate) fn active<'n>(
        &self,
        policies: impl Iterator<Item = &'n Name>,
        now: Timestamp,
    ) -> Vec<ActiveBan> {
        let names: HashSet<&Name> = policies.collect();
        let mut active = Vec::new();
        for shard in &self.shards {
            self.on(shard, |shard| {
                for ((policy, identity), record) in shard.iter_mut() {
                    let Some((rest, retry_after)) = record.rest(now) else { continue };
                    if !names.contains(policy) {
                        continue;
                    }
                    let account = Account { policy: policy.clone(), identity: *identity };
                    active.push(ActiveBan { account, rest, retry_after });
                }
            });
        }
        active
    }

    /// Lifts an account's ban and forgets its denials.
    pub(crate) fn forget(&self, policy: &Name, identity: &Identity) {
        self.locked(policy, identity, |shard, key| shard.forget(&key));
    }

    /// Forgets the accounts of all policies but these.
    pub(crate) fn keep<'n>(&self, policies: impl Iterator<Item = &'n Name>) {
        let kept: Vec<&Name> = policies.collect();
        for shard in &self.shards {
            self.on(shard, |shard| shard.keep(&kept));
        }
    }

    pub(crate) fn stats(&self) -> BanStats {
        BanStats {
            accounts: self.accounts.load(Ordering::Relaxed),
            capacity: self.capacity,
            begun: self.begun.load(Ordering::Relaxed),
            adopted: self.adopted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn locked<T>(
        &self,
        policy: &Name,
        identity: &Identity,
        work: impl FnOnce(&mut Shard, Key) -> T,
    ) -> T {
        let key = (policy.clone(), *identity);
        let shard = self.hasher.hash_one(&key) as usize % self.shards.len();
        self.on(&self.shards[shard], |shard| work(shard, key))
    }

    /// Works on a shard under its lock, and keeps count of the accounts.
    fn on<T>(&self, shard: &Mutex<Shard>, work: impl FnOnce(&mut Shard) -> T) -> T {
        // A shard is whole at every point where code under its lock could panic.
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shard.len();
        let output = work(&mut shard);
        let more = shard.len().wrapping_sub(before);
        if more != 0 {
            self.accounts.fetch_add(more, Ordering::Relaxed);
        }
        output
    }

    fn announce(&self, policy: &Name, identity: &Identity, ban: Ban) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        tracing::info!(%policy, %identity, length = ?ban.length(), "banned");
    }

    fn refuse(&self, now: Timestamp) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if self.warning.is_due(now) {
            tracing::warn!(
                capacity = self.capacity,
                "the table of bans is full: denials of newcomers do not lead to bans; raise the \
                 capacity of the gate's own store"
            );
        }
    }
}

impl fmt::Debug for Bans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bans").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
