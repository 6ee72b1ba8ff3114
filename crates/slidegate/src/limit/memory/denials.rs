//! Recent denials, answered again without a lock.
//!
//! A denied charge will be denied again until a unit of its account leaves the window, unless
//! somebody writes to the account. So the answer can be kept beside the shard and read without
//! its lock: a client that floods the store takes no lock from anybody else.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

use super::{SHARD_SHIFT, StoreClock};
use crate::limit::charge::Charge;
use crate::limit::clock::Timestamp;
use crate::limit::quota::Quota;
use crate::limit::store::{Receipt, Standing, Standings};
use crate::policy::identity::WORDS;

/// For each shard. An answer is in one of the two slots of a pair, of which its hash says two.
const PAIRS_PER_SHARD: usize = 32;
/// Charges with more quotas are not kept. Two are a minute and a day.
const MAX_QUOTAS: usize = 2;
/// No answer is kept longer than this, so that a client that has gone makes way.
const MOST_NS: u64 = 1_000_000_000;

/// The denials that can be given again. Each pair of slots belongs to one shard, and is written
/// only under that shard's lock.
#[derive(Debug)]
pub(super) struct Denials {
    /// Part of the hash of each slot's account. There are so few of them that they stay in the
    /// processor's first cache, so a charge that is not here is soon sent on.
    tags: Box<[[AtomicU16; 2]]>,
    slots: Box<[[Slot; 2]]>,
}

/// A denial and whose it is, behind a sequence lock: `version` is odd while the rest is written.
///
/// Three cache lines. The first two have all that a short identity with one quota needs.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Slot {
    version: AtomicU64,
    hash: AtomicU64,
    policy: AtomicU64,
    /// How many quotas there are in the upper half; below them, the cost.
    cost: AtomicU64,
    first: KeptStanding,
    since_ns: AtomicU64,
    until_ns: AtomicU64,
    identity: [AtomicU64; WORDS],
    second: KeptStanding,
}

#[derive(Debug, Default)]
struct KeptStanding {
    window_ms: AtomicU64,
    /// In the upper half; below them, how many remain.
    units: AtomicU64,
    retry_ns: AtomicU64,
    reset_ns: AtomicU64,
}

impl Denials {
    /// For a power of two of shards.
    pub(super) fn new(shards: usize) -> Self {
        let pairs = 0..shards * PAIRS_PER_SHARD;
        Self {
            tags: pairs.clone().map(|_| Default::default()).collect(),
            slots: pairs.map(|_| Default::default()).collect(),
        }
    }

    /// The answer to a charge, if it is still certain. Needs no lock.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u64,
        charge: &Charge<'_>,
        clock: &StoreClock,
    ) -> Option<Receipt> {
        let (pair, i) = self.place(hash)?;
        let slot = &self.slots[pair][i];
        // First, because the processor can read its counter while it waits for the slot.
        let now = clock.now();
        let version = slot.version.load(Ordering::Acquire);
        let quotas = charge.quotas().as_slice();
        if version % 2 == 1 || !slot.answers(hash, charge, quotas, now) {
            return None;
        }
        let first = slot.first.standing(quotas[0], now);
        let second = quotas.get(1).map(|quota| slot.second.standing(*quota, now));
        fence(Ordering::Acquire);
        if load(&slot.version) != version {
            return None;
        }
        let mut standings = Standings::new();
        standings.push(first);
        if let Some(second) = second {
            standings.push(second);
        }
        Some(Receipt { spent: false, at: now, degraded: false, standings })
    }

    /// Keeps a denial. The caller holds the shard's lock.
    pub(super) fn remember(&self, hash: u64, charge: &Charge<'_>, receipt: &Receipt) {
        if receipt.standings.len() > MAX_QUOTAS {
            return;
        }
        let place = self.place(hash).or_else(|| self.vacancy(hash, receipt.at));
        let Some((pair, i)) = place else { return };
        let slot = &self.slots[pair][i];
        slot.write(|| slot.fill(hash, charge, receipt));
        self.tags[pair][i].store(tag(hash), Ordering::Relaxed);
    }

    /// Drops what is kept of an account. The caller holds the shard's lock.
    #[inline]
    pub(super) fn forget(&self, hash: u64) {
        let Some((pair, i)) = self.place(hash) else { return };
        let slot = &self.slots[pair][i];
        slot.write(|| store(&slot.until_ns, 0));
        self.tags[pair][i].store(FREE, Ordering::Relaxed);
    }

    /// The two pairs that an account can be in. They go by the same bits as shards, and some more,
    /// of which the highest tells the two apart: both are the shard's.
    #[inline]
    fn pairs(&self, hash: u64) -> [usize; 2] {
        let first = (hash >> SHARD_SHIFT) as usize & (self.slots.len() - 1);
        [first, first ^ (self.slots.len() / 2)]
    }

    /// Where an account is.
    #[inline]
    fn place(&self, hash: u64) -> Option<(usize, usize)> {
        let tag = tag(hash);
        for pair in self.pairs(hash) {
            let [a, b] = &self.tags[pair];
            if a.load(Ordering::Relaxed) == tag {
                return Some((pair, 0));
            }
            if b.load(Ordering::Relaxed) == tag {
                return Some((pair, 1));
            }
        }
        None
    }

    /// A slot that is free or has run out. If there is none, those who are there stay: taking turns
    /// would help nobody.
    fn vacancy(&self, hash: u64, now: Timestamp) -> Option<(usize, usize)> {
        let slots = self.pairs(hash).into_iter().flat_map(|pair| [(pair, 0), (pair, 1)]);
        let over = |slot: &Slot| load(&slot.until_ns) <= now.as_nanos();
        slots.into_iter().find(|(pair, i)| over(&self.slots[*pair][*i]))
    }
}

