//! What is simulated: gateways, accounts, requests, a network, and what happens to them.

use std::time::Duration;

use slidegate::{Consistency, OnStoreError, Policies, Policy, Quota, Source};

use crate::figures::Figures;
use crate::fleet;
use crate::network::RoundTripTime;

/// A fleet and its load. The same scenario gives the same figures.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Where all chance begins.
    pub seed: u64,
    /// How many gateways there are at the start.
    pub gateways: usize,
    /// How many accounts there are.
    pub accounts: u32,
    /// How fast popularity falls with the rank of an account: 0 for equally popular accounts, 1 for
    /// Zipf's law.
    pub exponent: f64,
    /// The quota of each account.
    pub quota: Quota,
    /// Whether requests wait for Redis.
    pub consistency: Consistency,
    /// The way from each gateway to Redis.
    pub round_trip: RoundTripTime,
    /// The way from every other gateway, if it is another.
    pub round_trip_of_others: Option<RoundTripTime>,
    /// Calls to Redis that take longer are failures.
    pub deadline: Duration,
    /// How many requests there are, as a multiple of the quotas of all accounts. In the first window
    /// there are no more than the quotas permit, so that units become free again at all times.
    pub demand: f64,
    /// How long the load lasts before it is measured.
    pub warm_up: Duration,
    /// For how long it is measured.
    pub measured: Duration,
    /// What happens, and when after the start.
    pub changes: Vec<(Duration, Change)>,
}

/// What happens to a fleet. Gateways are numbered in the order in which they join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Another gateway takes its part of the load.
    Join,
    /// A gateway neither gets requests nor hears from Redis.
    Pause {
        /// Which one.
        gateway: usize,
        /// For how long.
        lasts: Duration,
    },
    /// A gateway gets requests and does not hear from Redis.
    CutOff {
        /// Which one.
        gateway: usize,
        /// For how long.
        lasts: Duration,
    },
    /// A paused gateway gets requests again.
    Resume {
        /// Which one.
        gateway: usize,
    },
    /// A gateway is gone, with what it has leased.
    Die {
        /// Which one.
        gateway: usize,
    },
}

impl Scenario {
    /// One account that asks for twice its quota, through one gateway that is near Redis and waits for it.
    pub fn new(quota: Quota) -> Self {
        Self {
            seed: 1,
            gateways: 1,
            accounts: 1,
            exponent: 0.0,
            quota,
            consistency: Consistency::Sync,
            round_trip: RoundTripTime::NEAR,
            round_trip_of_others: None,
            deadline: Duration::from_secs(1),
            demand: 2.0,
            warm_up: quota.window() * 2,
            measured: quota.window() * 2,
            changes: Vec::new(),
        }
    }

    /// Requests a second at this time after the start.
    pub(crate) fn requests_per_second(&self, after: Duration) -> f64 {
        let window = self.quota.window();
        let demand = if after < window { self.demand.min(1.0) } else { self.demand };
        let units = f64::from(self.quota.units().get()) * f64::from(self.accounts);
        demand * units / window.as_secs_f64()
    }

    /// Runs it in virtual time.
    ///
    /// # Panics
    ///
    /// If the quota is too small for the leases, or if Redis does not understand a script.
    pub fn run(&self) -> Figures {
        fastrand::seed(self.seed);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without sockets");
        let tally = runtime.block_on(fleet::run(self));
        Figures::of(self, &tally)
    }

    /// Without Redis a request is refused: what would be counted here and there is not exact.
    pub(crate) fn policies(&self) -> Policies {
        let policy = Policy::new("api")
            .identity([Source::User])
            .quota(self.quota)
            .consistency(self.consistency)
            .on_store_error(OnStoreError::Deny);
        Policies::builder().policy(policy).build().expect("a quota that leases fit into")
    }
}
