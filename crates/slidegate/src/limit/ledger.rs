//! What one account spent under one quota: the exact sliding log.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::limit::entries::{Entries, MAX_WORDS};
use crate::limit::quota::{FINE_UNITS, Quota, coarse_tick_ms};
use crate::limit::{Standing, Timestamp};

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
    pub(crate) window: Window,
    entries: Entries,
}

/// A window in milliseconds; in its highest bit, whether stamps are whole ticks of a coarse quota.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window(NonZeroU64);

impl Window {
    const COARSE: u64 = 1 << 63;

    pub(crate) fn new(ms: u64, coarse: bool) -> Self {
        let bits = if coarse { ms | Self::COARSE } else { ms };
        Self(NonZeroU64::new(bits).expect("no window is empty"))
    }

    #[inline]
    pub(crate) fn ms(self) -> u64 {
        self.0.get() & !Self::COARSE
    }

    #[inline]
    pub(crate) fn is_coarse(self) -> bool {
        self.0.get() & Self::COARSE != 0
    }

    /// The first tick at or after this millisecond.
    #[inline]
    fn ceil_to_tick(self, ms: u64) -> u64 {
        // Nearly every ledger has the finest tick; spare it the division.
        if self.is_coarse() { ms.next_multiple_of(coarse_tick_ms(self.ms())) } else { ms }
    }
}

impl Ledger {
    /// An empty ledger for the quota's window.
    pub fn new(quota: Quota) -> Self {
        Self::from_runs(Window::new(quota.window_ms(), quota.is_coarse()), [])
    }

    /// Forgets what has left the window at `now`.
    ///
    /// If the clock has stepped back, entries that now lie in the future are pulled to the
    /// present: they leave after one window at the latest, and no earlier than they should.
    pub fn expire(&mut self, now: Timestamp) {
        self.expire_in_order(now);
        self.pull_back(self.present_ms(now));
    }

    /// [`expire`](Self::expire) if the clock has not stepped back since the last spend. It does not
    /// read the newest entry, which may be in another cache line than the oldest.
    #[inline]
    pub(crate) fn expire_in_order(&mut self, now: Timestamp) {
        while self.entries.first_ms().is_some_and(|first_ms| self.leaves(first_ms) <= now) {
            self.entries.take_first(u32::MAX);
        }
    }

    /// Whether `cost` units fit, as of the last [`expire`](Self::expire).
    #[inline]
    pub fn admits(&self, quota: Quota, cost: u32) -> bool {
        cost <= self.remaining(quota)
    }

    /// Records a spend of `cost` at `now`; the caller has seen that it fits.
    #[inline]
    pub fn spend(&mut self, quota: Quota, cost: u32, now: Timestamp) {
        debug_assert_eq!(quota.window_ms(), self.window.ms());
        if quota.is_coarse() != self.window.is_coarse() {
            self.change_tick(quota, cost, now);
        }
        // Nothing to forget after `admits`, but callers need not call it.
        self.forget_down_to(u32::MAX - cost);
        self.entries.push(self.present_ms(now), cost, MAX_WORDS.min(quota.units().get() as usize));
    }

    /// Records `cost` units at `now` whether they fit or not. Where they do not, they take the place of
    /// as many of the oldest units: the ledger grows no further, and forgets no more than it learns.
    /// Of a cost above the units of the quota, no more than those are kept.
    pub fn record(&mut self, quota: Quota, cost: u32, now: Timestamp) {
        let cost = cost.min(quota.units().get());
        let lacking = cost.saturating_sub(self.remaining(quota));
        self.forget_down_to(self.entries.used() - lacking.min(self.entries.used()));
        self.spend(quota, cost, now);
    }

    /// How many units are left, as of the last [`expire`](Self::expire).
    #[inline]
    pub fn remaining(&self, quota: Quota) -> u32 {
        quota.units().get().saturating_sub(self.entries.used())
    }

    /// How long until `cost` units fit if nothing else is spent; zero if they do now.
    pub fn retry_after(&self, quota: Quota, cost: u32, now: Timestamp) -> Duration {
        Duration::from_nanos(self.retry_after_ns(quota, cost, now))
    }

    #[inline]
    fn retry_after_ns(&self, quota: Quota, cost: u32, now: Timestamp) -> u64 {
        // Every unit above this many has to leave first.
        let may_stay = quota.units().get().saturating_sub(cost);
        let must_leave = self.entries.used().saturating_sub(may_stay);
        self.leaves_after_ns(self.entries.unit_ms(must_leave), now)
    }

