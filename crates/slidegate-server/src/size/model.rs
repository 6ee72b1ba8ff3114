//! From a load and policies to machines.

use std::time::Duration;

use serde::Serialize;
use slidegate::limit::Quotas;
use slidegate::policy::CheckedPolicy;
use slidegate::{Cost, Policies, Quota, Scope};
use slidegate_redis::{KeyTemplate, Layout};

use super::constants::{
    CALL_BYTES, FORWARDED, GATEWAY_CALL, GATEWAY_DECISION, LEDGER_BYTES, MAX_BUSY,
    MAX_SERVER_BYTES, MAX_SHARED, MIN_PRIMARIES, PACKED_LEDGER, REDIS_CALL, REFUSED,
    SHARED_STATE_BYTES, SHARED_STATE_CALLS, SORTED_SET_LEDGER,
};
use super::load::{Accounts, Load};
use super::store::{AccountTraffic, bytes};

/// A policy as far as its size goes.
#[derive(Debug, Clone)]
pub(super) struct SizedPolicy {
    pub(super) name: String,
    pub(super) quotas: Vec<Quota>,
    /// The same over the windows of their ledgers.
    pub(super) ledgers: Vec<Quota>,
    /// The longest lease, if units are leased.
    pub(super) lease_s: Option<f64>,
    /// Units for a request.
    pub(super) cost: f64,
    /// Whether it only counts.
    is_shadow: bool,
    /// The length of a key's name, without the identity.
    pub(super) key_len: usize,
    /// As `slidegate check` shows it.
    pub(super) text: String,
}

/// What gateways are like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fleet {
    pub(super) cores: u32,
    pub(super) gateways: Option<u64>,
    pub(super) round_trip: Duration,
    pub(super) layout: Layout,
}

/// The estimate, as JSON has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Estimate {
    pub(super) gateways: u64,
    /// Of all cores of all gateways.
    pub(super) gateway_busy: f64,
    pub(super) gateway_us_per_request: f64,
    pub(super) redis_servers: u64,
    /// Of the core of each.
    pub(super) redis_busy: f64,
    /// The core that the busiest account needs for itself, of the one that it can have.
    pub(super) busiest_account_busy: f64,
    pub(super) redis_us_per_request: f64,
    pub(super) calls_per_second: f64,
    pub(super) calls_per_1000: f64,
    pub(super) waiting_share: f64,
    pub(super) refused_share: f64,
    pub(super) busiest_share: f64,
    pub(super) bytes_per_second: f64,
    pub(super) live_accounts: f64,
    pub(super) redis_bytes: f64,
}

impl SizedPolicy {
    /// The policies that ask Redis. Of one with plans, each account is taken to have the largest.
    pub(super) fn all(policies: &Policies) -> impl Iterator<Item = Self> {
        let plans = policies.plans();
        let units = |quotas: &[Quota]| quotas.iter().map(|quota| quota.units()).max();
        let largest = plans.iter().map(|plan| &plan.quotas).max_by_key(|it| units(it.as_slice()));
        // Those whose quotas come with each command of a Redis client have none to be sized by.
        let shared = policies
            .iter()
            .filter(|policy| policy.scope == Scope::Shared && !policy.has_caller_quotas());
        let sized = shared.map(|policy| Self::new(policy, largest)).collect::<Vec<_>>();
        sized.into_iter()
    }

    fn new(policy: &CheckedPolicy, largest_plan: Option<&Quotas>) -> Self {
        let own = Quotas::new(policy.quotas().iter().copied());
        let quotas = own.ok().or_else(|| largest_plan.cloned());
        let quotas = quotas.expect("a policy has quotas, or a default plan");
        Self {
            name: policy.name.to_string(),
            quotas: quotas.as_slice().to_vec(),
            ledgers: policy.consistency.ledgers(&quotas).as_slice().to_vec(),
            lease_s: policy.consistency.lease(&quotas).map(|lease| lease.as_secs_f64()),
            cost: match policy.cost {
                Cost::Units(units) => f64::from(units.get()),
                Cost::Request => 1.0,
            },
            is_shadow: policy.shadow,
            key_len: KeyTemplate::default().to_string().len() + policy.name.len(),
            text: policy.to_string(),
        }
    }

    pub(super) fn longest_window_s(&self) -> f64 {
        let windows = self.quotas.iter().map(|quota| quota.window());
        windows.max().unwrap_or_default().as_secs_f64()
    }

