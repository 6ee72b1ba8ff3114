//! Summaries of policies and plans, for `slidegate check`.

use std::fmt;

use slidegate::policy::{CheckedPlan, CheckedPolicy, UnknownKeys};
use slidegate::{Cost, OnStoreError, Policies, Quota, Scope};

use crate::config::policy::PolicyConfig;
use crate::config::values::Period;

/// A summary of all limits, without secrets.
#[derive(Debug, Default)]
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
#[derive(Debug)]
pub(crate) struct PolicySummary {
    pub(crate) name: String,
    /// Empty if it goes by plans.
    pub(crate) quotas: Vec<Quota>,
    /// Whether its accounts are in this process, whatever the store.
    pub(crate) is_local: bool,
    /// One line: `login: 5/min for each ip, POST /login`.
    text: String,
}

/// The summary of a plan.
#[derive(Debug)]
pub(crate) struct PlanSummary {
    pub(crate) name: String,
    pub(crate) quotas: Vec<Quota>,
    /// One line: `free: 60/min and 10000/day; upgrade at https://…`.
    text: String,
}

impl ConfigSummary {
    /// Of policies as they were checked and as they are written; plans in the order of the file.
    pub(super) fn new(policies: &Policies, written: &[PolicyConfig<'_>], plans: &[&str]) -> Self {
        let checked = policies.plans();
        let plan = |name: &&str| checked.iter().find(|plan| *plan.name == **name);
        Self {
            policies: policies.iter().zip(written).map(PolicySummary::of).collect(),
            plans: plans.iter().filter_map(plan).map(|plan| PlanSummary::of(plan)).collect(),
            api_keys: policies.plan_keys().count(),
            ignores_unknown_keys: policies.unknown_keys() == UnknownKeys::Ignore,
            exempt: Vec::new(),
            blocked: Vec::new(),
        }
    }
}

impl PolicySummary {
    fn of((policy, written): (&CheckedPolicy, &PolicyConfig<'_>)) -> Self {
        let limits = match (policy.default_plan().map(|plan| &plan.name), policy.plan_header()) {
            (Some(default), Some(header)) => format!("by plan (header {header}, else {default})"),
            (Some(default), None) => format!("by plan (else {default})"),
            (None, _) => list(policy.quotas()),
        };
        let whom = match written.identity.as_slice() {
            [all] if all == "everyone" => "everyone together".to_owned(),
            sources => format!("each {}", sources.join(", else ")),
        };
        let methods: Vec<&str> = policy.methods.iter().map(|method| method.as_str()).collect();
        let requests = match (methods.join(", "), policy.paths().join(", ")) {
            (methods, paths) if methods.is_empty() && paths.is_empty() => {
                "every request".to_owned()
            }
            (methods, paths) if methods.is_empty() => paths,
            (methods, paths) if paths.is_empty() => format!("every {methods}"),
            (methods, paths) => format!("{methods} {paths}"),
        };
        let mut text = format!("{}: {limits} for {whom}, {requests}", policy.name);
        for note in notes(policy, written) {
            text.push_str("; ");
            text.push_str(&note);
        }
        Self {
            name: policy.name.to_string(),
            quotas: policy.quotas().to_vec(),
            is_local: policy.scope == Scope::Local,
            text,
        }
    }
}

/// Whatever is not as by default.
fn notes(policy: &CheckedPolicy, written: &PolicyConfig<'_>) -> Vec<String> {
    let is_local = policy.scope == Scope::Local;
    let mut notes = Vec::new();
    let mut note = |is_so: bool, text: &str| {
        if is_so {
            notes.push(text.to_owned());
        }
    };
    note(is_local, "in this process, before everything else");
    note(policy.shadow, "only watching");
    match policy.cost {
        Cost::Units(units) if written.node.get(&["cost"]).is_some() => {
            note(true, &format!("{units} units a request"));
        }
        Cost::Request => note(is_local, "takes what a request costs"),
        Cost::Units(_) => {}
    }
    note(is_local && policy.in_headers, "in the headers");
    note(!is_local && !policy.in_headers, "not in the headers");
    note(policy.count_denied, "denied requests count too");
    if let Some(ban) = policy.ban {
        let (length, denials) = (Period(ban.length), ban.denials);
        note(true, &format!("banned for {length} after {denials} denials"));
    }
    let mut quotas = written.node.all(&["quotas"]).iter();
    if let Some(quota) = quotas.find(|quota| !quota.location.is_in_file())
        && written.node.location.is_in_file()
    {
        let (text, location) = (quota.text().unwrap_or_default(), &quota.location);
        note(true, &format!("{text} by {location}"));
    }
    if policy.on_store_error != OnStoreError::default() {
        note(true, &format!("on a store's error: {}", policy.on_store_error));
    }
    if let Some((_, shown)) = &written.refusal {
        note(true, &format!("refusal: {shown}"));
    }
    if !written.exempt.shown.is_empty() {
        note(true, &format!("not for {}", written.exempt.shown.join(", ")));
    }
    notes
}

impl PlanSummary {
    fn of(plan: &CheckedPlan) -> Self {
        let mut text = format!("{}: {}", plan.name, list(plan.quotas.as_slice()));
        if let Some(url) = &plan.upgrade_url {
            text.push_str(&format!("; upgrade at {url}"));
        }
        Self { name: plan.name.to_string(), quotas: plan.quotas.as_slice().to_vec(), text }
    }
}

fn list(quotas: &[Quota]) -> String {
    quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(" and ")
}

impl fmt::Display for PolicySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
