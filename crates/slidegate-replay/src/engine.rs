//! Decides the requests of a log, in virtual time.

use slidegate::{Decision, Timestamp};

use crate::against::Comparison;
use crate::entry::LogEntry;
use crate::rules::ReplayedRules;
use crate::simulation::{RuleSet, Undecided};
use crate::sweep::Sweep;
use crate::tally::{CountedRequest, MatchedPolicies, PolicyTally, RefusedBy};
use crate::timeline::{IsRefused, Timeline};

/// Policies, and what became of the requests under them.
#[derive(Debug)]
pub(crate) struct ReplayEngine {
    pub(crate) rules: ReplayedRules,
    pub(crate) tallies: Tallies,
    pub(crate) comparison: Option<Comparison>,
    pub(crate) sweep: Option<Sweep>,
}

/// What became of the requests, of all and under each policy.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) totals: Totals,
    pub(crate) timeline: Timeline,
    /// In the order of the policies.
    pub(crate) policies: Vec<PolicyTally>,
}

/// Requests of all policies.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) first: Option<Timestamp>,
    pub(crate) last: Option<Timestamp>,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    /// Of these, those that are on the list of the blocked.
    pub(crate) blocked: u64,
    /// Requests that would be answered with 400, and are not counted by any policy.
    pub(crate) bad_requests: u64,
    /// Decisions for which there was no room.
    pub(crate) without_room: u64,
}

impl ReplayEngine {
    pub(crate) fn new(rules: RuleSet, against: Option<RuleSet>, sweep: Option<Sweep>) -> Self {
        let rules = ReplayedRules::new(rules);
        let counted = rules.policies.iter().filter(|policy| !policy.has_caller_quotas());
        let policies = counted.map(PolicyTally::new).collect();
        let tallies = Tallies { policies, ..Tallies::default() };
        let comparison = against.map(|other| Comparison::new(ReplayedRules::new(other)));
        Self { rules, tallies, comparison, sweep }
    }

    /// Decides a request, which is no earlier than the last.
    pub(crate) fn decide(&mut self, entry: &LogEntry) {
        let at = entry.at;
        let facts = self.rules.facts(entry);
        self.tallies.totals.add(at);
        let decision = match self.rules.simulation.decide_facts(at, &facts, &entry.response) {
            Ok(decision) => decision,
            Err(error) => return self.tallies.count_undecided(at, &error),
        };
        let mut matched = MatchedPolicies::new();
        if self.is_whole(&decision) {
            self.tallies.count_allowed(entry, &decision);
        } else {
            matched.extend(self.rules.policies.matching(&facts));
            self.tallies.count(entry, &decision, &matched);
        }
        if let Some(sweep) = &mut self.sweep {
            sweep.decide(entry, &facts, &matched);
        }
        if let Some(comparison) = &mut self.comparison {
            comparison.decide(entry, &facts, &decision, &matched);
        }
    }

    /// Whether a decision itself tells all that is to be counted, as that of nearly every request: it has
    /// every policy that counts the request, and none had no room for it.
    fn is_whole(&self, decision: &Decision) -> bool {
        let has_shadow = self.tallies.policies.iter().any(|policy| policy.shadow);
        decision.is_allowed() && !decision.is_degraded() && !has_shadow && self.sweep.is_none()
    }

    /// Takes stock at the end of the log.
    pub(crate) fn finish(&mut self) {
        self.tallies.policies.iter_mut().for_each(PolicyTally::finish);
    }
}

impl Tallies {
    fn count(&mut self, entry: &LogEntry, decision: &Decision, matched: &MatchedPolicies<'_>) {
        let is_refused = IsRefused::from(!decision.is_allowed());
        self.timeline.add(entry.at, is_refused);
        self.totals.without_room += u64::from(decision.is_degraded());
        if is_refused == IsRefused::Yes {
            self.totals.refused += 1;
            // Policies do not count clients on the block list.
            self.totals.blocked += u64::from(matched.is_empty());
        }
        for own in matched {
            let refused_by = RefusedBy::new(decision, matched, own, own.quotas.as_slice());
            self.count_under(&own.into(), entry, &refused_by);
        }
    }

    fn count_allowed(&mut self, entry: &LogEntry, decision: &Decision) {
        self.timeline.add(entry.at, IsRefused::No);
        for own in decision.policies() {
            self.count_under(&own.into(), entry, &RefusedBy::None);
        }
    }

    fn count_under(
        &mut self,
        own: &CountedRequest<'_>,
        entry: &LogEntry,
        refused_by: &RefusedBy<'_>,
    ) {
        let mut tallies = self.policies.iter_mut();
        if let Some(tally) = tallies.find(|tally| tally.policy == *own.policy) {
            tally.add(own, entry.at, &entry.response, refused_by);
        }
    }

    fn count_undecided(&mut self, at: Timestamp, error: &Undecided) {
        self.timeline.add(at, IsRefused::No);
        match error {
            Undecided::BadRequest(_) => self.totals.bad_requests += 1,
            Undecided::Store(_) => self.totals.without_room += 1,
        }
    }
}

impl Totals {
    fn add(&mut self, at: Timestamp) {
        self.first.get_or_insert(at);
        self.last = Some(at);
        self.requests += 1;
    }
}
