//! The variables that the server looks at.

use std::collections::BTreeMap;
use std::fmt;

/// The variables that the server looks at, with what they were when it was started.
#[derive(Clone, Default)]
pub(crate) struct Environment(BTreeMap<&'static str, String>);

pub(crate) const CONFIG: &str = "SLIDEGATE_CONFIG";
pub(crate) const ADMIN_TOKEN: &str = "SLIDEGATE_ADMIN_TOKEN";
pub(crate) const DECISIONS_TOKEN: &str = "SLIDEGATE_DECISIONS_TOKEN";
pub(crate) const ENABLED: &str = "RATE_LIMIT_ENABLED";
pub(crate) const MAX: &str = "RATE_LIMIT_MAX";
pub(crate) const POLICY: &str = "RATE_LIMIT_POLICY";
pub(crate) const TTL: &str = "RATE_LIMIT_TTL";
pub(crate) const WINDOW_MS: &str = "RATE_LIMIT_WINDOW_MS";
pub(crate) const REDIS_URL: &str = "REDIS_URL";

const KNOWN: [&str; 9] =
    [CONFIG, ADMIN_TOKEN, DECISIONS_TOKEN, ENABLED, MAX, POLICY, TTL, WINDOW_MS, REDIS_URL];

impl Environment {
    /// That of this process.
    pub(crate) fn of_this_process() -> Self {
        Self::from_lookup(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// A given one, of which the variables that are known are kept.
    #[cfg(test)]
    pub(crate) fn of<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> Self {
        let variables: BTreeMap<&str, &str> = variables.into_iter().collect();
        Self::from_lookup(|name| variables.get(name).map(|value| (*value).to_owned()))
    }

    fn from_lookup(lookup: impl Fn(&'static str) -> Option<String>) -> Self {
        Self(KNOWN.into_iter().filter_map(|name| Some((name, lookup(name)?))).collect())
    }

    /// A variable's value; one that is empty counts as not set, as in a Compose file.
    pub(super) fn get(&self, name: &'static str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Environment {
    /// Names only: some of the values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
