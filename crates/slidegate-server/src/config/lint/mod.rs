//! Warnings: what is valid, but probably not meant.

mod addresses;
mod policies;

use slidegate::Policies;
use slidegate::policy::CheckedPolicy;

use crate::config::error::{ConfigWarning, Location, Origin};
use crate::config::limiter::LimiterSections;
use crate::config::policy::PolicyConfig;
use crate::config::sources::{self, Environment};
use crate::config::tree::Node;

/// A configuration without errors, and the warnings about it.
pub(super) struct Lint<'c> {
    pub(super) root: &'c Node,
    pub(super) limiter: &'c LimiterSections<'c>,
    /// All policies, whether they are enforced or not.
    pub(super) policies: &'c Policies,
    pub(super) has_gateway: bool,
    pub(super) has_decisions: bool,
    /// Whether every user of this machine may read the file.
    pub(super) is_open_to_all: bool,
    pub(super) warnings: Vec<ConfigWarning>,
}

impl<'c> Lint<'c> {
    /// All warnings, in the order of the file.
    pub(super) fn run(mut self, environment: &Environment, enforced: bool) -> Vec<ConfigWarning> {
        if !enforced {
            let text = "NO POLICY IS ENFORCED: every request that is not blocked passes, uncounted";
            self.warn(Location::variable(sources::ENABLED), text);
        }
        let kind = self.root.get(&["store", "kind"]).and_then(Node::text);
        if environment.get(sources::REDIS_URL).is_some() && kind == Some("memory") {
            let location = Location::variable(sources::REDIS_URL);
            self.warn(location, "not used: the file says that the store is in memory");
        }
        self.lint_addresses();
        self.lint_policies();
        self.lint_secrets();
        self.warnings.sort_by(|a, b| a.location.cmp(&b.location));
        self.warnings
    }

    fn warn(&mut self, location: Location, text: impl Into<String>) {
        self.warnings.push(ConfigWarning { location, text: text.into() });
    }

    /// Each policy as it is written and as it was checked.
    fn policies(
        &self,
    ) -> impl Iterator<Item = (&'c PolicyConfig<'c>, &'c CheckedPolicy)> + use<'c> {
        self.limiter.policies.iter().zip(self.policies.iter())
    }

    /// `[exempt]`, `[blocked]` and the exemptions of policies.
    fn lists(&self) -> Vec<&'c Node> {
        let of_policies = self.limiter.policies.iter().map(|policy| policy.node);
        let own = of_policies.filter_map(|node| node.get(&["exempt"]));
        ["exempt", "blocked"].iter().filter_map(|key| self.root.get(&[key])).chain(own).collect()
    }

    /// Secrets where others may see them.
    fn lint_secrets(&mut self) {
        if self.limiter.api_keys.shows_secrets {
            let text = "every user of this machine may read the API keys in it: chmod o-r, or give \
                        their digests, which `slidegate digest` makes";
            self.warn(self.root.location(&["keys_file"]), text);
        }
        let before = self.warnings.len();
        for (section, variable) in
            [("admin", sources::ADMIN_TOKEN), ("decisions", sources::DECISIONS_TOKEN)]
        {
            let token = self.root.get(&[section, "token"]).map(|node| &node.location);
            if let Some(location) = token.filter(|location| location.is_in_file()) {
                let text = format!("a secret in the file: name a token_file, or set {variable}");
                self.warn(location.clone(), text);
            }
        }
        self.lint_password();
        let mut keys = self.limiter.api_keys.keys.iter().filter(|key| key.is_secret);
        if let Some(first) = keys.next() {
            let remedy = "give its digest, which `slidegate digest` makes, or name a key_file";
            let text = match keys.count() {
                0 => format!("a secret in the file: {remedy}"),
                more => format!("a secret in the file, and {more} more API keys: {remedy}"),
            };
            self.warn(first.location.clone(), text);
        }
        for list in self.lists() {
            for key in ["api_keys", "authorizations"] {
                if !list.all(&[key]).is_empty() {
                    let text = "secrets in the file: make sure that only the server can read it";
                    self.warn(list.location(&[key]), text);
                }
            }
        }
        let in_file = self.warnings[before..].iter().find(|w| w.location.is_in_file());
        if let Some(Origin::File { name, .. }) = in_file.map(|w| w.location.origin.clone())
            && self.is_open_to_all
        {
            let text =
                "every user of this machine may read the file, and it has secrets: chmod o-r";
            self.warn(Location::of(Origin::File { name, line: None }), text);
        }
    }

    fn lint_password(&mut self) {
        let Some(url) = self.root.get(&["store", "url"]) else { return };
        let text = match url.location.origin {
            Origin::File { .. } => "a password in the file: set REDIS_URL instead",
            Origin::Flag(_) => {
                "other users of this machine see the password: set REDIS_URL instead"
            }
            _ => return,
        };
        if url.text().is_some_and(has_password) {
            self.warn(url.location.clone(), text);
        }
    }
}

fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let login = rest.rsplit_once('@').map(|(login, _)| login);
    let is_queried = ["pass=", "password="].iter().any(|key| rest.contains(key));
    is_queried || login.is_some_and(|login| login.contains(':'))
}
