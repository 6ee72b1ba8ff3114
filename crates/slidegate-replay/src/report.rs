//! The result of a replay: the same figures as text, as JSON and as a page.

use std::fmt;

use serde::Serialize;
use slidegate::{Identity, Policies, Timestamp};

use crate::against::{Comparison, OneSided};
use crate::calendar::Rfc3339;
use crate::demand::window_ms;
use crate::engine::ReplayEngine;
use crate::input::LineCounts;
use crate::merge::LogMerge;
use crate::sweep::Sweep;
use crate::tally::{AccountRefusals, LimitTally, PolicyTally, QuotaTally};
use crate::timeline::{Minute, Timeline};

/// How many identities are named.
const TOP: usize = 10;

/// What rules would have done to the requests of the logs. As JSON it has all figures.
#[derive(Debug, Serialize)]
pub struct ReplayReport {
    pub(crate) config: String,
    pub(crate) logs: Vec<String>,
    #[serde(flatten)]
    pub(crate) lines: LineCounts,
    /// Lines that came too late to be sorted, and were left out.
    pub(crate) late_lines: u64,
    pub(crate) first: Option<Rfc3339>,
    pub(crate) last: Option<Rfc3339>,
    /// Whether the log has no fractions of seconds.
    pub(crate) whole_seconds: bool,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    /// Refused requests in all requests.
    pub(crate) share: Share,
    pub(crate) blocked: u64,
    pub(crate) bad_requests: u64,
    pub(crate) without_room: u64,
    pub(crate) policies: Vec<PolicyReport>,
    pub(crate) timeline: Timeline,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) against: Option<AgainstReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sweep: Option<SweepReport>,
}

/// A part of a whole, from 0 to 1. It is shown in percent, to two significant digits where it is small:
/// more than nothing is never shown as nothing, and less than all never as all.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Share(f64);

impl Share {
    /// Nothing of nothing is 0.
    pub(crate) fn of(part: u64, whole: u64) -> Self {
        Self(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
    }

    /// From 0 to 1.
    pub(crate) fn fraction(self) -> f64 {
        self.0
    }

    /// From 0 to 100.
    pub fn percent(self) -> f64 {
        self.0 * 100.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.percent() {
            p if p <= 0.0 => f.write_str("0%"),
            p if p >= 100.0 => f.write_str("100%"),
            p if p < 0.001 => f.write_str("<0.001%"),
            p if p < 0.1 => write!(f, "{p:.3}%"),
            p if p < 1.0 => write!(f, "{p:.2}%"),
            p if p < 99.9 => write!(f, "{p:.1}%"),
            _ => f.write_str(">99.9%"),
        }
    }
}

/// One policy.
#[derive(Debug, Serialize)]
pub(crate) struct PolicyReport {
    pub(crate) policy: String,
    /// Whether it is a shadow policy, which refuses no requests. The figures are what it would refuse.
    pub(crate) shadow: bool,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) share: Share,
    pub(crate) identities: u64,
    /// Those with at least one refusal.
    pub(crate) identities_refused: u64,
    pub(crate) untracked_requests: u64,
    /// Requests that are taken as counted, because the log has no status.
    pub(crate) requests_without_status: u64,
    /// Requests that are taken to cost what was held, because the log does not have their cost.
    pub(crate) requests_without_cost: u64,
    pub(crate) worst_minute: Option<Minute>,
    /// Those with the most refusals.
    pub(crate) most_refused: Vec<RefusedIdentity>,
    pub(crate) quotas: Vec<QuotaReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RefusedIdentity {
    pub(crate) identity: String,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
}

/// One quota, and what it would have to be.
#[derive(Debug, Serialize)]
pub(crate) struct QuotaReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<String>,
    pub(crate) quota: String,
    pub(crate) units: u64,
    pub(crate) window_ms: u64,
    pub(crate) identities: u64,
    /// Identities whose busiest window has more than the units.
    pub(crate) identities_above: u64,
    /// Of these, the identities of which the policy refuses nothing.
    pub(crate) refused_first: RefusedFirst,
    /// The smallest units at which so many identities would never have been refused.
    pub(crate) never_refused: NeverRefused,
    /// How many identities had their busiest window in which range of units.
    pub(crate) distribution: Vec<DemandRange>,
    pub(crate) busiest: Option<BusiestReport>,
}

