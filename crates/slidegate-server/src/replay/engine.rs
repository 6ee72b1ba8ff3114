//! Decides the requests of a log, in virtual time.

use std::sync::Arc;

use slidegate::policy::MatchedPolicy;
use slidegate::{Decision, Facts, Policies, Quota, Timestamp};
use smallvec::SmallVec;

use crate::config::LimiterConfig;
use crate::replay::against::Comparison;
use crate::replay::entry::LogEntry;
use crate::replay::sweep::Sweep;
use crate::replay::tally::{MAX_IDENTITIES, PolicyTally, is_refused_by};
use crate::replay::timeline::{IsRefused, Timeline};
use crate::simulation::{Simulation, Undecided};

/// Policies, and what became of the requests under them.
#[derive(Debug)]
pub(super) struct ReplayEngine {
    pub(super) rules: ReplayedRules,
    pub(super) totals: Totals,
    pub(super) timeline: Timeline,
    /// In the order of the policies.
    pub(super) tallies: Vec<PolicyTally>,
    pub(super) comparison: Option<Comparison>,
    pub(super) sweep: Option<Sweep>,
}

/// The rules of one configuration, in virtual time.
#[derive(Debug)]
pub(super) struct ReplayedRules {
    pub(super) simulation: Simulation,
    pub(super) policies: Arc<Policies>,
}

/// Requests of all policies.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
    pub(super) requests: u64,
    pub(super) refused: u64,
    /// Of these, those that are on the list of the blocked.
    pub(super) blocked: u64,
    /// Requests that would be answered with 400, and are not counted by any policy.
    pub(super) bad_requests: u64,
    /// Decisions for which there was no room.
    pub(super) without_room: u64,
}

/// The policies that count a request.
pub(super) type MatchedPolicies<'p> = SmallVec<[MatchedPolicy<'p>; 4]>;

impl ReplayedRules {
    pub(super) fn new(rules: LimiterConfig) -> Self {
        let simulation = Simulation::new(rules, MAX_IDENTITIES);
        Self { policies: simulation.gate.policies(), simulation }
    }

    /// The facts of a request. What the log has of headers was written by the operator's own server.
    pub(super) fn facts<'f>(&self, entry: &'f LogEntry, other_paths: &'f [String]) -> Facts<'f> {
        let facts = self.simulation.reading.facts(&entry.request, other_paths);
        facts.headers_trusted().identities(&entry.identities)
    }

    pub(super) fn other_paths(&self, entry: &LogEntry) -> Vec<String> {
        self.simulation.reading.other_paths(&entry.request)
    }
}

impl ReplayEngine {
    pub(super) fn new(
        rules: LimiterConfig,
        against: Option<LimiterConfig>,
        sweep: Option<Sweep>,
    ) -> Self {
        let rules = ReplayedRules::new(rules);
        let counted = rules.policies.iter().filter(|policy| !policy.has_given_quotas());
        Self {
            tallies: counted.map(PolicyTally::new).collect(),
            totals: Totals::default(),
            timeline: Timeline::default(),
            comparison: against.map(|other| Comparison::new(ReplayedRules::new(other))),
            sweep,
            rules,
        }
    }

    /// Decides a request, which is no earlier than the last.
    pub(super) fn decide(&mut self, entry: &LogEntry) {
        let at = entry.at;
        let other_paths = self.rules.other_paths(entry);
        let facts = self.rules.facts(entry, &other_paths);
        let decided = self.rules.simulation.decide_facts(at, &facts);
        self.totals.first.get_or_insert(at);
        self.totals.last = Some(at);
        self.totals.requests += 1;
        let decision = match decided {
            Ok(decision) => decision,
            Err(Undecided::BadRequest(_)) => {
                self.totals.bad_requests += 1;
                self.timeline.add(at, IsRefused::No);
                return;
            }
            Err(Undecided::Store(_)) => {
                self.totals.without_room += 1;
                self.timeline.add(at, IsRefused::No);
                return;
            }
        };
        let policies = Arc::clone(&self.rules.policies);
        let matched: MatchedPolicies<'_> = policies.matching(&facts).collect();
        self.count(at, &decision, &matched);
        if let Some(sweep) = &mut self.sweep {
            sweep.decide(at, &facts, &matched);
        }
        if let Some(comparison) = &mut self.comparison {
            comparison.decide(entry, &facts, &decision, &matched);
        }
    }

    fn count(&mut self, at: Timestamp, decision: &Decision, matched: &MatchedPolicies<'_>) {
        let is_refused = IsRefused::from(!decision.is_allowed());
        self.totals.refused += u64::from(is_refused == IsRefused::Yes);
        self.totals.without_room += u64::from(decision.is_degraded());
        self.timeline.add(at, is_refused);
        if is_refused == IsRefused::Yes && matched.is_empty() {
            self.totals.blocked += 1;
        }
        for own in matched {
            let quotas: &[Quota] = own.quotas;
            let is_refused = is_refused_by(decision, own, quotas);
            let mut tallies = self.tallies.iter_mut();
            if let Some(tally) = tallies.find(|tally| tally.policy == own.policy.name) {
                tally.add(own, at, is_refused);
            }
        }
    }

    /// Takes stock at the end of the log.
    pub(super) fn finish(&mut self) {
        self.tallies.iter_mut().for_each(PolicyTally::finish);
    }
}