    /// How many requests of an account pass for ever.
    pub(super) fn permitted_per_second(&self) -> f64 {
        let rate = |quota: &Quota| f64::from(quota.units().get()) / quota.window().as_secs_f64();
        self.ledgers.iter().map(rate).fold(f64::INFINITY, f64::min) / self.cost
    }
}

/// What all gateways ask Redis for in a second.
#[derive(Debug, Default)]
struct Traffic {
    decisions: f64,
    ledgers: f64,
    waited: f64,
    admitted: f64,
    live_accounts: f64,
    bytes: f64,
    /// For one of the busiest accounts.
    busiest_decisions: f64,
    busiest_ledgers: f64,
}

/// Estimates what the load takes.
pub(super) fn estimate(load: Load, policies: &[SizedPolicy], fleet: Fleet) -> Estimate {
    let groups = load.groups();
    let mut gateways = fleet.gateways.unwrap_or(1);
    loop {
        let traffic = Traffic::of(&groups, policies, fleet, gateways as f64);
        let estimate = of_fleet(load, &groups, &traffic, fleet, gateways);
        let needed = fleet.gateways.unwrap_or_else(|| needed(load, &estimate, fleet));
        // More gateways ask more often, and never less.
        if needed <= gateways {
            return estimate;
        }
        gateways = needed;
    }
}

/// Enough gateways if one is away, and two of them at least.
fn needed(load: Load, estimate: &Estimate, fleet: Fleet) -> u64 {
    let cores = estimate.gateway_us_per_request * 1e-6 * load.requests_per_second;
    (cores / MAX_BUSY / f64::from(fleet.cores)).ceil() as u64 + 1
}

impl Traffic {
    fn of(groups: &[Accounts], policies: &[SizedPolicy], fleet: Fleet, gateways: f64) -> Self {
        let mut sum = Self::default();
        let trip_s = fleet.round_trip.as_secs_f64();
        for group in groups {
            let mut most_waited: f64 = 0.0;
            let (mut in_sync, mut admitted, mut longest_live) =
                (0.0_f64, group.requests_per_second, 0.0_f64);
            for policy in policies {
                let asked = AccountTraffic::about(*group, policy, gateways, trip_s);
                let ledgers = policy.quotas.len() as f64;
                sum.ledgers += group.count * asked.decisions * ledgers;
                if policy.lease_s.is_some() {
                    sum.decisions += group.count * asked.decisions;
                } else {
                    in_sync = in_sync.max(asked.decisions);
                }
                most_waited = most_waited.max(asked.waited);
                if !policy.is_shadow {
                    admitted = admitted.min(asked.admitted);
                }
                let (bytes, live) = bytes(*group, asked, policy, fleet.layout);
                sum.bytes += group.count * live * bytes;
                longest_live = longest_live.max(live);
            }
            // Policies in sync share a call.
            sum.decisions += group.count * in_sync;
            if sum.busiest_decisions == 0.0 {
                sum.busiest_decisions = sum.decisions / group.count;
                sum.busiest_ledgers = sum.ledgers / group.count;
            }
            sum.waited += group.count * most_waited;
            sum.admitted += group.count * admitted;
            sum.live_accounts += group.count * longest_live;
        }
        sum
    }
}