/// Identities that ask for more than a quota has, but of which its policy refuses nothing, because other
/// policies refuse so much that the rest is within the quota.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RefusedFirst {
    pub(crate) identities: u64,
    /// The other policies, the one with the most refusals first. A request that two refuse is counted
    /// for both.
    pub(crate) by: Vec<RefusingPolicy>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RefusingPolicy {
    pub(crate) policy: String,
    pub(crate) requests: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct NeverRefused {
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) all: u64,
}

/// Units from the first to the last, which are both included.
#[derive(Debug, Serialize)]
pub(crate) struct DemandRange {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) identities: u64,
}

/// The busiest window of all.
#[derive(Debug, Serialize)]
pub(crate) struct BusiestReport {
    pub(crate) identity: String,
    pub(crate) units: u64,
    pub(crate) until: Rfc3339,
    /// In equal parts of the window, the oldest first.
    pub(crate) density: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct AgainstReport {
    pub(crate) config: String,
    pub(crate) refused: u64,
    pub(crate) share: Share,
    pub(crate) only_candidate: OneSidedReport,
    pub(crate) only_other: OneSidedReport,
}

#[derive(Debug, Serialize)]
pub(crate) struct OneSidedReport {
    pub(crate) requests: u64,
    /// These in all requests.
    pub(crate) share: Share,
    pub(crate) identities: u64,
    pub(crate) most: Vec<OneSidedIdentity>,
}

#[derive(Debug, Serialize)]
pub(crate) struct OneSidedIdentity {
    pub(crate) policy: String,
    pub(crate) identity: String,
    pub(crate) requests: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct SweepReport {
    pub(crate) policy: String,
    pub(crate) requests: u64,
    pub(crate) steps: Vec<SweepStepReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SweepStepReport {
    pub(crate) quota: String,
    pub(crate) units: u32,
    pub(crate) refused: u64,
    pub(crate) share: Share,
    pub(crate) identities_refused: u64,
    pub(crate) refused_first: RefusedFirst,
}

/// What the configurations are called.
#[derive(Debug)]
pub(crate) struct ConfigNames {
    pub(crate) candidate: String,
    pub(crate) other: Option<String>,
}

impl ReplayReport {
    pub(crate) fn new(
        names: ConfigNames,
        logs: Vec<String>,
        merge: LogMerge,
        engine: ReplayEngine,
    ) -> Self {
        let totals = &engine.tallies.totals;
        let tallies = &engine.tallies.policies;
        let policies = &engine.rules.policies;
        let against = engine.comparison.as_ref().zip(names.other);
        let at = |at: Option<Timestamp>| at.map(Rfc3339);
        Self {
            config: names.candidate,
            logs,
            late_lines: merge.late_lines,
            first: at(totals.first),
            last: at(totals.last),
            whole_seconds: totals.requests > 0 && merge.is_whole_seconds(),
            lines: merge.counts,
            requests: totals.requests,
            refused: totals.refused,
            share: Share::of(totals.refused, totals.requests),
            blocked: totals.blocked,
            bad_requests: totals.bad_requests,
            without_room: totals.without_room,
            policies: tallies.iter().map(|own| PolicyReport::new(own, policies)).collect(),
            against: against
                .map(|(other, name)| AgainstReport::new(name, other, policies, totals.requests)),
            sweep: engine.sweep.as_ref().map(SweepReport::new),
            timeline: engine.tallies.timeline,
        }
    }

    /// How many requests the logs have.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The requests that would be refused, of all.
    pub fn refused(&self) -> Share {
        self.share
    }

    /// The requests that would be refused and that the other rules do not refuse, of all; none if
    /// there are no others to compare with.
    pub fn newly_refused(&self) -> Option<Share> {
        self.against.as_ref().map(|other| other.only_candidate.share)
    }
}

impl PolicyReport {
    fn new(tally: &PolicyTally, policies: &Policies) -> Self {
        let refused = tally.accounts.iter().filter(|(_, account)| account.refusals.own > 0);
        let mut refused: Vec<_> = refused.collect();
        let identities_refused = refused.len() as u64;
        // The one with more requests is less of a surprise.
        refused.sort_unstable_by_key(|(identity, account)| {
            (std::cmp::Reverse(account.refusals.own), account.requests, **identity)
        });
        let named = refused.into_iter().take(TOP).map(|(identity, account)| RefusedIdentity {
            identity: policies.shown(identity).into_owned(),
            requests: account.requests,
            refused: account.refusals.own,
        });
        let limits = tally.limits.iter().enumerate();
        let mut quotas: Vec<QuotaReport> = limits
            .flat_map(|(index, limit)| {
                let quotas = limit.quotas.iter().enumerate();
                quotas.map(move |(position, quota)| {
                    QuotaReport::new(tally, (index, limit), (position, quota), policies)
                })
            })
            .collect();
        quotas.sort_by(|a, b| a.plan.cmp(&b.plan));
        Self {
            policy: tally.policy.to_string(),
            shadow: tally.shadow,
            requests: tally.requests,
            refused: tally.refused,
            share: Share::of(tally.refused, tally.requests),
            identities: tally.accounts.len() as u64,
            identities_refused,
            untracked_requests: tally.untracked,
            requests_without_status: tally.without_status,
            requests_without_cost: tally.without_cost,
            worst_minute: tally.minutes.get(),
            most_refused: named.collect(),
            quotas,
        }
    }
}

impl QuotaReport {
    fn new(
        tally: &PolicyTally,
        (index, limit): (usize, &LimitTally),
        (position, quota): (usize, &QuotaTally),
        policies: &Policies,
    ) -> Self {
        let units = u64::from(quota.quota.units().get());
        let demands = tally.accounts.values().flat_map(|account| {
            let own = account.demands.iter().filter(|demand| demand.limit == index);
            own.map(|demand| (demand.windows[position].busiest(), &account.refusals))
        });
        let above = demands.clone().filter(|(demand, _)| *demand > units);
        let refused_first = RefusedFirst::new(above.map(|(_, refusals)| refusals));
        let mut busiest: Vec<u64> = demands.map(|(demand, _)| demand).collect();
        busiest.sort_unstable();
        let within = busiest.partition_point(|demand| *demand <= units);
        Self {
            plan: limit.plan.as_ref().map(ToString::to_string),
            quota: quota.quota.to_string(),
            units,
            window_ms: window_ms(quota.quota),
            identities: busiest.len() as u64,
            identities_above: (busiest.len() - within) as u64,
            refused_first,
            never_refused: NeverRefused::new(&busiest),
            distribution: distribution(&busiest),
            busiest: quota.busiest.as_ref().map(|window| BusiestReport {
                identity: policies.shown(&window.identity).into_owned(),
                units: window.units,
                until: Rfc3339(window.until),
                density: window.density.clone(),
            }),
        }
    }
}

impl RefusedFirst {
    /// Of identities that ask for more than a quota has.
    fn new<'t>(above: impl Iterator<Item = &'t AccountRefusals>) -> Self {
        let mut first = Self::default();
        for refusals in above.filter(|own| own.own == 0 && !own.others.is_empty()) {
            first.identities += 1;
            for (policy, requests) in &refusals.others {
                match first.by.iter_mut().find(|other| other.policy == *policy) {
                    Some(other) => other.requests += requests,
                    None => {
                        let (policy, requests) = (policy.clone(), *requests);
                        first.by.push(RefusingPolicy { policy, requests });
                    }
                }
            }
        }
        first.by.sort_by(|a, b| (b.requests, &a.policy).cmp(&(a.requests, &b.policy)));
        first
    }
}

impl NeverRefused {
    /// Of the busiest windows of all identities, the smallest first.
    fn new(busiest: &[u64]) -> Self {
        let at = |per_mille: usize| {
            let needed = (busiest.len() * per_mille).div_ceil(1000);
            busiest.get(needed.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self { p99: at(990), p99_9: at(999), all: at(1000) }
    }
}

/// In ranges whose ends are 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on.
fn distribution(busiest: &[u64]) -> Vec<DemandRange> {
    let Some(most) = busiest.last() else { return Vec::new() };
    let (mut ranges, mut from, mut rest) = (Vec::new(), 1, busiest);
    let ends = (0..64).flat_map(|power| [1_u64 << power, (1_u64 << power) / 2 * 3]);
    for to in ends.filter(|end| *end > 0) {
        if from > *most {
            break;
        }
        if to < from {
            continue;
        }
        let (these, others) = rest.split_at(rest.partition_point(|demand| *demand <= to));
        ranges.push(DemandRange { from, to, identities: these.len() as u64 });
        (from, rest) = (to + 1, others);
    }
    ranges
}

impl AgainstReport {
    fn new(config: String, other: &Comparison, candidate: &Policies, requests: u64) -> Self {
        Self {
            config,
            refused: other.refused,
            share: Share::of(other.refused, requests),
            only_candidate: OneSidedReport::new(&other.only_candidate, candidate, requests),
            only_other: OneSidedReport::new(&other.only_other, &other.rules.policies, requests),
        }
    }
}

impl OneSidedReport {
    fn new(side: &OneSided, policies: &Policies, all_requests: u64) -> Self {
        let mut all: Vec<(&(String, Identity), &u64)> = side.identities.iter().collect();
        all.sort_unstable_by_key(|(key, requests)| (std::cmp::Reverse(**requests), *key));
        let most = all.iter().take(TOP).map(|((policy, identity), requests)| OneSidedIdentity {
            policy: policy.clone(),
            identity: policies.shown(identity).into_owned(),
            requests: **requests,
        });
        Self {
            requests: side.requests,
            share: Share::of(side.requests, all_requests),
            identities: all.len() as u64,
            most: most.collect(),
        }
    }
}

impl SweepReport {
    fn new(sweep: &Sweep) -> Self {
        let steps = sweep.steps.iter().map(|step| {
            let refused = step.refusals.values().filter(|refusals| refusals.own > 0);
            SweepStepReport {
                quota: step.quota.to_string(),
                units: step.quota.units().get(),
                refused: step.refused,
                share: Share::of(step.refused, sweep.requests),
                identities_refused: refused.count() as u64,
                refused_first: RefusedFirst::new(step.above(&sweep.demands)),
            }
        });
        Self { policy: sweep.policy.clone(), requests: sweep.requests, steps: steps.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_within_the_quota_would_never_have_been_refused() {
        let busiest: Vec<u64> = (1..=1000).collect();
        let never = NeverRefused::new(&busiest);
        assert_eq!((never.p99, never.p99_9, never.all), (990, 999, 1000));
        let never = NeverRefused::new(&[3, 7]);
        assert_eq!((never.p99, never.p99_9, never.all), (7, 7, 7));
        assert_eq!(NeverRefused::new(&[]).all, 0);
    }

    #[test]
    fn a_share_is_shown_to_be_more_than_nothing_and_less_than_all() {
        for (share, text) in [
            (0.0, "0%"),
            (0.000_001, "<0.001%"),
            (0.000_123, "0.012%"),
            (0.001_234, "0.12%"),
            (0.1234, "12.3%"),
            (0.999_99, ">99.9%"),
            (1.0, "100%"),
        ] {
            assert_eq!(Share(share).to_string(), text);
        }
        assert_eq!(Share::of(0, 0), Share(0.0));
    }

    #[test]
    fn ranges_cover_every_identity_once() {
        let ranges = distribution(&[1, 1, 2, 3, 5, 6, 7, 100]);
        let seen: Vec<_> = ranges.iter().map(|r| (r.from, r.to, r.identities)).collect();
        let expected =
            [(1, 1, 2), (2, 2, 1), (3, 3, 1), (4, 4, 0), (5, 6, 2), (7, 8, 1), (9, 12, 0)];
        assert_eq!(seen[..7], expected);
        assert_eq!(seen.last(), Some(&(97, 128, 1)));
        assert_eq!(ranges.iter().map(|range| range.identities).sum::<u64>(), 8);
    }
}
