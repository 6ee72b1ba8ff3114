//! Summaries of policies and plans, for `slidegate check`.

use slidegate::policy::{CheckedPlan, CheckedPolicy, Network, UnknownKeys};
use slidegate::{Cost, OnStoreError, Policies, Quota, Scope, Source};

use crate::config::limiter::LimiterSections;
use crate::config::policy::{self, PolicyConfig};
use crate::config::reader::Value;
use crate::config::values::Period;

/// A summary of all limits, without secrets.
#[derive(Debug, Default)]
pub(crate) struct ConfigSummary {
    pub(crate) policies: Vec<LimitSummary>,
    pub(crate) plans: Vec<LimitSummary>,
    pub(crate) api_keys: usize,
    /// Whether API keys that are not listed are no identities.
    pub(crate) unknown_keys: UnknownKeys,
    pub(crate) exempt: Vec<String>,
    pub(crate) blocked: Vec<String>,
}

/// The summary of a policy or a plan.
#[derive(Debug)]
pub(crate) struct LimitSummary {
    pub(crate) name: String,
    /// Empty if it is a policy that goes by plans.
    pub(crate) quotas: Vec<Quota>,
    /// Whether its accounts are in this process, whatever the store.
    pub(crate) is_local: bool,
    /// One line: `login: 5/min for each ip, POST /login`, or `free: 60/min and 10000/day`.
    pub(crate) text: String,
}

impl ConfigSummary {
    /// Of policies as they were checked and as they are written; plans in the order of the file.
    pub(super) fn new(
        root: &Value<'_>,
        policies: &Policies,
        written: &LimiterSections<'_>,
    ) -> Self {
        let mut plans = policies.plans();
        plans.sort_by_key(|plan| written.plans.iter().position(|(name, _)| *plan.name == **name));
        Self {
            policies: policies.iter().zip(&written.policies).map(of_policy).collect(),
            plans: plans.into_iter().map(of_plan).collect(),
            api_keys: policies.plan_keys().count(),
            unknown_keys: policies.unknown_keys(),
            exempt: of_list(&root.named("exempt")),
            blocked: of_list(&root.named("blocked")),
        }
    }
}

