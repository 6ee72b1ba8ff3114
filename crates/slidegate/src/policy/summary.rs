//! Policies and plans in words.

use std::fmt;

use crate::limit::{Period, Quotas};
use crate::policy::{
    CheckedPlan, CheckedPolicy, Cost, OnStoreError, Prefixes, Scope, Source, join,
};

/// One line: `login: 5/min per ip on POST /login; bans for 10min after 20 denials in 1min`.
impl fmt::Display for CheckedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match (self.default_plan().map(|plan| &plan.name), self.plan_header()) {
            (Some(default), Some(header)) => write!(f, "by plan (header {header}, else {default})"),
            (Some(default), None) => write!(f, "by plan (else {default})"),
            (None, _) if self.has_caller_quotas() => f.write_str("quotas of each charge"),
            (None, _) => f.write_str(&join(self.quotas(), " and ")),
        }?;
        match self.identity.as_slice() {
            [] => {}
            [Source::Everyone] => f.write_str(" for everyone together")?,
            sources => {
                let sources: Vec<String> = sources.iter().map(source).collect();
                write!(f, " per {}", sources.join(", else "))?;
            }
        }
        if let Some(descriptors) = &self.descriptors {
            write!(f, " on {descriptors}")?;
        }
        if !self.methods.is_empty() || !self.paths().is_empty() {
            f.write_str(" on")?;
        }
        if !self.methods.is_empty() {
            write!(f, " {}", join(&self.methods, ", "))?;
        }
        if !self.paths().is_empty() {
            write!(f, " {}", join(self.paths(), ", "))?;
        }
        self.notes().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// One line: `free: 60/min and 10000/day; upgrade at https://app.example.com`.
impl fmt::Display for CheckedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, join(self.quotas.as_slice(), " and "))?;
        self.upgrade_url.as_ref().map_or(Ok(()), |url| write!(f, "; upgrade at {url}"))
    }
}

impl CheckedPolicy {
    /// All settings but the exemptions, with their keys in the configuration and their values as
    /// text, to be compared with those of another policy.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        fn option<T: fmt::Display>(value: Option<T>) -> String {
            value.map_or_else(|| "none".to_owned(), |value| value.to_string())
        }
        fn list<T: fmt::Display>(values: &[T]) -> String {
            if values.is_empty() { "none".to_owned() } else { join(values, ", ") }
        }
        vec![
            ("method", list(&self.methods)),
            ("path", list(self.paths())),
            ("descriptors", option(self.descriptors.as_ref())),
            ("identity", list(&self.identity.iter().map(source).collect::<Vec<_>>())),
            ("anonymous", if self.skip_anonymous { "skip" } else { "share" }.to_owned()),
            ("quotas", list(self.quotas())),
            ("candidate", list(self.candidate.as_ref().map_or(&[][..], Quotas::as_slice))),
            ("default plan", option(self.default_plan().map(|plan| &plan.name))),
            ("plan header", option(self.plan_header())),
            ("cost", self.cost.to_string()),
            ("count_denied", self.count_denied.to_string()),
            ("response", option(self.response.as_deref())),
            ("charge", if self.admit_only { "admit" } else { "record" }.to_owned()),
            ("ban", option(self.ban)),
            ("shadow", self.shadow.to_string()),
            ("scope", self.scope.to_string()),
            ("lease", option(self.lease.map(Period))),
            ("headers", self.in_headers.to_string()),
            ("on_store_error", self.on_store_error.to_string()),
        ]
    }

    /// What differs from the defaults.
    fn notes(&self) -> impl Iterator<Item = String> {
        let is_local = self.scope == Scope::Local;
        let note = |applies: bool, text: &str| applies.then(|| text.to_owned());
        let on_store_error = Some(self.on_store_error).filter(|e| *e != OnStoreError::default());
        [
            note(is_local, "local"),
            note(self.shadow, "shadow"),
            note(self.skip_anonymous, "skips anonymous requests"),
            match self.cost {
                Cost::Units(units) if units.get() == 1 => note(!is_local, "1 unit a request"),
                Cost::Units(units) => Some(format!("{units} units a request")),
                Cost::Request => note(is_local, "the request's own cost"),
            },
            note(is_local && self.in_headers, "in the headers"),
            note(!is_local && !self.in_headers, "not in the headers"),
            self.lease.map(|lease| format!("async: leases of {}", Period(lease))),
            self.candidate
                .as_ref()
                .map(|all| format!("candidate: {}", join(all.as_slice(), " and "))),
            note(self.count_denied, "counts denied requests too"),
            self.response.as_ref().map(ToString::to_string),
            note(self.admit_only, "admits a cost only if it fits"),
            self.ban.map(|ban| format!("bans for {ban}")),
            on_store_error.map(|action| format!("on a store's error: {action}")),
        ]
        .into_iter()
        .flatten()
    }
}

/// With the prefixes of addresses, if they are not the defaults.
fn source(source: &Source) -> String {
    match source {
        Source::Ip(prefixes) if *prefixes != Prefixes::default() => {
            format!("ip ({prefixes})")
        }
        source => source.to_string(),
    }
}
