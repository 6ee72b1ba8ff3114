//! Human-readable summaries of policies and plans.

use std::fmt;

use slidegate::policy::UnknownKeys;
use slidegate::{Cost, Policies, Quota, Scope};

use crate::config::period::Period;
use crate::config::written::{Written, WrittenPolicy};

/// A summary of all limits, without secrets. Equal summaries mean equal limits, secrets aside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConfigSummary {
    pub(crate) policies: Vec<PolicySummary>,
    pub(crate) plans: Vec<PlanSummary>,
    pub(crate) api_keys: usize,
    /// Whether API keys that are not listed are no identities.
    pub(crate) ignores_unknown_keys: bool,
    pub(crate) exempt: Vec<String>,
    pub(crate) blocked: Vec<String>,
}

/// The summary of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicySummary {
    pub(crate) name: String,
    /// `every request`, or methods and paths.
    pub(crate) requests: String,
    /// Sources in order, the first that a request has.
    pub(crate) identity: Vec<String>,
    pub(crate) limits: QuotaSummary,
    /// Whether its accounts are in this process, whatever the store.
    pub(crate) is_local: bool,
    /// Whatever else is not as by default.
    pub(crate) notes: Vec<String>,
}

/// Where a policy's quotas come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuotaSummary {
    Quotas(Vec<Quota>),
    Plans { header: Option<String>, default: String },
}

/// The summary of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanSummary {
    pub(crate) name: String,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) upgrade_url: Option<String>,
}

impl ConfigSummary {
    pub(super) fn of(written: &Written, policies: &Policies) -> Self {
        let plan = |plan: &super::written::WrittenPlan| PlanSummary {
            name: plan.name.value.clone(),
            quotas: plan.quotas.values(),
            upgrade_url: plan.upgrade_url.clone(),
        };
        Self {
            policies: written.policies.iter().map(PolicySummary::of).collect(),
            plans: written.plans.iter().map(plan).collect(),
            api_keys: written.api_keys.len(),
            ignores_unknown_keys: policies.unknown_keys() == UnknownKeys::Ignore,
            exempt: written.exempt.shown.clone(),
            blocked: written.blocked.shown.clone(),
        }
    }
}

impl PolicySummary {
    fn of(policy: &WrittenPolicy) -> Self {
        let limits = match &policy.plan {
            Some(plan) => QuotaSummary::Plans {
                header: plan.header.as_ref().map(ToString::to_string),
                default: plan.default.value.clone(),
            },
            None => QuotaSummary::Quotas(policy.quotas.values()),
        };
        Self {
            name: policy.name.value.clone(),
            requests: requests(policy),
            identity: policy.identity.iter().map(|source| source.shown.clone()).collect(),
            limits,
            is_local: policy.scope == Scope::Local,
            notes: notes(policy),
        }
    }
}

fn requests(policy: &WrittenPolicy) -> String {
    let methods: Vec<&str> = policy.methods.iter().map(|method| method.as_str()).collect();
    let paths: Vec<&str> = policy.paths.iter().map(|path| path.value.as_str()).collect();
    match (methods.join(", "), paths.join(", ")) {
        (methods, paths) if methods.is_empty() && paths.is_empty() => "every request".to_owned(),
        (methods, paths) if methods.is_empty() => paths,
        (methods, paths) if paths.is_empty() => format!("every {methods}"),
        (methods, paths) => format!("{methods} {paths}"),
    }
}

fn notes(policy: &WrittenPolicy) -> Vec<String> {
    let mut notes = Vec::new();
    if policy.scope == Scope::Local {
        notes.push("in this process, before everything else".to_owned());
    }
    if policy.shadow {
        notes.push("only watching".to_owned());
    }
    match policy.cost.as_ref().map(|sourced| sourced.value) {
        Some(Cost::Units(units)) => notes.push(format!("{units} units a request")),
        Some(Cost::Request) if policy.scope == Scope::Local => {
            notes.push("takes what a request costs".to_owned());
        }
        Some(Cost::Request) | None => {}
    }
    let by_default = policy.scope == Scope::Shared;
    match policy.headers {
        Some(true) if !by_default => notes.push("in the headers".to_owned()),
        Some(false) if by_default => notes.push("not in the headers".to_owned()),
        _ => {}
    }
    if policy.count_denied.as_ref().is_some_and(|sourced| sourced.value) {
        notes.push("denied requests count too".to_owned());
    }
    if let Some(ban) = &policy.ban {
        let (length, denials) = (Period(ban.length()), ban.denials());
        notes.push(format!("banned for {length} after {denials} denials"));
    }
    let outside = policy.quotas.quotas.iter().find(|quota| !quota.location.is_in_file());
    if let Some(quota) = outside.filter(|_| policy.location.is_in_file()) {
        notes.push(format!("{} by {}", quota.value, quota.location));
    }
    if policy.on_store_error != slidegate::OnStoreError::default() {
        notes.push(format!("on a store's error: {}", policy.on_store_error));
    }
    if let Some(refusal) = &policy.refusal {
        notes.push(format!("refusal: {}", refusal.shown));
    }
    if !policy.exempt.shown.is_empty() {
        notes.push(format!("not for {}", policy.exempt.shown.join(", ")));
    }
    notes
}

impl fmt::Display for PolicySummary {
    /// One line: `login: 5/min for each ip, POST /login`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, requests, identity, limits, notes, .. } = self;
        let whom = match identity.as_slice() {
            [all] if all == "everyone" => "everyone together".to_owned(),
            sources => format!("each {}", sources.join(", else ")),
        };
        write!(f, "{name}: {limits} for {whom}, {requests}")?;
        notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

impl fmt::Display for QuotaSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quotas(quotas) => f.write_str(&list(quotas)),
            Self::Plans { header: Some(header), default } => {
                write!(f, "by plan (header {header}, else {default})")
            }
            Self::Plans { header: None, default } => write!(f, "by plan (else {default})"),
        }
    }
}

impl fmt::Display for PlanSummary {
    /// One line: `free: 60/min and 10000/day; upgrade at https://…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, list(&self.quotas))?;
        match &self.upgrade_url {
            Some(url) => write!(f, "; upgrade at {url}"),
            None => Ok(()),
        }
    }
}

fn list(quotas: &[Quota]) -> String {
    quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(" and ")
}
