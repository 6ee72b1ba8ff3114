//! `--sweep`: how many requests each of several quotas would refuse.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::str::FromStr;

use anyhow::{Context, bail};
use foldhash::fast::RandomState;
use slidegate::policy::{CheckedPolicy, MatchedPolicy};
use slidegate::{Facts, Identity, Policies, Quota, Timestamp};

use crate::config::{self, Sources};
use crate::replay::demand::{DemandWindow, window_ms};
use crate::replay::engine::{MatchedPolicies, ReplayedRules};
use crate::replay::tally::{AccountRefusals, MAX_IDENTITIES, RefusedBy};

/// How many quotas are tried, from the first to the last.
const STEPS: u32 = 16;

/// `api=10/min..1000/min`: the quotas of a policy to try.
#[derive(Debug, Clone)]
pub(super) struct SweepRange {
    policy: String,
    from: Quota,
    to: Quota,
}

/// A policy under one quota after the other, each with accounts of its own.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) policy: String,
    pub(super) requests: u64,
    /// The window of the quotas.
    window_ms: u64,
    /// What each identity asked for; at most as many as are counted under a policy.
    pub(super) demands: HashMap<Identity, DemandWindow, RandomState>,
    pub(super) steps: Vec<SweepStep>,
}

#[derive(Debug)]
pub(super) struct SweepStep {
    pub(super) quota: Quota,
    /// All quotas of the policy, this one among them.
    quotas: Vec<Quota>,
    rules: ReplayedRules,
    pub(super) refused: u64,
    /// Of the identities whose demand is known, those with a refused request.
    pub(super) refusals: HashMap<Identity, AccountRefusals, RandomState>,
}

impl FromStr for SweepRange {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let expected = "expected a policy and two quotas, such as api=10/min..1000/min";
        let (policy, quotas) = text.split_once('=').context(expected)?;
        let (from, to) = quotas.split_once("..").context(expected)?;
        let (from, to): (Quota, Quota) = (from.trim().parse()?, to.trim().parse()?);
        if from.window() != to.window() || from.units() > to.units() {
            bail!("{expected}, of one window and the smaller first");
        }
        Ok(Self { policy: policy.trim().to_owned(), from, to })
    }
}

impl SweepRange {
    /// The rules of each step.
    pub(super) fn load(&self, sources: &Sources, policies: &Policies) -> anyhow::Result<Sweep> {
        let Some(policy) = policies.iter().find(|policy| *policy.name == *self.policy) else {
            let names: Vec<&str> = policies.names().map(|name| &**name).collect();
            bail!("--sweep: there is no policy {:?}; there are {}", self.policy, names.join(", "));
        };
        let mut steps = Vec::new();
        for quota in self.quotas()? {
            let quotas = self.replaced(policy, quota)?;
            let changed = sources.with_quotas(&self.policy, quotas.clone());
            let rules = ReplayedRules::new(config::load(&changed)?.config.rules);
            let (refused, refusals) = (0, HashMap::default());
            steps.push(SweepStep { quota, quotas, rules, refused, refusals });
        }
        let (policy, window_ms) = (self.policy.clone(), window_ms(self.from));
        Ok(Sweep { policy, requests: 0, window_ms, demands: HashMap::default(), steps })
    }

    /// From the first to the last, each larger by the same factor.
    fn quotas(&self) -> anyhow::Result<Vec<Quota>> {
        let (from, to) = (f64::from(self.from.units().get()), f64::from(self.to.units().get()));
        let units = |step: u32| {
            let part = f64::from(step) / f64::from(STEPS - 1);
            (from * (to / from).powf(part)).round() as u32
        };
        let mut all: Vec<u32> = (0..STEPS).map(units).collect();
        all.dedup();
        let quota = |units| {
            let units = NonZeroU32::new(units).context("a quota has at least one unit")?;
            Ok(Quota::new(units, self.from.window())?)
        };
        all.into_iter().map(quota).collect()
    }

    /// The quotas of the policy with this one in place of the only one, or of that of its window.
    fn replaced(&self, policy: &CheckedPolicy, quota: Quota) -> anyhow::Result<Vec<Quota>> {
        let mut quotas = policy.quotas().to_vec();
        if quotas.is_empty() {
            bail!(
                "--sweep: policy {:?} has no quotas of its own, but goes by plans: expected a policy \
                 with quotas",
                self.policy
            );
        }
        let position = quotas.iter().position(|own| own.window() == quota.window());
        let position = position.or((quotas.len() == 1).then_some(0)).with_context(|| {
            let quotas: Vec<String> = quotas.iter().map(Quota::to_string).collect();
            let (policy, quotas) = (&self.policy, quotas.join(" and "));
            format!("--sweep: policy {policy:?} has {quotas}: expected the window of one of them")
        })?;
        quotas[position] = quota;
        Ok(quotas)
    }
}

impl Sweep {
    /// Decides a request under each of the quotas.
    pub(super) fn decide(
        &mut self,
        at: Timestamp,
        facts: &Facts<'_>,
        matched: &MatchedPolicies<'_>,
    ) {
        let own = matched.iter().find(|own| *own.policy.name == *self.policy);
        let is_tracked = own.is_some_and(|own| self.add_demand(at, own));
        for step in &mut self.steps {
            // Requests that other policies count matter to this one too.
            let decided = step.rules.simulation.decide_facts(at, facts);
            let (Ok(decision), Some(own)) = (decided, own) else { continue };
            let refused_by = RefusedBy::new(&decision, matched, own, &step.quotas);
            step.refused += u64::from(matches!(refused_by, RefusedBy::Own));
            if is_tracked && !matches!(refused_by, RefusedBy::None) {
                step.refusals.entry(own.identity).or_default().add(&refused_by);
            }
        }
    }

    /// Counts a request of the policy, and returns whether there is room for its identity.
    fn add_demand(&mut self, at: Timestamp, own: &MatchedPolicy<'_>) -> bool {
        self.requests += 1;
        let has_room = self.demands.len() < MAX_IDENTITIES;
        if !has_room && !self.demands.contains_key(&own.identity) {
            return false;
        }
        let window = self.demands.entry(own.identity).or_default();
        window.add(self.window_ms, at, own.cost.get());
        true
    }
}

impl SweepStep {
    /// The refusals of identities that ask for more than the quota.
    pub(super) fn above<'s>(
        &'s self,
        demands: &'s HashMap<Identity, DemandWindow, RandomState>,
    ) -> impl Iterator<Item = &'s AccountRefusals> {
        let units = u64::from(self.quota.units().get());
        let is_above =
            move |identity| demands.get(identity).is_some_and(|own| own.busiest() > units);
        let refusals = self.refusals.iter().filter(move |(identity, _)| is_above(identity));
        refusals.map(|(_, refusals)| refusals)
    }
}