    /// How long until the first spent unit is free again; zero if none is spent.
    pub fn reset_after(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.reset_after_ns(now))
    }

    /// Where the quota stands, for a request that fits it.
    #[inline]
    pub(crate) fn standing(&self, quota: Quota, now: Timestamp) -> Standing {
        Standing {
            remaining: self.remaining(quota),
            reset_after_ns: self.reset_after_ns(now),
            ..Standing::untouched(quota)
        }
    }

    /// Where the quota stands, for a request that may not fit it.
    #[inline]
    pub(crate) fn standing_for(&self, quota: Quota, cost: u32, now: Timestamp) -> Standing {
        let retry_after_ns = self.retry_after_ns(quota, cost, now);
        Standing { retry_after_ns, ..self.standing(quota, now) }
    }

    #[inline]
    fn reset_after_ns(&self, now: Timestamp) -> u64 {
        self.leaves_after_ns(self.entries.first_ms(), now)
    }

    #[inline]
    fn leaves_after_ns(&self, stamp_ms: Option<u64>, now: Timestamp) -> u64 {
        stamp_ms.map_or(0, |ms| self.leaves(ms).as_nanos().saturating_sub(now.as_nanos()))
    }

    /// Takes back up to `units` of the newest units; tells how many.
    pub fn refund_newest(&mut self, units: u32) -> u32 {
        let mut left = units;
        while left > 0 && !self.is_empty() {
            left -= self.entries.take_last(left);
        }
        units - left
    }

    /// Takes back up to `units` units that were spent at `at`; tells how many. Those that are a
    /// window old at `now` are free already, and what has their stamp may be another's.
    pub fn refund_at(&mut self, units: u32, at: Timestamp, now: Timestamp) -> u32 {
        if at + Duration::from_millis(self.window.ms()) <= now {
            return 0;
        }
        self.entries.take_at(self.present_ms(at), units)
    }

    /// Forgets what was spent up to `at`. An entry whose tick ends later stays, with all its units.
    pub fn forget_until(&mut self, at: Timestamp) {
        while self.entries.first_ms().is_some_and(|first_ms| first_ms <= at.as_millis()) {
            self.entries.take_first(u32::MAX);
        }
    }

    /// Whether nothing is spent, as of the last [`expire`](Self::expire).
    pub fn is_empty(&self) -> bool {
        self.entries.used() == 0
    }

    /// How many entries the ledger keeps.
    pub fn entries(&self) -> usize {
        self.entries.iter().count()
    }

    /// Whether everything will have left the window at `now`.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        let last_ms = self.entries.last_ms();
        last_ms.is_none_or(|last_ms| last_ms + self.window.ms() <= now.as_millis())
    }

    /// The entries, oldest first: stamp in milliseconds, and units.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.entries.iter()
    }

    /// A ledger of the same standing in a single entry: all its units, held until the newest
    /// leaves.
    pub(crate) fn condensed(&self) -> Self {
        let newest = self.entries.last_ms().map(|last_ms| (last_ms, self.entries.used()));
        Self::from_runs(self.window, newest)
    }

    /// A ledger of these entries, which come oldest first, at the ticks of its window.
    pub(crate) fn from_runs(window: Window, runs: impl IntoIterator<Item = (u64, u32)>) -> Self {
        let mut ledger = Self { window, entries: Entries::default() };
        for (stamp_ms, units) in runs {
            // No quota looks back further than this many units.
            ledger.forget_down_to(u32::MAX - units);
            ledger.entries.push(window.ceil_to_tick(stamp_ms), units, MAX_WORDS);
        }
        ledger
    }

    /// Both ledgers' entries in one: every unit of either counts.
    pub(crate) fn merged(&self, other: &Self) -> Self {
        let mut runs: Vec<(u64, u32)> = self.runs().chain(other.runs()).collect();
        runs.sort_unstable_by_key(|(stamp_ms, _)| *stamp_ms);
        // Two ledgers kept to the millisecond may have too many entries for one.
        let both_coarse = self.window.is_coarse() && other.window.is_coarse();
        let coarse = both_coarse || runs.len() > MAX_ENTRIES;
        Self::from_runs(Window::new(self.window.ms(), coarse), runs)
    }

    fn leaves(&self, stamp_ms: u64) -> Timestamp {
        Timestamp::from_millis(stamp_ms + self.window.ms())
    }

    /// The latest stamp that a spend up to `now` can have.
    #[inline]
    fn present_ms(&self, now: Timestamp) -> u64 {
        self.window.ceil_to_tick(now.as_millis_ceil())
    }

    /// When the units in force make ticks coarser, so do the entries there are; that keeps their
    /// number within bounds, and holds none longer than the coarser tick allows. When they make
    /// them finer, no entry may be later than the present is now.
    ///
    /// They stay coarse while there are more units than a fine ledger has room for, which only
    /// denied requests can be added to.
    #[cold]
    fn change_tick(&mut self, quota: Quota, cost: u32, now: Timestamp) {
        if !quota.is_coarse() && self.entries.used().saturating_add(cost) > FINE_UNITS {
            return;
        }
        let window = Window::new(self.window.ms(), quota.is_coarse());
        *self = Self::from_runs(window, self.runs());
        self.pull_back(self.present_ms(now));
    }

    /// Moves entries that lie after the present to it. Whatever they are, they were spent before.
    #[cold]
    fn pull_back(&mut self, present_ms: u64) {
        let mut pulled = 0;
        while self.entries.last_ms().is_some_and(|last_ms| last_ms > present_ms) {
            pulled += self.entries.take_last(u32::MAX);
        }
        if pulled > 0 {
            self.entries.push(present_ms, pulled, MAX_WORDS);
        }
    }

    fn forget_down_to(&mut self, units: u32) {
        while self.entries.used() > units {
            self.entries.take_first(self.entries.used() - units);
        }
    }
}

/// The most entries that any ledger comes to have.
pub(crate) const MAX_ENTRIES: usize = FINE_UNITS as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_careless_caller_breaks_nothing() {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        let quota = Quota::per_minute(u32::MAX);
        let mut ledger = Ledger::new(quota);
        ledger.spend(quota, 1, at(100));
        ledger.spend(quota, 1, at(50));
        assert_eq!(ledger.remaining(quota), u32::MAX - 2);
        ledger.spend(quota, u32::MAX, at(51));
        ledger.spend(quota, u32::MAX, at(52));
        assert_eq!(ledger.remaining(quota), 0);
        ledger.expire(at(200));
        assert!(ledger.is_empty());
    }
}
