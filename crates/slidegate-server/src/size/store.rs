//! How often the gateways ask Redis about an account, and what it holds there.

use slidegate::Quota;
use slidegate_redis::Layout;

use super::load::Accounts;
use super::model::SizedPolicy;
use crate::check::memory;

/// What gateways ask about one account.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AccountTraffic {
    /// Decisions in Redis a second: of requests, and of leases.
    pub(super) decisions: f64,
    /// Those of them that a request waits for.
    pub(super) waited: f64,
    /// Requests that pass, of any layout.
    pub(super) admitted: f64,
}

/// A lease lasts until about this many units are used, and at least this long in seconds.
const UNITS_OF_A_LEASE: f64 = 32.0;
const MIN_LEASE_S: f64 = 0.2;
const FILLED: f64 = 0.75;
/// Calls for each lease: it is renewed early, some units are refunded, and some requests find none.
const CALLS_OF_A_LEASE: f64 = 1.4;
const WAITED_OF_A_LEASE: f64 = 0.2;
/// A denial is repeated without Redis for at most so long.
const DENIED_S: f64 = 1.0;

impl AccountTraffic {
    /// About an account whose requests come to so many gateways alike.
    pub(super) fn about(
        account: Accounts,
        policy: &SizedPolicy,
        gateways: f64,
        trip_s: f64,
    ) -> Self {
        let requests = account.requests_per_second;
        let permitted = policy.permitted_per_second();
        if requests <= permitted {
            return policy.lease_s.map_or_else(
                || Self { decisions: requests, waited: requests, admitted: requests },
                |longest| Self::leased(requests, gateways, longest, trip_s),
            );
        }
        // A gateway knows from its own replies when a unit leaves. The first request of any gateway gets
        // it, and those of the others ask in vain.
        let asks_within = |time_s: f64| 1.0 - (-requests / gateways * time_s).exp();
        let in_vain = (gateways - 1.0) * permitted * asks_within(1.0 / permitted);
        let again = if policy.longest_window_s() > DENIED_S {
            gateways / DENIED_S * asks_within(DENIED_S)
        } else {
            0.0
        };
        let decisions = (permitted + in_vain + again).min(requests);
        Self { decisions, waited: decisions, admitted: permitted }
    }

    fn leased(requests: f64, gateways: f64, longest_s: f64, trip_s: f64) -> Self {
        let own = requests / gateways;
        let shortest = MIN_LEASE_S.max(8.0 * trip_s);
        let length = (UNITS_OF_A_LEASE / own).max(shortest).min(longest_s);
        // One that ends before it has arrived, or soon after that, is not taken.
        let units = if length <= 2.0 * trip_s { 0.0 } else { own * length * FILLED };
        let part = |of_a_lease: f64| if units < 2.0 { 1.0 } else { (of_a_lease / units).min(1.0) };
        Self {
            decisions: requests * part(CALLS_OF_A_LEASE),
            waited: requests * part(WAITED_OF_A_LEASE),
            admitted: requests,
        }
    }
}

/// The bytes of an account in Redis, as full as its requests make it, and the part of the time in which
/// it is there.
pub(super) fn bytes(
    account: Accounts,
    asked: AccountTraffic,
    policy: &SizedPolicy,
    layout: Layout,
) -> (f64, f64) {
    let ledger = |quota: &Quota| {
        let window = quota.window().as_secs_f64();
        let units = (asked.admitted * policy.cost * window).min(f64::from(quota.units().get()));
        let spends = (asked.decisions * window).min(units);
        // One that is there has been asked for at least once.
        let [units, spends] = [units, spends].map(|count| count.ceil().max(1.0) as u64);
        memory::in_use(*quota, units, spends, layout, policy.key_len) as f64
    };
    // Keys expire up to a quarter of the window after the units that they count.
    let there_s = 1.125 * policy.longest_window_s();
    let live = 1.0 - (-account.requests_per_second * there_s).exp();
    (policy.ledgers.iter().map(ledger).sum(), live)
}
