//! The most that an identity asked for in any window, had nothing been refused.

use slidegate::{Quota, Timestamp};
use smallvec::SmallVec;

/// Up to this many units a quota is kept to the millisecond, and above in so many ticks a window.
const FINE_UNITS: u64 = 4096;

/// The requests of one identity in the last window, and the most units that any window had.
///
/// They are stamped and forgotten as a ledger of the [busiest](Self::busiest) units would do it, so
/// that a quota of these units refuses nothing and one of fewer does. Above 4096 units the window in
/// which they are first exceeded is exact to a tick, a 4096th of the window.
#[derive(Debug, Default)]
pub(crate) struct DemandWindow {
    /// Stamp in milliseconds, and units; at most 4097 that are in the window, and as many that have
    /// left it. Most identities have no more than two, which are in place.
    entries: SmallVec<[(u64, u32); 2]>,
    /// How many of the entries have left the window.
    gone: usize,
    units: u64,
    busiest: u64,
    is_coarse: bool,
}

/// What a request has made of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demanded {
    /// No window of the identity had as many units.
    Most,
    Less,
}

impl DemandWindow {
    /// The most units in any window.
    pub(crate) fn busiest(&self) -> u64 {
        self.busiest
    }

    /// Whether requests are about to leave the window.
    pub(crate) fn is_due(&self, window_ms: u64, at: Timestamp) -> bool {
        self.entries.get(self.gone).is_some_and(|(stamp, _)| stamp + window_ms <= at.as_millis())
    }

    /// Adds a request.
    pub(crate) fn add(&mut self, window_ms: u64, at: Timestamp, cost: u32) -> Demanded {
        self.expire(window_ms, at);
        self.units += u64::from(cost);
        if self.units > FINE_UNITS && !self.is_coarse {
            self.coarsen(window_ms);
        }
        let stamp = self.stamp(window_ms, at.as_nanos().div_ceil(1_000_000));
        match self.entries.last_mut() {
            Some((last, units)) if *last == stamp => *units = units.saturating_add(cost),
            _ => self.entries.push((stamp, cost)),
        }
        if self.units > self.busiest {
            self.busiest = self.units;
            return Demanded::Most;
        }
        Demanded::Less
    }

    fn expire(&mut self, window_ms: u64, at: Timestamp) {
        while self.is_due(window_ms, at) {
            self.units -= u64::from(self.entries[self.gone].1);
            self.gone += 1;
        }
        // As many are moved as have left, so that each is moved once.
        if self.gone * 2 >= self.entries.len() {
            self.entries.drain(..self.gone);
            self.gone = 0;
        }
    }

    /// The units in each of so many parts of the window that ends now, the oldest first.
    pub(crate) fn density(&self, window_ms: u64, parts: usize) -> Vec<u64> {
        let mut density = vec![0; parts];
        let Some((end_ms, _)) = self.entries.last() else { return density };
        for (stamp, units) in &self.entries[self.gone..] {
            let ago_ms = (end_ms - stamp).min(window_ms - 1);
            let part = (ago_ms as u128 * parts as u128 / u128::from(window_ms)) as usize;
            density[parts - 1 - part] += u64::from(*units);
        }
        density
    }

    fn stamp(&self, window_ms: u64, ms: u64) -> u64 {
        if self.is_coarse { ceil_to_tick(window_ms, ms) } else { ms }
    }

    fn coarsen(&mut self, window_ms: u64) {
        self.is_coarse = true;
        let mut entries: SmallVec<[(u64, u32); 2]> = SmallVec::new();
        for (stamp, units) in self.entries.drain(self.gone..) {
            let stamp = ceil_to_tick(window_ms, stamp);
            match entries.last_mut() {
                Some((last, sum)) if *last == stamp => *sum = sum.saturating_add(units),
                _ => entries.push((stamp, units)),
            }
        }
        (self.entries, self.gone) = (entries, 0);
    }
}

fn ceil_to_tick(window_ms: u64, ms: u64) -> u64 {
    ms.next_multiple_of(window_ms.div_ceil(FINE_UNITS))
}

/// The window of a quota, in milliseconds.
pub(crate) fn window_ms(quota: Quota) -> u64 {
    u64::try_from(quota.window().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_window_may_begin_anywhere() {
        let mut window = DemandWindow::default();
        for (ms, cost) in [(0, 1), (500, 1), (900, 3), (1400, 1), (1500, 1), (2500, 1)] {
            window.add(1000, Timestamp::from_millis(ms), cost);
        }
        // From 500, which is included, to 1500, which is not.
        assert_eq!(window.busiest(), 5);
        assert_eq!(window.density(1000, 2), [0, 1]);
    }

    #[test]
    fn a_busy_identity_takes_no_more_than_its_ticks() {
        let mut window = DemandWindow::default();
        for ms in 0..200_000 {
            window.add(60_000, Timestamp::from_millis(ms), 1);
        }
        assert!(window.entries.len() - window.gone <= 4097, "{}", window.entries.len());
        let tick_ms = 15;
        assert!((60_000..=60_000 + tick_ms).contains(&window.busiest()), "{}", window.busiest());
    }
}
