//! The rules of one configuration, in virtual time.

use std::sync::Arc;

use slidegate::{Facts, Policies};

use crate::entry::LogEntry;
use crate::simulation::{RuleSet, Simulation};
use crate::tally::MAX_IDENTITIES;

/// Rules that decide the requests of a log.
#[derive(Debug)]
pub(crate) struct ReplayedRules {
    pub(crate) simulation: Simulation,
    pub(crate) policies: Arc<Policies>,
}

impl ReplayedRules {
    pub(crate) fn new(rules: RuleSet) -> Self {
        let simulation = Simulation::new(rules, MAX_IDENTITIES);
        Self { policies: simulation.policies(), simulation }
    }

    /// The facts of a request. What the log has of headers was written by the operator's own server.
    pub(crate) fn facts<'f>(&self, entry: &'f LogEntry) -> Facts<'f> {
        let facts = entry.request.facts(self.simulation.client_address());
        facts.headers_trusted().identities(&entry.identities)
    }
}
