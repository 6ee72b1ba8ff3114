//! What one account spent under one quota: the exact sliding log.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::quota::{FINE_UNITS, Quota, ceil_to_tick};
use crate::stamps::{Stamp, Stamps, room_beyond};

/// The spends of one account in the last window, oldest first.
///
/// A spend is stamped with the first tick at or after its instant and leaves when
/// `now ≥ stamp + window`, so rounding only ever holds a unit longer. Decisions depend on the
/// newest `units` units alone, which is what bounds a ledger: it has at most
/// `min(units, 4097)` entries.
///
/// Every call passes the quota that is in force: its window must be the ledger's, its units may
/// change from one call to the next.
#[derive(Debug, Clone)]
pub struct Ledger {
    stamps: Stamps,
    /// The units of each entry. Most ledgers only ever have entries of one unit and keep none.
    #[expect(clippy::box_collection, reason = "most ledgers have none, so it must be small")]
    counts: Option<Box<VecDeque<u32>>>,
    used: u32,
    tick_ms: u32,
    window_ms: u64,
}

impl Ledger {
    /// An empty ledger for the quota's window.
    pub fn new(quota: Quota) -> Self {
        Self {
            stamps: Stamps::new(),
            counts: None,
            used: 0,
            tick_ms: tick_ms(quota),
            window_ms: quota.window_ms(),
        }
    }

    /// Forgets what has left the window at `now`.
    ///
    /// If the clock has stepped back, entries that now lie in the future are pulled to the
    /// present: they leave after one window at the latest, and no earlier than they should.
    #[inline]
    pub fn settle(&mut self, now: Timestamp) {
        let (Some(first), Some(last)) = (self.stamps.first(), self.stamps.last()) else { return };
        let present_ms = ceil_to_tick(now.as_millis_ceil(), u64::from(self.tick_ms));
        if first.ms() + self.window_ms <= now.as_millis() || last.ms() > present_ms {
            self.forget_expired(now);
            self.pull_back(present_ms);
        }
    }

    /// Whether `cost` units fit, as of the last [`settle`](Self::settle).
    #[inline]
    pub fn admits(&self, quota: Quota, cost: u32) -> bool {
        self.used <= quota.units().get() && cost <= quota.units().get() - self.used
    }

    /// Records a spend of `cost` at `now`, to which the ledger is settled; the caller has seen that
    /// it fits.
    #[inline]
    pub fn spend(&mut self, quota: Quota, cost: u32, now: Timestamp) {
        debug_assert_eq!(quota.window_ms(), self.window_ms);
        let stamp_ms = quota.stamp(now);
        if quota.tick_ms() != u64::from(self.tick_ms) {
            self.change_tick(tick_ms(quota), stamp_ms);
        }
        self.push(stamp_ms, cost, entries_of(quota));
    }

    /// Records a denied request, at the expense of the oldest units, which no longer matter.
    pub fn spend_denied(&mut self, quota: Quota, cost: u32, now: Timestamp) {
        self.forget_down_to(quota.units().get() - cost);
        self.spend(quota, cost, now);
    }

    /// How many units are left, as of the last [`settle`](Self::settle).
    pub fn remaining(&self, quota: Quota) -> u32 {
        quota.units().get().saturating_sub(self.used)
    }

    /// How long until `cost` units fit if nobody else spends; zero if they do now.
    pub fn retry_after(&self, quota: Quota, cost: u32, now: Timestamp) -> Duration {
        if self.admits(quota, cost) {
            return Duration::ZERO;
        }
        // Every unit above this many has to leave first.
        let may_stay = quota.units().get().saturating_sub(cost);
        let mut must_leave = self.used - may_stay;
        for (stamp_ms, units) in self.runs() {
            if units >= must_leave {
                return self.leaves(stamp_ms).saturating_since(now);
            }
            must_leave -= units;
        }
        unreachable!("the entries add up to the units used")
    }