/// The tag of a slot that has nothing.
const FREE: u16 = 0;

/// Bits of the hash that its pair does not go by; not those of a free slot.
#[inline]
fn tag(hash: u64) -> u16 {
    hash as u16 | 1
}

impl Slot {
    fn write(&self, change: impl FnOnce()) {
        let version = load(&self.version);
        store(&self.version, version + 1);
        fence(Ordering::Release);
        change();
        self.version.store(version + 2, Ordering::Release);
    }

    fn fill(&self, hash: u64, charge: &Charge<'_>, receipt: &Receipt) {
        let at = |after_ns: u64| receipt.at.as_nanos().saturating_add(after_ns);
        let resets = receipt.standings.iter().map(|s| s.reset_after_ns);
        let first_change = resets.filter(|after_ns| *after_ns > 0).min().unwrap_or_default();
        store(&self.hash, hash);
        store(&self.since_ns, receipt.at.as_nanos());
        store(&self.until_ns, at(first_change.min(MOST_NS)));
        store(&self.cost, cost_word(charge));
        store(&self.policy, policy_word(charge));
        let words = self.identity.iter().zip(charge.identity().words());
        words.for_each(|(word, value)| store(word, value));
        for (kept, standing) in [&self.first, &self.second].into_iter().zip(&receipt.standings) {
            store(&kept.window_ms, standing.quota.window_ms());
            store(&kept.units, both(standing.quota.units().get(), standing.remaining));
            store(&kept.retry_ns, at(standing.retry_after_ns));
            store(&kept.reset_ns, at(standing.reset_after_ns));
        }
    }

    /// Whether this is the answer to a charge, and has not run out.
    #[inline]
    fn answers(&self, hash: u64, charge: &Charge<'_>, quotas: &[Quota], now: Timestamp) -> bool {
        load(&self.hash) == hash
            && load(&self.cost) == cost_word(charge)
            && load(&self.policy) == policy_word(charge)
            && self.identity.iter().zip(charge.identity().words()).all(|(w, v)| load(w) == v)
            && (load(&self.since_ns)..load(&self.until_ns)).contains(&now.as_nanos())
            && self.first.is_of(quotas[0])
            && quotas.get(1).is_none_or(|quota| self.second.is_of(*quota))
            && !charge.is_shadow()
            && !charge.counts_denied()
    }
}

impl KeptStanding {
    #[inline]
    fn is_of(&self, quota: Quota) -> bool {
        load(&self.window_ms) == quota.window_ms()
            && (load(&self.units) >> 32) as u32 == quota.units().get()
    }

    #[inline]
    fn standing(&self, quota: Quota, now: Timestamp) -> Standing {
        let after = |word: &AtomicU64| load(word).saturating_sub(now.as_nanos());
        Standing {
            quota,
            remaining: load(&self.units) as u32,
            had_room: false,
            retry_after_ns: after(&self.retry_ns),
            reset_after_ns: after(&self.reset_ns),
        }
    }
}

// The version orders everything; the words themselves need not be ordered.

#[inline]
fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[inline]
fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// Half of the policy's digest; the other half is in the hash.
#[inline]
fn policy_word(charge: &Charge<'_>) -> u64 {
    charge.policy().digest().bits() as u64
}

#[inline]
fn cost_word(charge: &Charge<'_>) -> u64 {
    both(charge.quotas().as_slice().len() as u32, charge.cost().get())
}

fn both(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}
