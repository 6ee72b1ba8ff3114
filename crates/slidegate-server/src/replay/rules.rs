//! The rules of one configuration, in virtual time.

use std::sync::Arc;

use slidegate::{Facts, Policies};

use crate::replay::entry::LogEntry;
use crate::replay::tally::MAX_IDENTITIES;
use crate::simulation::{RuleSet, Simulation};

/// Rules that decide the requests of a log.
#[derive(Debug)]
pub(super) struct ReplayedRules {
    pub(super) simulation: Simulation,
    pub(super) policies: Arc<Policies>,
}

impl ReplayedRules {
    pub(super) fn new(rules: RuleSet) -> Self {
        let simulation = Simulation::new(rules, MAX_IDENTITIES);
        Self { policies: simulation.policies(), simulation }
    }

    /// The facts of a request. What the log has of headers was written by the operator's own server.
    pub(super) fn facts<'f>(&self, entry: &'f LogEntry) -> Facts<'f> {
        let facts = self.simulation.reading().facts(&entry.request);
        facts.headers_trusted().identities(&entry.identities)
    }
}
