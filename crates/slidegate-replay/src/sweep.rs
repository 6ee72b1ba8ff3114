//! How many requests each of several quotas of a policy would refuse.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use slidegate::policy::MatchedPolicy;
use slidegate::{Facts, Identity, Quota};

use crate::demand::{DemandWindow, DemandedUnits};
use crate::entry::LogEntry;
use crate::rules::ReplayedRules;
use crate::simulation::RuleSet;
use crate::tally::{AccountRefusals, MAX_IDENTITIES, MatchedPolicies, RefusedBy};

/// A policy under several quotas in turn, each with separate accounts.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) policy: String,
    pub(crate) requests: u64,
    /// What each identity asked for; at most as many as are counted under a policy.
    pub(crate) demands: HashMap<Identity, DemandWindow, RandomState>,
    pub(crate) steps: Vec<SweepStep>,
}

#[derive(Debug)]
pub(crate) struct SweepStep {
    pub(crate) quota: Quota,
    /// All quotas of the policy, this one among them.
    quotas: Vec<Quota>,
    rules: ReplayedRules,
    pub(crate) refused: u64,
    /// Of the identities whose demand is known, those with a refused request.
    pub(crate) refusals: HashMap<Identity, AccountRefusals, RandomState>,
}

impl Sweep {
    /// Of a policy, under each quota with the rules in which the policy has it. All quotas have one
    /// window.
    pub(crate) fn new(policy: String, steps: impl IntoIterator<Item = (Quota, RuleSet)>) -> Self {
        let steps = steps.into_iter().map(|(quota, rules)| SweepStep::new(&policy, quota, rules));
        let steps = steps.collect();
        Self { policy, requests: 0, demands: HashMap::default(), steps }
    }

    /// Decides a request under each of the quotas.
    pub(crate) fn decide(
        &mut self,
        entry: &LogEntry,
        facts: &Facts<'_>,
        matched: &MatchedPolicies<'_>,
    ) {
        let own = matched.iter().find(|own| *own.policy.name == *self.policy);
        let is_tracked = own.is_some_and(|own| self.add_demand(entry, own));
        for step in &mut self.steps {
            // Requests that other policies count matter to this one too.
            let decided = step.rules.simulation.decide_facts(entry.at, facts, &entry.response);
            let (Ok(decision), Some(own)) = (decided, own) else { continue };
            let refused_by = RefusedBy::new(&decision, matched, own, &step.quotas);
            step.refused += u64::from(matches!(refused_by, RefusedBy::Own));
            if is_tracked && !matches!(refused_by, RefusedBy::None) {
                step.refusals.entry(own.identity).or_default().add(&refused_by);
            }
        }
    }

    /// Counts a request of the policy, and returns whether there is room for its identity.
    fn add_demand(&mut self, entry: &LogEntry, own: &MatchedPolicy<'_>) -> bool {
        self.requests += 1;
        // All steps have the same window.
        let Some(SweepStep { quota, .. }) = self.steps.first() else { return false };
        let has_room = self.demands.len() < MAX_IDENTITIES;
        if !has_room && !self.demands.contains_key(&own.identity) {
            return false;
        }
        let window = self.demands.entry(own.identity).or_insert_with(|| DemandWindow::new(*quota));
        let rule = own.policy.response.as_deref();
        window.add(*quota, entry.at, DemandedUnits::new(rule, own.cost, &entry.response));
        true
    }
}

impl SweepStep {
    fn new(policy: &str, quota: Quota, rules: RuleSet) -> Self {
        let rules = ReplayedRules::new(rules);
        let own = rules.policies.iter().find(|own| *own.name == *policy);
        let quotas = own.map_or_else(Vec::new, |own| own.quotas().to_vec());
        Self { quota, quotas, rules, refused: 0, refusals: HashMap::default() }
    }

    /// The refusals of identities that ask for more than the quota.
    pub(crate) fn above<'s>(
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
