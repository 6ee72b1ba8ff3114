//! Decisions in steps of five seconds, for fifteen minutes.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use slidegate::Name;

use super::{DurationCounts, PolicyTotals, RequestTotals};
use crate::api::{DecisionTimeSeries, PolicySeries, RequestSeries};

/// How long a step is.
pub(crate) const STEP: Duration = Duration::from_secs(5);
/// How many steps are kept.
const MAX_STEPS: usize = 180;

/// Makes steps of counters: what was counted since the step before. There is a series for each policy
/// in force, of 3.6 kB, and all have the same length.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    pub(crate) requests: RequestSeries,
    pub(crate) policies: Vec<PolicySeries>,
    pub(crate) decision_time: DecisionTimeSeries,
    /// The counters at the last step.
    request_totals: RequestTotals,
    totals: HashMap<Name, PolicyTotals>,
    times: DurationCounts,
}

impl Sampler {
    /// Takes a step. Policies that were there before keep their series.
    pub(crate) fn step(
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

impl PolicySeries {
    /// That of a policy without a decision in so many steps.
    fn idle(policy: &str, steps: usize) -> Self {
        let mut series = Self { policy: policy.to_owned(), ..Self::default() };
        series.lists_mut().into_iter().for_each(|list| list.resize(steps, 0));
        series
    }

    /// In the order of [`PolicyTotals::values`](crate::observe::PolicyTotals::values).
    fn lists_mut(&mut self) -> [&mut VecDeque<u32>; 5] {
        let Self { allowed, refused, shadow, candidate, failed, .. } = self;
        [allowed, refused, shadow, candidate, failed]
    }
}

impl RequestSeries {
    /// In the order of [`RequestTotals::values`](crate::observe::RequestTotals::values).
    fn lists_mut(&mut self) -> [&mut VecDeque<u32>; 3] {
        let Self { allowed, refused, unavailable } = self;
        [allowed, refused, unavailable]
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

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(policies: &[(&str, u64)]) -> Vec<(Name, PolicyTotals)> {
        let totals =
            |allowed| PolicyTotals { allowed, denied_or_banned: allowed * 2, ..Default::default() };
        policies.iter().map(|(name, allowed)| (name.parse().unwrap(), totals(*allowed))).collect()
    }

    #[test]
    fn steps_are_differences_and_the_oldest_make_way() {
        let mut sampler = Sampler::default();
        for step in 1..=200_u64 {
            sampler.step(
                RequestTotals::default(),
                &totals(&[("api", step * (step + 1) / 2)]),
                DurationCounts::default(),
            );
        }
        let [api] = &sampler.policies[..] else { panic!("one policy") };
        assert_eq!(api.allowed, (21..=200).collect::<Vec<u32>>());
        assert_eq!(api.refused, (21..=200).map(|count| count * 2).collect::<Vec<u32>>());
        assert_eq!(api.failed, [0; 180]);
        assert_eq!(sampler.decision_time.p99_us, [None; 180]);
    }

    #[test]
    fn policies_that_stay_keep_their_steps_and_new_ones_get_as_many() {
        let mut sampler = Sampler::default();
        let mut step = |policies: &[(&str, u64)]| {
            sampler.step(RequestTotals::default(), &totals(policies), DurationCounts::default());
            let lists = sampler.policies.iter().map(|series| {
                (series.policy.clone(), series.allowed.iter().copied().collect::<Vec<u32>>())
            });
            lists.collect::<Vec<_>>()
        };
        let list = |policy: &str, allowed: &[u32]| (policy.to_owned(), allowed.to_vec());
        step(&[("api", 3), ("old", 1)]);
        assert_eq!(
            step(&[("new", 5), ("api", 4)]),
            [list("new", &[0, 5]), list("api", &[3, 1])],
            "in the order of the policies"
        );
        assert_eq!(step(&[("api", 2)]), [list("api", &[3, 1, 0])], "a counter that began anew");
        assert_eq!(step(&[("api", 9)]), [list("api", &[3, 1, 0, 7])]);
        assert_eq!(step(&[]), []);
        assert_eq!(step(&[("api", 9)]), [list("api", &[0, 0, 0, 0, 0, 9])]);
    }
}
