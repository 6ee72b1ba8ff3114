//! Decisions in steps of five seconds, for fifteen minutes.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use slidegate::Name;

use crate::admin::now::{DecisionTimeSeries, PolicySeries, RequestSeries};
use crate::observe::{DurationCounts, PolicyTotals, RequestTotals};

/// How long a step is.
pub(super) const STEP: Duration = Duration::from_secs(5);
/// How many steps are kept.
const MAX_STEPS: usize = 180;

/// Makes steps of counters: what was counted since the step before. There is a series for each policy
/// in force, of 3.6 kB, and all have the same length.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    pub(super) requests: RequestSeries,
    pub(super) policies: Vec<PolicySeries>,
    pub(super) decision_time: DecisionTimeSeries,
    /// The counters at the last step.
    request_totals: RequestTotals,
    totals: HashMap<Name, PolicyTotals>,
    times: DurationCounts,
}

impl Sampler {
    /// Takes a step. Policies that were there before keep their series.
    pub(super) fn step(
        &mut self,
        requests: RequestTotals,
        totals: &[(Name, PolicyTotals)],
        times: DurationCounts,
    ) {
        count(self.requests.lists_mut(), requests.values(), self.request_totals.values());
        self.request_totals = requests;
        let steps = self.decision_time.p50_us.len();
        let mut kept: HashMap<String, PolicySeries> =
            self.policies.drain(..).map(|series| (series.policy.clone(), series)).collect();
        for (policy, now) in totals {
            let before = self.totals.get(policy).copied().unwrap_or_default();
            let series = kept.remove(&**policy);
            let mut series = series.unwrap_or_else(|| PolicySeries::idle(policy, steps));
            count(series.lists_mut(), now.values(), before.values());
            self.policies.push(series);
        }
        self.totals = totals.iter().cloned().collect();

        let step = times.since(&self.times);
        let quantile_us = |share| Some(in_us(step.quantile(share)?));
        push(&mut self.decision_time.p50_us, quantile_us(0.5));
        push(&mut self.decision_time.p99_us, quantile_us(0.99));
        self.times = times;
    }
}

/// Adds to each list what its counter has counted since the last step.
fn count<const N: usize>(lists: [&mut VecDeque<u32>; N], now: [u64; N], before: [u64; N]) {
    for (list, (now, before)) in lists.into_iter().zip(now.into_iter().zip(before)) {
        push(list, u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX));
    }
}

fn push<T>(list: &mut VecDeque<T>, value: T) {
    if list.len() == MAX_STEPS {
        list.pop_front();
    }
    list.push_back(value);
}

/// To a tenth of a microsecond.
fn in_us(time: Duration) -> f64 {
    (time.as_nanos() as f64 / 100.0).round() / 10.0
}
