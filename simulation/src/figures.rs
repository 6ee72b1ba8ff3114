//! What a scenario has shown.

use std::time::Duration;

use crate::fleet::{Admission, Tally};
use crate::scenario::Scenario;

/// The figures of a run, but for [`most`](Self::most) of its measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// How many requests were decided.
    pub decisions: u64,
    /// Those of them that were refused because Redis did not decide in time.
    pub failed: u64,
    /// The script calls of all gateways, renewals and refunds of leases included.
    pub calls: u64,
    /// What the network has carried, both ways.
    pub bytes: u64,
    /// Admitted requests, of as many as the quotas and the requests of each account permit.
    pub used: f64,
    /// The most units of one account that were admitted in any window, at any time of the run.
    pub most: u32,
    /// By how many units that is more than the quota.
    pub beyond: u32,
    /// The part of all decisions that waited for Redis.
    pub waited: f64,
    /// How long decisions waited on average, those included that did not wait.
    pub mean_wait: Duration,
    /// How long all but one of a hundred decisions waited at most.
    pub p99_wait: Duration,
    /// The admitted requests of the gateway that has admitted the fewest, of the mean of all.
    pub least_share: f64,
}

impl Figures {
    pub(crate) fn of(scenario: &Scenario, tally: &Tally) -> Self {
        let mut admitted = tally.admitted.clone();
        admitted.sort_unstable();
        let (most, units) = (most_in_window(&admitted, scenario), scenario.quota.units().get());
        let decisions = tally.requests.iter().map(|requests| u64::from(*requests)).sum::<u64>();
        let measured_until = tally.measured_from + scenario.measured;
        let measured = tally.measured_from..measured_until;
        let admitted: Vec<_> = admitted.iter().filter(|one| measured.contains(&one.at)).collect();
        let windows = scenario.measured.as_secs_f64() / scenario.quota.window().as_secs_f64();
        let permitted = f64::from(units) * windows;
        let of_account = |requests: &u32| f64::from(*requests).min(permitted);
        let permitted = tally.requests.iter().map(of_account).sum::<f64>();
        let mut by_gateway = vec![0_u64; tally.gateways];
        admitted.iter().for_each(|one| by_gateway[one.gateway] += 1);
        let mean = admitted.len() as f64 / tally.gateways as f64;
        Self {
            decisions,
            failed: tally.failed,
            calls: tally.calls,
            bytes: tally.bytes,
            used: admitted.len() as f64 / permitted,
            most,
            beyond: most.saturating_sub(units),
            waited: (tally.waits.len() as f64 / decisions as f64).min(1.0),
            mean_wait: tally.waits.iter().sum::<Duration>().div_f64(decisions as f64),
            p99_wait: p99_of(&tally.waits, decisions),
            least_share: by_gateway.iter().min().map_or(0.0, |least| *least as f64 / mean),
        }
    }

    /// Script calls for each thousand decisions.
    pub fn calls_per_1000(&self) -> f64 {
        self.calls as f64 * 1000.0 / self.decisions as f64
    }
}

/// The most admissions of one account in any window. They are ordered by account, then by time.
fn most_in_window(admitted: &[Admission], scenario: &Scenario) -> u32 {
    let (mut first, mut most) = (0, 0);
    for (i, one) in admitted.iter().enumerate() {
        let is_over = |before: &Admission| {
            before.account != one.account || one.at >= before.at + scenario.quota.window()
        };
        while is_over(&admitted[first]) {
            first += 1;
        }
        most = most.max(i + 1 - first);
    }
    most as u32
}

/// Of these waits, and of as many decisions without a wait as there are besides.
fn p99_of(waits: &[Duration], decisions: u64) -> Duration {
    let longest = (decisions / 100) as usize;
    let mut waits = waits.to_vec();
    waits.sort_unstable_by(|a, b| b.cmp(a));
    waits.get(longest).copied().unwrap_or_default()
}
