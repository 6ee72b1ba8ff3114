//! The most that an identity asked for in any window, had nothing been refused.

use std::num::NonZeroU32;

use slidegate::limit::Ledger;
use slidegate::{Quota, Timestamp};

/// The requests of one identity in the last window, and the most units that any window had.
///
/// The ledger is one of a quota of the [busiest](Self::busiest) units, so a quota of these units refuses
/// nothing and one of fewer does. Above 4096 units the window in which they are first exceeded is exact
/// to a tick, a 4096th of the window.
///
/// Every call passes a quota whose window is meant, and whose units do not matter.
#[derive(Debug)]
pub(crate) struct DemandWindow {
    ledger: Ledger,
    busiest: u32,
}

/// What a request has made of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demanded {
    /// No window of the identity had as many units.
    Most,
    Less,
}

impl DemandWindow {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { ledger: Ledger::new(with_units(quota, 1)), busiest: 0 }
    }

    /// The most units in any window.
    pub(crate) fn busiest(&self) -> u64 {
        self.busiest.into()
    }

    /// Whether requests are about to leave the window.
    pub(crate) fn is_due(&self, at: Timestamp) -> bool {
        !self.ledger.is_empty() && self.ledger.reset_after(at).is_zero()
    }

    /// Adds a request, which is no earlier than the last.
    pub(crate) fn add(&mut self, quota: Quota, at: Timestamp, cost: u32) -> Demanded {
        self.ledger.expire(at);
        let units = used(&self.ledger, quota).saturating_add(cost);
        let is_most = units > self.busiest;
        self.busiest = self.busiest.max(units);
        self.ledger.spend(with_units(quota, self.busiest), cost, at);
        if is_most { Demanded::Most } else { Demanded::Less }
    }

    /// The units in each of so many parts of the window whose last request was at `until`, the oldest
    /// first.
    pub(crate) fn density(&self, quota: Quota, until: Timestamp, parts: u64) -> Vec<u64> {
        let window_ms = window_ms(quota);
        let tick_ms = with_units(quota, self.busiest).tick().as_millis() as u64;
        let end_ms = until.as_nanos().div_ceil(1_000_000).next_multiple_of(tick_ms);
        let mut rest = self.ledger.clone();
        // Lets one part after the other leave the window.
        let part = |part: u64| {
            let ago_ms = (part * window_ms).div_ceil(parts);
            let before = used(&rest, quota);
            rest.expire(Timestamp::from_millis(end_ms + window_ms - ago_ms));
            u64::from(before - used(&rest, quota))
        };
        (0..parts).rev().map(part).collect()
    }
}

/// The units in a ledger.
fn used(ledger: &Ledger, quota: Quota) -> u32 {
    u32::MAX - ledger.remaining(with_units(quota, u32::MAX))
}

/// At least one unit in the same window.
fn with_units(quota: Quota, units: u32) -> Quota {
    let units = NonZeroU32::new(units).unwrap_or(NonZeroU32::MIN);
    Quota::new(units, quota.window()).expect("the window of another quota")
}

/// The window of a quota, in milliseconds.
pub(crate) fn window_ms(quota: Quota) -> u64 {
    u64::try_from(quota.window().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_windows_may_begin_anywhere() {
        let quota = Quota::per_second(1);
        let mut window = DemandWindow::new(quota);
        for (ms, cost) in [(0, 1), (500, 1), (900, 3), (1400, 1), (1500, 1), (2500, 1)] {
            window.add(quota, Timestamp::from_millis(ms), cost);
        }
        // From 500, which is included, to 1500, which is not.
        assert_eq!(window.busiest(), 5);
        assert_eq!(window.density(quota, Timestamp::from_millis(2500), 2), [0, 1]);
    }

    #[test]
    fn every_unit_is_in_the_part_of_its_request() {
        let quota = Quota::per_second(1);
        let mut window = DemandWindow::new(quota);
        for (ms, cost) in [(1001, 1), (1249, 2), (1500, 3), (1501, 4), (2000, 5)] {
            window.add(quota, Timestamp::from_millis(ms), cost);
        }
        assert_eq!(window.density(quota, Timestamp::from_millis(2000), 4), [3, 3, 4, 5]);
    }

    #[test]
    fn a_busy_identity_takes_no_more_than_its_ticks() {
        let quota = Quota::per_minute(1);
        let mut window = DemandWindow::new(quota);
        for ms in 0..200_000 {
            window.add(quota, Timestamp::from_millis(ms), 1);
        }
        assert!(window.ledger.entries() <= 4097, "{}", window.ledger.entries());
        let tick_ms = 15;
        assert!((60_000..=60_000 + tick_ms).contains(&window.busiest()), "{}", window.busiest());
        let density = window.density(quota, Timestamp::from_millis(199_999), 60);
        assert!(density.iter().all(|units| (980..=1020).contains(units)), "{density:?}");
    }
}
