//! The policies in force, and what each has decided.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use slidegate::policy::{CheckedPlan, CheckedPolicy};
use slidegate::{Cost, Name, Quota};

use super::Operator;
use super::changes::NoParameters;
use crate::api::{BanRule, DecisionCounts, PlanChoice, PlanView, PolicyList, PolicyView};
use crate::endpoint::problem::Problem;
use crate::observe::PolicyTotals;
use slidegate::limit::Period;

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
