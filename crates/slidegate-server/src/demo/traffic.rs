//! Who sends what, and when, on a clock that starts at 0:00.

use std::iter;
use std::ops::Range;
use std::time::Duration;

use slidegate::Quota;

/// What a customer of the story has bought.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) per_minute: Quota,
    pub(super) per_day: Option<Quota>,
}

const STARTER: Plan = Plan { name: "starter", per_minute: Quota::per_minute(100), per_day: None };
const FREE: Plan =
    Plan { name: "free", per_minute: Quota::per_minute(60), per_day: Some(Quota::per_day(10_000)) };
const PRO: Plan = Plan {
    name: "pro",
    per_minute: Quota::per_minute(600),
    per_day: Some(Quota::per_day(100_000)),
};
const ENTERPRISE: Plan = Plan {
    name: "enterprise",
    per_minute: Quota::per_minute(6000),
    per_day: Some(Quota::per_day(1_000_000)),
};

/// Every plan that there is.
pub(super) const PLANS: [&Plan; 4] = [&STARTER, &FREE, &PRO, &ENTERPRISE];

impl Plan {
    /// All that the plan allows.
    pub(super) fn quotas(&self) -> impl Iterator<Item = Quota> {
        iter::once(self.per_minute).chain(self.per_day)
    }
}

/// Someone who sends requests.
#[derive(Debug)]
pub(super) struct Customer {
    pub(super) name: &'static str,
    pub(super) plan: &'static Plan,
    /// When each request is sent, in order.
    pub(super) sends: Vec<Duration>,
}

impl Customer {
    /// How many units any minute may see.
    pub(super) fn units(&self) -> usize {
        self.plan.per_minute.units().get() as usize
    }
}

/// Sends a whole quota just before 1:00, another just after, and a third when the first is due
/// back.
pub(super) fn burster() -> Customer {
    let seconds = [59, 60, 119];
    let sends = seconds.into_iter().flat_map(|at| evenly(secs(at)..secs(at + 1), 100)).collect();
    Customer { name: "burster", plan: &STARTER, sends }
}

/// A script that sends 50,000 requests in ten minutes, and those who share the API with it.
pub(super) fn script_and_neighbours() -> [Customer; 4] {
    [script(), neighbour("ann", &FREE), neighbour("bob", &PRO), neighbour("cho", &ENTERPRISE)]
}

/// Saves up most of a minute's quota, then hammers across the minute boundary, then keeps on.
fn script() -> Customer {
    let cycle = |start| {
        let at = move |second| secs(start) + secs(second);
        evenly(at(0)..at(50), 300)
            .chain(evenly(at(50)..at(70), 6000))
            .chain(evenly(at(70)..at(120), 3700))
    };
    let sends = (0..600).step_by(120).flat_map(cycle).collect();
    Customer { name: "script", plan: &PRO, sends }
}

/// Sends for ten minutes, now more and now less, at 50 to 90 percent of what the plan allows.
fn neighbour(name: &'static str, plan: &'static Plan) -> Customer {
    let ten_seconds_share = plan.per_minute.units().get() / 6;
    let slot = |i: u32| {
        // A quadratic walk: irregular to the eye, the same in every run.
        let percent = 50 + (3 * i * i + i * ten_seconds_share) % 41;
        evenly(
            secs(10 * u64::from(i))..secs(10 * u64::from(i + 1)),
            ten_seconds_share * percent / 100,
        )
    };
    Customer { name, plan, sends: (0..60).flat_map(slot).collect() }
}

/// This many requests, spread evenly.
fn evenly(span: Range<Duration>, requests: u32) -> impl Iterator<Item = Duration> {
    let length = span.end - span.start;
    (0..requests).map(move |i| span.start + length * i / requests)
}

const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_sends_50_000_requests_in_ten_minutes_in_order() {
        let sends = script().sends;
        assert_eq!(sends.len(), 50_000);
        assert!(sends.is_sorted());
        assert!(sends[49_999] < secs(600));
    }

    #[test]
    fn a_neighbour_sends_in_order_and_within_the_plan() {
        for customer in script_and_neighbours().iter().skip(1) {
            assert!(customer.sends.is_sorted());
            assert!(crate::demo::worst::worst(&customer.sends) <= customer.units());
        }
    }
}