    /// How long until the first spent unit is free again; zero if none is spent.
    pub fn reset_after(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.reset_after_ns(now))
    }

    #[inline]
    pub(crate) fn reset_after_ns(&self, now: Timestamp) -> u64 {
        let leaves = self.stamps.first().map_or(now, |s| self.leaves(s.ms()));
        leaves.as_nanos().saturating_sub(now.as_nanos())
    }

    /// Takes back up to `units` of the newest units; tells how many.
    pub fn refund_newest(&mut self, units: u32) -> u32 {
        let mut left = units;
        while left > 0 && !self.stamps.is_empty() {
            left -= self.take(self.stamps.len() - 1, left);
        }
        units - left
    }

    /// Takes back up to `units` units that were spent at `at`; tells how many.
    pub fn refund_at(&mut self, quota: Quota, units: u32, at: Timestamp) -> u32 {
        let stamp = Stamp::new(quota.stamp(at));
        let mut left = units;
        while left > 0 {
            let Some(from_last) = self.stamps.iter().rev().position(|s| s == stamp) else { break };
            left -= self.take(self.stamps.len() - 1 - from_last, left);
        }
        units - left
    }

    /// Whether nothing is spent, as of the last [`settle`](Self::settle).
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// How many entries the ledger keeps.
    pub fn entries(&self) -> usize {
        self.stamps.len()
    }

    pub(crate) fn window_ms(&self) -> u64 {
        self.window_ms
    }

    /// Whether everything will have left the window at `now`.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.stamps.last().is_none_or(|s| s.ms() + self.window_ms <= now.as_millis())
    }

    /// The entries, oldest first: stamp in milliseconds, and units.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let counts = self.counts.as_deref();
        self.stamps.iter().enumerate().map(move |(i, s)| (s.ms(), counts.map_or(1, |c| c[i])))
    }

    /// A ledger of the same standing in a single entry: all its units, held until the newest
    /// leaves.
    pub(crate) fn condensed(&self) -> Self {
        let newest = self.stamps.last().map(|s| (s.ms(), self.used));
        Self::from_runs(self.window_ms, self.tick_ms, newest)
    }

    /// A ledger of these entries, which come oldest first.
    pub(crate) fn from_runs(
        window_ms: u64,
        tick_ms: u32,
        runs: impl IntoIterator<Item = (u64, u32)>,
    ) -> Self {
        let mut ledger = Self { stamps: Stamps::new(), counts: None, used: 0, tick_ms, window_ms };
        for (stamp_ms, units) in runs {
            ledger.push(stamp_ms, units, FINE_UNITS as usize);
        }
        ledger
    }

    pub(crate) fn tick_ms(&self) -> u32 {
        self.tick_ms
    }

    /// Both ledgers' entries in one: every unit of either counts.
    pub(crate) fn merged(&self, other: &Self) -> Self {
        let mut runs: Vec<(u64, u32)> = self.runs().chain(other.runs()).collect();
        runs.sort_unstable_by_key(|(stamp_ms, _)| *stamp_ms);
        Self::from_runs(self.window_ms, self.tick_ms.min(other.tick_ms), runs)
    }

    fn leaves(&self, stamp_ms: u64) -> Timestamp {
        Timestamp::from_millis(stamp_ms + self.window_ms)
    }

    /// Appends an entry; `most` is how many entries there will ever be.
    fn push(&mut self, stamp_ms: u64, units: u32, most: usize) {
        if self.used.checked_add(units).is_none() {
            // Only merged histories come here. No quota looks further back than this.
            self.forget_down_to(u32::MAX - units);
        }
        self.used += units;
        let stamp = Stamp::new(stamp_ms);
        if self.counts.is_none() && (units > 1 || self.stamps.len() >= FINE_UNITS as usize) {
            self.start_counting();
        }
        if let Some(counts) = &mut self.counts {
            if self.stamps.last() == Some(stamp) {
                *counts.back_mut().expect("a count for every stamp") += units;
                return;
            }
            if counts.len() == counts.capacity() {
                counts.reserve_exact(room_beyond(counts.len(), most) - counts.len());
            }
            counts.push_back(units);
        }
        self.stamps.push(stamp, most);
    }

    /// Gives every entry a count, and entries of one stamp become one.
    fn start_counting(&mut self) {
        let mut stamps = Stamps::new();
        let mut counts: VecDeque<u32> = VecDeque::new();
        for stamp in self.stamps.iter() {
            if stamps.last() == Some(stamp) {
                *counts.back_mut().expect("a count for every stamp") += 1;
            } else {
                stamps.push(stamp, FINE_UNITS as usize + 1);
                counts.push_back(1);
            }
        }
        self.stamps = stamps;
        self.counts = Some(Box::new(counts));
    }

    /// When the units in force make ticks coarser, so do the entries there are; that keeps their
    /// number within bounds, and holds none longer than the coarser tick allows. When they make
    /// them finer, no entry may be later than the present is now.
    #[cold]
    fn change_tick(&mut self, tick_ms: u32, present_ms: u64) {
        if tick_ms > self.tick_ms {
            let coarse = u64::from(tick_ms);
            let coarser = |(stamp_ms, units)| (ceil_to_tick(stamp_ms, coarse), units);
            let runs: Vec<(u64, u32)> = self.runs().map(coarser).collect();
            *self = Self::from_runs(self.window_ms, tick_ms, runs);
        }
        self.tick_ms = tick_ms;
        self.pull_back(present_ms);
    }

    #[inline(never)]
    fn forget_expired(&mut self, now: Timestamp) {
        let now_ms = now.as_millis();
        while self.stamps.first().is_some_and(|s| s.ms() + self.window_ms <= now_ms) {
            self.take(0, u32::MAX);
        }
    }

    /// Moves entries that lie after the present to it. Whatever they are, they were spent before.
    fn pull_back(&mut self, present_ms: u64) {
        let mut pulled = 0;
        while self.stamps.last().is_some_and(|s| s.ms() > present_ms) {
            pulled += self.take(self.stamps.len() - 1, u32::MAX);
        }
        if pulled > 0 {
            self.push(present_ms, pulled, FINE_UNITS as usize + 1);
        }
    }

    fn forget_down_to(&mut self, units: u32) {
        while self.used > units {
            self.take(0, self.used - units);
        }
    }

    /// Takes up to `units` out of one entry, and the entry with its last unit; tells how many.
    fn take(&mut self, entry: usize, units: u32) -> u32 {
        let taken = match &mut self.counts {
            None => 1,
            Some(counts) => {
                let taken = counts[entry].min(units);
                counts[entry] -= taken;
                if counts[entry] > 0 {
                    self.used -= taken;
                    return taken;
                }
                counts.remove(entry);
                taken
            }
        };
        self.stamps.remove(entry);
        self.used -= taken;
        if self.stamps.is_empty() {
            self.counts = None;
        }
        taken
    }
}

fn tick_ms(quota: Quota) -> u32 {
    u32::try_from(quota.tick_ms()).expect("a 4096th of a year is below 2^32 ms")
}

/// The most entries that a ledger of this quota comes to have.
fn entries_of(quota: Quota) -> usize {
    quota.units().get().min(FINE_UNITS + 1) as usize
}
