//! The most that an identity asked for in any window, had nothing been refused.

use std::num::NonZeroU32;

use slidegate::limit::Ledger;
use slidegate::policy::ResponseRule;
use slidegate::{Quota, Timestamp};

use crate::described_response::DescribedResponse;

/// The requests of one identity in the last window, and the most units that any window had.
///
/// A request needs room for what is held until its response, and is counted with what it has cost, which
/// is the same without a response that changes it. A quota of the [busiest](Self::busiest) units refuses
/// nothing, and one of fewer does. Above 4096 units the window in which they are first exceeded is exact
/// to a tick, a 4096th of the window.
///
/// Every call passes a quota whose window is meant, and whose units do not matter.
#[derive(Debug)]
pub(crate) struct DemandWindow {
    ledger: Ledger,
    busiest: u32,
    /// The most units that the ledger has had. They are more than the busiest if a request has cost
    /// more than it needed.
    capacity: u32,
}

/// What a request takes of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DemandedUnits {
    /// What it needs to be allowed.
    pub(crate) held: u32,
    /// What it has cost in the end.
    pub(crate) counted: u32,
}

/// What a request has made of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demanded {
    /// No window of the identity had as many units.
    Most,
    Less,
}

impl DemandedUnits {
    /// Of a request for which so much is held, under a policy with this rule for its response.
    pub(crate) fn new(
        rule: Option<&ResponseRule>,
        held: NonZeroU32,
        response: &DescribedResponse,
    ) -> Self {
        let held = held.get();
        Self { held, counted: rule.map_or(held, |rule| response.cost_under(rule, held)) }
    }
}

impl DemandWindow {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { ledger: Ledger::new(with_units(quota, 1)), busiest: 0, capacity: 0 }
    }

    /// The most units in any window, with those that its last request needed.
    pub(crate) fn busiest(&self) -> u64 {
        self.busiest.into()
    }

    /// Whether requests are about to leave the window.
    pub(crate) fn is_due(&self, at: Timestamp) -> bool {
        !self.ledger.is_empty() && self.ledger.reset_after(at).is_zero()
    }

    /// Adds a request, which is no earlier than the last.
    pub(crate) fn add(&mut self, quota: Quota, at: Timestamp, demanded: DemandedUnits) -> Demanded {
        self.ledger.expire(at);
        let used = used(&self.ledger, quota);
        let needed = used.saturating_add(demanded.held);
        let is_most = needed > self.busiest;
        self.busiest = self.busiest.max(needed);
        self.capacity = self.capacity.max(needed).max(used.saturating_add(demanded.counted));
        if demanded.counted > 0 {
            self.ledger.spend(with_units(quota, self.capacity), demanded.counted, at);
        }
        if is_most { Demanded::Most } else { Demanded::Less }
    }

    /// The units in each of so many parts of the window whose last request was at `until`, the oldest
    /// first.
    pub(crate) fn density(&self, quota: Quota, until: Timestamp, parts: u64) -> Vec<u64> {
        let window_ms = window_ms(quota);
        let tick_ms = with_units(quota, self.capacity).tick().as_millis() as u64;
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

    impl From<u32> for DemandedUnits {
        fn from(cost: u32) -> Self {
            Self { held: cost, counted: cost }
        }
    }

    #[test]
    fn a_request_needs_what_is_held_and_counts_as_what_it_has_cost() {
        let quota = Quota::per_second(1);
        let mut window = DemandWindow::new(quota);
        let mut add = |ms, held, counted| {
            window.add(quota, Timestamp::from_millis(ms), DemandedUnits { held, counted });
            window.busiest()
        };
        assert_eq!([add(0, 1, 0), add(1, 1, 0)], [1, 1], "refunded");
        assert_eq!(add(2, 1, 5000), 1, "it was allowed before its cost was known");
        assert_eq!(add(500, 1, 0), 5001);
        assert_eq!(add(1003, 2, 0), 5001, "what was recorded has left");
    }

    #[test]
    fn busiest_windows_may_begin_anywhere() {
        let quota = Quota::per_second(1);
        let mut window = DemandWindow::new(quota);
        for (ms, cost) in [(0, 1), (500, 1), (900, 3), (1400, 1), (1500, 1), (2500, 1)] {
            window.add(quota, Timestamp::from_millis(ms), cost.into());
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
            window.add(quota, Timestamp::from_millis(ms), cost.into());
        }
        assert_eq!(window.density(quota, Timestamp::from_millis(2000), 4), [3, 3, 4, 5]);
    }

    #[test]
    fn a_busy_identity_takes_no_more_than_its_ticks() {
        let quota = Quota::per_minute(1);
        let mut window = DemandWindow::new(quota);
        for ms in 0..200_000 {
            window.add(quota, Timestamp::from_millis(ms), 1.into());
        }
        assert!(window.ledger.entries() <= 4097, "{}", window.ledger.entries());
        let tick_ms = 15;
        assert!((60_000..=60_000 + tick_ms).contains(&window.busiest()), "{}", window.busiest());
        let density = window.density(quota, Timestamp::from_millis(199_999), 60);
        assert!(density.iter().all(|units| (980..=1020).contains(units)), "{density:?}");
    }
}
