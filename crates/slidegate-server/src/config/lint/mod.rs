//! Warnings: what is valid, but probably not meant.

mod addresses;
mod policies;

use slidegate::Policies;
use slidegate::policy::CheckedPolicy;

use crate::config::error::Origin;
use crate::config::limiter::LimiterSections;
use crate::config::policy::PolicyConfig;
use crate::config::reader::{Reader, Value};
use crate::config::sources::{self, Environment};

/// A configuration without errors, to be warned of.
pub(super) struct Lint<'c> {
    pub(super) root: &'c Value<'c>,
    pub(super) limiter: &'c LimiterSections<'c>,
    /// All policies, whether they are enforced or not.
    pub(super) policies: &'c Policies,
    pub(super) has_gateway: bool,
    pub(super) has_decisions: bool,
}

impl<'c> Lint<'c> {
    pub(super) fn run(&self) {
        self.lint_addresses();
        self.lint_policies();
        self.lint_plans();
    }

    /// Each policy as it is written and as it was checked.
    fn policies(&self) -> impl Iterator<Item = (&'c PolicyConfig<'c>, &'c CheckedPolicy)> {
        self.limiter.policies.iter().zip(self.policies.iter())
    }

    /// `[exempt]`, `[blocked]` and the exemptions of policies.
    fn lists(&self) -> impl Iterator<Item = Value<'c>> {
        let own = self.limiter.policies.iter().map(|policy| policy.table.named("exempt"));
        [self.root.named("exempt"), self.root.named("blocked")].into_iter().chain(own)
    }
}

/// What the environment switches off, and what is not used of it.
pub(super) fn lint_environment(
    root: &Value<'_>,
    environment: &Environment,
    enforced: bool,
    reader: &Reader,
) {
    if !enforced {
        let text = "NO POLICY IS ENFORCED: every request that is not blocked passes, uncounted";
        reader.warn(Origin::Variable(sources::ENABLED), text);
    }
    let is_memory = root.named("store").named("kind").text() == Some("memory");
    if is_memory && environment.get(sources::REDIS_URL).is_some() {
        let text = "not used: the file says that the store is in memory";
        reader.warn(Origin::Variable(sources::REDIS_URL), text);
    }
}