fn of_policy((policy, written): (&CheckedPolicy, &PolicyConfig<'_>)) -> LimitSummary {
    let limits = match (policy.default_plan().map(|plan| &plan.name), policy.plan_header()) {
        (Some(default), Some(header)) => format!("by plan (header {header}, else {default})"),
        (Some(default), None) => format!("by plan (else {default})"),
        (None, _) => list(policy.quotas()),
    };
    let identity = written.table.named("identity").elements();
    let source = |(i, source): (usize, &Source)| {
        let prefixes = identity.get(i).and_then(|value| value.named("ip").table());
        prefixes.as_ref().map(policy::prefixes).map_or_else(
            || source.to_string(),
            |(v4, v6)| format!("ip (/{v4} of IPv4, /{v6} of IPv6)"),
        )
    };
    let sources: Vec<String> = policy.identity.iter().enumerate().map(source).collect();
    let whom = match policy.identity.as_slice() {
        [Source::Everyone] => "everyone together".to_owned(),
        _ => format!("each {}", sources.join(", else ")),
    };
    let methods: Vec<&str> = policy.methods.iter().map(|method| method.as_str()).collect();
    let requests = match (methods.join(", "), policy.paths().join(", ")) {
        (methods, paths) if methods.is_empty() && paths.is_empty() => "every request".to_owned(),
        (methods, paths) if methods.is_empty() => paths,
        (methods, paths) if paths.is_empty() => format!("every {methods}"),
        (methods, paths) => format!("{methods} {paths}"),
    };
    let requests = policy.descriptors.as_ref().map_or(requests, ToString::to_string);
    let what = format!("{}: {limits} for {whom}, {requests}", policy.name);
    LimitSummary {
        name: policy.name.to_string(),
        quotas: policy.quotas().to_vec(),
        is_local: policy.scope == Scope::Local,
        text: std::iter::once(what).chain(notes(policy, written)).collect::<Vec<_>>().join("; "),
    }
}

/// Whatever is not as by default.
fn notes(policy: &CheckedPolicy, written: &PolicyConfig<'_>) -> impl Iterator<Item = String> {
    let is_local = policy.scope == Scope::Local;
    let note = |is_so: bool, text: &str| is_so.then(|| text.to_owned());
    let mut quotas = written.table.named("quotas").elements().into_iter();
    let tuned = quotas.find(|quota| quota.location.file().is_none());
    let tuned = tuned.filter(|_| written.table.location.file().is_some());
    let on_store_error = Some(policy.on_store_error).filter(|e| *e != OnStoreError::default());
    let refusal = written.table.named("refusal");
    let shape = if refusal.is_text() { refusal.text() } else { refusal.named("shape").text() };
    let refusal = refusal.is_set().then(|| format!("refusal: {}", shape.unwrap_or("template")));
    let exempt = of_list(&written.table.named("exempt")).join(", ");
    [
        note(is_local, "in this process, before everything else"),
        note(policy.shadow, "only watching"),
        note(policy.skip_anonymous, "not for requests without an identity"),
        match policy.cost {
            Cost::Units(units) if written.table.named("cost").is_set() => {
                let noun = if units.get() == 1 { "unit" } else { "units" };
                Some(format!("{units} {noun} a request"))
            }
            Cost::Request => note(is_local, "takes what a request costs"),
            Cost::Units(_) => None,
        },
        note(is_local && policy.in_headers, "in the headers"),
        note(!is_local && !policy.in_headers, "not in the headers"),
        policy.lease.map(|lease| format!("without waiting: leases of {}", Period(lease))),
        policy.candidate.as_ref().map(|quotas| format!("candidate: {}", list(quotas.as_slice()))),
        note(policy.count_denied, "denied requests count too"),
        policy.ban.map(|ban| format!("bans for {ban}")),
        tuned.map(|quota| format!("{} by {}", quota.text().unwrap_or_default(), quota.location)),
        on_store_error.map(|action| format!("on a store's error: {action}")),
        refusal,
        note(!exempt.is_empty(), &format!("not for {exempt}")),
    ]
    .into_iter()
    .flatten()
}

fn of_plan(plan: &CheckedPlan) -> LimitSummary {
    let mut text = format!("{}: {}", plan.name, list(plan.quotas.as_slice()));
    if let Some(url) = &plan.upgrade_url {
        text.push_str(&format!("; upgrade at {url}"));
    }
    let (name, quotas) = (plan.name.to_string(), plan.quotas.as_slice().to_vec());
    LimitSummary { name, quotas, is_local: false, text }
}

/// Who is on a list of exempt or blocked identities, without secrets.
fn of_list(table: &Value<'_>) -> Vec<String> {
    let texts = |key| table.named(key).each(Value::text);
    let count = |key, what: &str| match table.named(key).elements().len() {
        0 => None,
        1 => Some(format!("1 {what}")),
        many => Some(format!("{many} {what}s")),
    };
    let users = texts("users").into_iter().map(|user| format!("user {user:?}"));
    let secrets = [count("api_keys", "API key"), count("authorizations", "Authorization value")];
    let networks = table.named("networks").each(Value::parsed::<Network>);
    let networks = networks.into_iter().map(|network| format!("network {network}"));
    let paths = texts("paths").into_iter().map(|path| format!("path {path}"));
    let headers = table.named("headers").names().into_iter();
    let headers = headers.map(|(name, _)| format!("values of {}", name.to_ascii_lowercase()));
    users.chain(secrets.into_iter().flatten()).chain(networks).chain(paths).chain(headers).collect()
}

fn list(quotas: &[Quota]) -> String {
    quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(" and ")
}
