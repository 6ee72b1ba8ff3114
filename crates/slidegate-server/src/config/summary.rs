//! Summaries of policies and plans, for `slidegate check`.

use slidegate::policy::{CheckedPlan, CheckedPolicy, Network, UnknownKeys};
use slidegate::{Policies, Quota, Scope};

use crate::config::limiter::LimiterSections;
use crate::config::policy::PolicyConfig;
use crate::config::reader::Value;

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
    /// Empty if it is a policy that uses plans.
    pub(crate) quotas: Vec<Quota>,
    /// Whether its accounts are in this process, whatever the store.
    pub(crate) is_local: bool,
    /// One line: `login: 5/min per ip on POST /login`, or `free: 60/min and 10000/day`.
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
    let mut quotas = written.table.named("quotas").elements().into_iter();
    let tuned = quotas.find(|quota| quota.location.file().is_none());
    let tuned = tuned.filter(|_| written.table.location.file().is_some());
    let refusal = written.table.named("refusal");
    let shape = if refusal.is_text() { refusal.text() } else { refusal.named("shape").text() };
    let refusal = refusal.is_set().then(|| format!("refusal: {}", shape.unwrap_or("template")));
    let exempt = of_list(&written.table.named("exempt")).join(", ");
    let notes = [
        tuned.map(|quota| format!("{} by {}", quota.text().unwrap_or_default(), quota.location)),
        refusal,
        (!exempt.is_empty()).then(|| format!("exempt: {exempt}")),
    ];
    LimitSummary {
        name: policy.name.to_string(),
        quotas: policy.quotas().to_vec(),
        is_local: policy.scope == Scope::Local,
        text: notes
            .into_iter()
            .flatten()
            .fold(policy.to_string(), |text, note| text + "; " + &note),
    }
}

fn of_plan(plan: &CheckedPlan) -> LimitSummary {
    let (name, quotas) = (plan.name.to_string(), plan.quotas.as_slice().to_vec());
    LimitSummary { name, quotas, is_local: false, text: plan.to_string() }
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
    let customers = texts("customers").into_iter().map(|name| format!("customer {name:?}"));
    let users = users.chain(customers);
    let secrets = [count("api_keys", "API key"), count("authorizations", "Authorization value")];
    let networks = table.named("networks").each(Value::parsed::<Network>);
    let networks = networks.into_iter().map(|network| format!("network {network}"));
    let file = table.named("networks_file").text();
    let networks = networks.chain(file.map(|file| format!("networks in {file}")));
    let paths = texts("paths").into_iter().map(|path| format!("path {path}"));
    let headers = table.named("headers").names().into_iter();
    let headers = headers.map(|(name, _)| format!("values of {}", name.to_ascii_lowercase()));
    users.chain(secrets.into_iter().flatten()).chain(networks).chain(paths).chain(headers).collect()
}
