//! The policies in force, and what each has decided.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Serialize;
use slidegate::policy::{CheckedPlan, CheckedPolicy};
use slidegate::{Cost, Name, Quota};

use super::Operator;
use super::changes::NoParameters;
use crate::endpoint::problem::Problem;
use crate::observe::PolicyTotals;
use slidegate::limit::Period;

/// `GET /v1/policies`
#[derive(Debug, Serialize)]
pub(super) struct PolicyList {
    /// In the order of the configuration.
    policies: Vec<PolicyView>,
    plans: Vec<PlanView>,
}

/// A policy as it is configured. What does not apply is left out.
#[derive(Debug, Serialize)]
struct PolicyView {
    policy: String,
    /// Empty for all.
    methods: Vec<String>,
    /// Empty for all.
    paths: Vec<String>,
    /// The descriptors that it is for; then it is for no requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptors: Option<String>,
    /// Whose requests are counted together: the first of these that a request has.
    identity: Vec<String>,
    /// Empty if the policy uses plans, or if callers supply the quotas.
    quotas: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plans: Option<PlanChoice>,
    /// Quotas that are watched beside those in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate: Option<Vec<String>>,
    /// Whether charges bring their quotas, as those of Redis clients do.
    #[serde(skip_serializing_if = "is_false")]
    given_quotas: bool,
    /// Units; without it, what a request says.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<NonZeroU32>,
    scope: String,
    /// How long prefetched units may be held, such as `200ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    count_denied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ban: Option<BanRule>,
    /// Whether it is a shadow policy, which refuses no requests.
    shadow: bool,
    on_store_error: String,
    in_headers: bool,
    /// What it has decided since the start.
    decided: DecisionCounts,
}

/// How a policy finds the plan of a request.
#[derive(Debug, Serialize)]
struct PlanChoice {
    default: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<String>,
}

/// When a policy bans, and for how long.
#[derive(Debug, Serialize)]
struct BanRule {
    after: String,
    r#for: String,
}

#[derive(Debug, Serialize)]
struct DecisionCounts {
    allowed: u64,
    refused: u64,
    /// What it would have refused if it were not a shadow policy.
    shadow: u64,
    /// What its candidate would have refused, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate: Option<u64>,
    /// What the store could not count.
    failed: u64,
}

/// A plan as it is configured.
#[derive(Debug, Serialize)]
struct PlanView {
    plan: String,
    quotas: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrade_url: Option<String>,
}

/// `GET /v1/policies`
pub(super) async fn list(
    State(operator): State<Arc<Operator>>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<PolicyList>, Problem> {
    query?;
    let policies = operator.policies();
    let totals: HashMap<Name, PolicyTotals> =
        operator.observer.policy_totals().into_iter().collect();
    let of = |policy: &CheckedPolicy| totals.get(&policy.name).copied().unwrap_or_default();
    Ok(Json(PolicyList {
        policies: policies.iter().map(|policy| PolicyView::new(policy, of(policy))).collect(),
        plans: policies.plans().into_iter().map(PlanView::of).collect(),
    }))
}

impl PolicyView {
    fn new(policy: &CheckedPolicy, totals: PolicyTotals) -> Self {
        let plans = policy.default_plan().map(|plan| PlanChoice {
            default: plan.name.to_string(),
            header: policy.plan_header().map(ToString::to_string),
        });
        Self {
            policy: policy.name.to_string(),
            methods: policy.methods.iter().map(ToString::to_string).collect(),
            paths: policy.paths().to_vec(),
            descriptors: policy.descriptors.as_ref().map(ToString::to_string),
            identity: policy.identity.iter().map(ToString::to_string).collect(),
            quotas: texts(policy.quotas()),
            plans,
            candidate: policy.candidate.as_ref().map(|quotas| texts(quotas.as_slice())),
            given_quotas: policy.has_caller_quotas(),
            cost: match policy.cost {
                Cost::Units(units) => Some(units),
                Cost::Request => None,
            },
            scope: policy.scope.to_string(),
            lease: policy.lease.map(|lease| Period(lease).to_string()),
            count_denied: policy.count_denied,
            ban: policy.ban.map(|ban| BanRule {
                after: ban.denials.to_string(),
                r#for: Period(ban.length).to_string(),
            }),
            shadow: policy.shadow,
            on_store_error: policy.on_store_error.to_string(),
            in_headers: policy.in_headers,
            decided: DecisionCounts::new(policy, totals),
        }
    }
}

impl DecisionCounts {
    fn new(policy: &CheckedPolicy, totals: PolicyTotals) -> Self {
        let PolicyTotals { allowed, denied_or_banned: refused, shadow, candidate, failed } = totals;
        let candidate = policy.candidate.as_ref().map(|_| candidate);
        Self { allowed, refused, shadow, candidate, failed }
    }
}

impl PlanView {
    fn of(plan: &CheckedPlan) -> Self {
        let quotas = texts(plan.quotas.as_slice());
        let upgrade_url = plan.upgrade_url.as_ref().map(ToString::to_string);
        Self { plan: plan.name.to_string(), quotas, upgrade_url }
    }
}

fn texts(quotas: &[Quota]) -> Vec<String> {
    quotas.iter().map(Quota::to_string).collect()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_false(value: &bool) -> bool {
    !value
}