fn of_fleet(
    load: Load,
    groups: &[Accounts],
    traffic: &Traffic,
    fleet: Fleet,
    gateways: u64,
) -> Estimate {
    let requests = load.requests_per_second;
    let ledger = match fleet.layout {
        Layout::Packed => PACKED_LEDGER,
        Layout::SortedSet => SORTED_SET_LEDGER,
    };
    let redis_s = |calls: f64| {
        let calls = calls + gateways as f64 * SHARED_STATE_CALLS;
        calls * REDIS_CALL.as_secs_f64() + traffic.ledgers * ledger.as_secs_f64()
    };
    let shared = traffic.decisions / shared(traffic.decisions / gateways as f64, fleet.round_trip);
    let fits = redis_s(shared) <= MAX_BUSY && traffic.bytes <= MAX_SERVER_BYTES;
    // In a Cluster each decision is a call. An account is on one server.
    let (servers, calls) = if fits || load.accounts == 1 {
        (1, shared)
    } else {
        let busy = redis_s(traffic.decisions) / MAX_BUSY;
        let servers = busy.max(traffic.bytes / MAX_SERVER_BYTES).ceil() as u64;
        (servers.clamp(MIN_PRIMARIES, load.accounts.max(MIN_PRIMARIES)), traffic.decisions)
    };
    let busiest_account_busy = if servers == 1 {
        redis_s(calls) * traffic.busiest_decisions / traffic.decisions
    } else {
        traffic.busiest_decisions * REDIS_CALL.as_secs_f64()
            + traffic.busiest_ledgers * ledger.as_secs_f64()
    };
    let gateway_s = traffic.admitted * FORWARDED.as_secs_f64()
        + (requests - traffic.admitted) * REFUSED.as_secs_f64()
        + calls * GATEWAY_CALL.as_secs_f64()
        + traffic.decisions * GATEWAY_DECISION.as_secs_f64();
    let busiest = groups.first().map_or(0.0, |group| group.requests_per_second);
    Estimate {
        gateways,
        gateway_busy: gateway_s / f64::from(fleet.cores) / gateways as f64,
        gateway_us_per_request: gateway_s * 1e6 / requests,
        redis_servers: servers,
        redis_busy: redis_s(calls) / servers as f64,
        busiest_account_busy,
        redis_us_per_request: redis_s(calls) * 1e6 / requests,
        calls_per_second: calls,
        calls_per_1000: calls * 1000.0 / requests,
        waiting_share: traffic.waited / requests,
        refused_share: (1.0 - traffic.admitted / requests).max(0.0),
        busiest_share: busiest / requests,
        bytes_per_second: calls * CALL_BYTES
            + traffic.ledgers * LEDGER_BYTES
            + gateways as f64 * SHARED_STATE_BYTES,
        live_accounts: traffic.live_accounts,
        redis_bytes: traffic.bytes,
    }
}

/// How many decisions of one gateway share a call: two leave at once, and those that come meanwhile wait
/// for each other.
fn shared(decisions_per_second: f64, round_trip: Duration) -> f64 {
    (decisions_per_second * round_trip.as_secs_f64() / 2.0).clamp(1.0, MAX_SHARED)
}

#[cfg(test)]
mod tests {
    use slidegate::{Consistency, Policy, Source};

    use super::*;

    fn estimate_of(requests_per_second: f64, accounts: u64, quota: &str, fleet: Fleet) -> Estimate {
        let policy = Policy::new("api").identity([Source::User]).quota(quota);
        let policies = Policies::builder().policy(policy.consistency(Consistency::Sync)).build();
        let load = Load { requests_per_second, accounts, skew: 0.0 };
        let policies: Vec<SizedPolicy> = SizedPolicy::all(&policies.unwrap()).collect();
        estimate(load, &policies, fleet)
    }

    fn fleet(cores: u32, gateways: Option<u64>) -> Fleet {
        let round_trip = Duration::from_micros(300);
        Fleet { cores, gateways, round_trip, layout: Layout::Packed }
    }

    /// The gateway on Redis in docs/benchmarks.md, busy to its limit with 64 requests in flight.
    #[test]
    fn processor_time_is_as_measured() {
        let estimate = estimate_of(42_889.0, 1000, "1000000/min", fleet(1, Some(1)));
        let off = estimate.gateway_us_per_request / 21.75 - 1.0;
        assert!(off.abs() < 0.25, "{estimate:?}");
    }

    /// An account is on one server, and a server has only so much memory.
    #[test]
    fn more_servers_do_not_help_one_account_and_memory_needs_them_too() {
        let one = estimate_of(1e6, 1, "4000000000/s", fleet(4, None));
        assert_eq!(one.redis_servers, 1, "{one:?}");
        assert!(one.busiest_account_busy > 1.0, "{one:?}");
        let full = estimate_of(1e4, 1_000_000_000, "1000/d", fleet(4, None));
        assert!(full.redis_servers as f64 * MAX_SERVER_BYTES >= full.redis_bytes, "{full:?}");
    }

    #[test]
    fn more_requests_never_need_less() {
        let sizes = (3..8).map(|power| {
            let of = estimate_of(10_f64.powi(power), 1_000_000, "1000/min", fleet(4, None));
            assert!(of.gateway_busy <= MAX_BUSY && of.redis_busy <= MAX_BUSY, "{of:?}");
            (of.gateways, of.redis_servers)
        });
        let sizes: Vec<(u64, u64)> = sizes.collect();
        assert!(sizes.is_sorted(), "{sizes:?}");
        assert_eq!(sizes[0], (2, 1), "two gateways, for one may be away");
    }
}
