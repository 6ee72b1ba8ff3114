//! `--against`: who is refused by one configuration and not by the other.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use slidegate::{Decision, Facts, Identity};

use crate::entry::LogEntry;
use crate::rules::ReplayedRules;
use crate::tally::{MAX_IDENTITIES, MatchedPolicies, is_refused_by};
use crate::timeline::IsRefused;

/// The configuration in force, beside the candidate.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) rules: ReplayedRules,
    /// Requests that it refuses.
    pub(crate) refused: u64,
    /// Refused by the candidate and not by this one.
    pub(crate) only_candidate: OneSided,
    /// Refused by this one and not by the candidate.
    pub(crate) only_other: OneSided,
}

/// Requests that only one configuration refuses.
#[derive(Debug, Default)]
pub(crate) struct OneSided {
    pub(crate) requests: u64,
    /// By policy and identity of the configuration that refuses; at most as many as are counted under a
    /// policy.
    pub(crate) identities: HashMap<(String, Identity), u64, RandomState>,
}

/// Replaces the policy name for clients on the block list.
const BLOCKED: &str = "blocked";

impl Comparison {
    pub(crate) fn new(rules: ReplayedRules) -> Self {
        let (only_candidate, only_other) = (OneSided::default(), OneSided::default());
        Self { rules, refused: 0, only_candidate, only_other }
    }

    /// Decides a request, beside how the candidate has decided it.
    pub(crate) fn decide(
        &mut self,
        entry: &LogEntry,
        candidate_facts: &Facts<'_>,
        candidate: &Decision,
        matched: &MatchedPolicies<'_>,
    ) {
        let facts = self.rules.facts(entry);
        let decided = self.rules.simulation.decide_facts(entry.at, &facts, &entry.response);
        let Ok(other) = decided else { return };
        self.refused += u64::from(!other.is_allowed());
        match (candidate.is_allowed(), other.is_allowed()) {
            (false, true) => self.only_candidate.add(candidate, candidate_facts, matched),
            (true, false) => {
                let matched = self.rules.policies.matching(&facts).collect();
                self.only_other.add(&other, &facts, &matched);
            }
            _ => {}
        }
    }
}

impl OneSided {
    fn add(&mut self, decision: &Decision, facts: &Facts<'_>, matched: &MatchedPolicies<'_>) {
        self.requests += 1;
        let is_own =
            |own: &&_| is_refused_by(decision, own, own.quotas.as_slice()) == IsRefused::Yes;
        let own = matched.iter().filter(|own| !own.policy.shadow).find(is_own);
        let key = match own {
            Some(own) => (own.policy.name.to_string(), own.identity),
            None => {
                let client = slidegate::Source::ip().read(facts);
                (BLOCKED.to_owned(), client.unwrap_or_else(Identity::anonymous))
            }
        };
        if self.identities.len() < MAX_IDENTITIES || self.identities.contains_key(&key) {
            *self.identities.entry(key).or_default() += 1;
        }
    }
}
