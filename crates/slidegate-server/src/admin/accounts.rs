//! Accounts: those nearest to a quota or most denied, and all of one identity.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::IntoResponse;
use bytes::Bytes;
use http::header;
use serde::Deserialize;
use slidegate::{
    Account, AccountError, CandidateStanding, Identity, Inspection, Name, Policies, Standing,
};

use super::Operator;
use super::recent::MAX_AGE;
use crate::api::{AccountList, AccountSort, AccountView, CandidateView, IdentityView, QuotaView};
use crate::calendar::ceil_ms;
use crate::endpoint::problem::Problem;
use crate::identity_text::{self, IdentityTextError};
use crate::observe::SeenAccount;
use crate::shared::OverrideError;

const DEFAULT_LIMIT: usize = 20;
/// Each is a call to the store.
const MAX_LIMIT: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParameters {
    #[serde(default)]
    sort: AccountSort,
    limit: Option<usize>,
    /// How old a list may be that was made for an earlier request.
    max_age_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InspectParameters {
    policy: Option<String>,
    plan: Option<String>,
}

/// `GET /v1/accounts`
pub(super) async fn list(
    State(operator): State<Arc<Operator>>,
    query: Result<Query<ListParameters>, QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
    let Query(ListParameters { sort, limit, max_age_ms }) = query?;
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let problem = format_args!("expected a whole number from 1 to {MAX_LIMIT}, not {limit}");
        return Err(Problem::invalid_member("limit", problem));
    }
    let max_age = max_age_ms.map(Duration::from_millis);
    if max_age.is_some_and(|age| age > MAX_AGE) {
        let problem = format_args!("expected at most {}", MAX_AGE.as_millis());
        return Err(Problem::invalid_member("max_age_ms", problem));
    }
    let make = async || {
        let list = operator.list(sort, limit).await;
        serde_json::to_vec(&list).expect("a list can be JSON").into()
    };
    let json: Bytes = match max_age {
        Some(age) => {
            let now = || operator.observer.accounts().1;
            operator.recent.get((sort, limit), age, now, make).await
        }
        None => make().await,
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], json))
}

impl Operator {
    /// Looks at each account that the list may have.
    async fn list(&self, sort: AccountSort, limit: usize) -> AccountList {
        let (top, now) = self.observer.accounts();
        let mut accounts = Vec::new();
        match sort {
            AccountSort::Nearest => {
                // Some may have been seen long ago, and others been nearer since.
                for seen in top.nearest(limit * 2, now) {
                    accounts.extend(self.look(&seen).await.ok());
                }
                accounts.retain(|account| account.used > 0.0);
                accounts.sort_by(|a, b| b.used.total_cmp(&a.used));
                accounts.truncate(limit);
            }
            AccountSort::Denied | AccountSort::Candidate => {
                let denied = match sort {
                    AccountSort::Candidate => top.most_denied_by_candidates(limit, now),
                    _ => top.most_denied(limit, now),
                };
                for denied in denied {
                    let account = self.look(&denied.seen).await;
                    accounts.extend(account.ok().map(|account| AccountView {
                        denials: Some(denied.denials),
                        denials_overcount: Some(denied.overcount),
                        ..account
                    }));
                }
            }
        }
        AccountList { sort, accounts }
    }
}

/// `GET /v1/accounts/{identity}`
pub(super) async fn inspect(
    State(operator): State<Arc<Operator>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<InspectParameters>, QueryRejection>,
) -> Result<Json<IdentityView>, Problem> {
    let policies = operator.policies();
    let Path(identity_text) = path?;
    let identity = policies.account_of(identity(&identity_text, &policies)?);
    let Query(InspectParameters { policy, plan }) = query?;
    let mut accounts = Vec::new();
    for candidate in operator.candidates(&identity, policy.as_deref(), plan.as_deref())? {
        let account = operator.look(&candidate.seen).await;
        let account = account.map_err(OverrideError::Account)?;
        if candidate.counts || !account.is_untouched() {
            accounts.push(account);
        }
    }
    let overrides = operator.overrides.list(Some(&identity)).await.overrides;
    let identity = policies.shown(&identity).into_owned();
    Ok(Json(IdentityView { identity, accounts, overrides }))
}

/// An account that an identity may have, with the plan or the quotas to look at it by.
pub(super) struct Candidate {
    pub(super) seen: SeenAccount,
    /// Whether the policy was asked for or counts such identities. Other accounts are worth showing
    /// only if there is something in them.
    pub(super) counts: bool,
}

impl Operator {
    /// The accounts of an identity under one policy, or under all of them.
    pub(super) fn candidates(
        &self,
        identity: &Identity,
        policy: Option<&str>,
        plan: Option<&str>,
    ) -> Result<Vec<Candidate>, Problem> {
        let policies = self.policies();
        let plans: Vec<&str> = policies.plans().iter().map(|plan| &*plan.name).collect();
        if let Some(plan) = plan.filter(|plan| !plans.contains(plan)) {
            let known = plans.join(", ");
            return Err(Problem::not_found(format!("there is no plan {plan:?}; there is {known}")));
        }
        let plan = plan.and_then(|plan| plan.parse::<Name>().ok());
        let (top, now) = self.observer.accounts();
        let is_selected = |name: &Name| policy.is_none_or(|policy| **name == *policy);
        let wanted = policies.iter().filter(|checked| is_selected(&checked.name));
        let candidates = wanted.map(|checked| {
            let account = Account { policy: checked.name.clone(), identity: *identity };
            let mut seen = top.find(&account, now).unwrap_or_else(|| SeenAccount::new(account));
            seen.plan = plan.clone().or(seen.plan);
            Candidate { seen, counts: policy.is_some() || checked.counts(identity) }
        });
        let candidates: Vec<Candidate> = candidates.collect();
        match policy.filter(|_| candidates.is_empty()) {
            Some(policy) => Err(OverrideError::unknown_policy(policy, &policies).into()),
            None => Ok(candidates),
        }
    }

    /// The account as it stands now.
    async fn look(&self, seen: &SeenAccount) -> Result<AccountView, AccountError> {
        let (plan, quotas) = (seen.plan.as_deref(), seen.quotas.as_ref());
        let admin = self.overrides.gate().admin();
        let inspection = admin.inspect_by(&seen.account, plan, quotas).await?;
        Ok(AccountView::new(&seen.account, &inspection, &self.policies()))
    }
}

impl AccountView {
    pub(crate) fn new(account: &Account, inspection: &Inspection, policies: &Policies) -> Self {
        let shadow = policies.iter().any(|p| p.name == account.policy && p.shadow);
        let standings = inspection.standings.iter().zip(&inspection.granted);
        let quotas: Vec<QuotaView> =
            standings.map(|(standing, granted)| QuotaView::of(standing, *granted)).collect();
        let shares = quotas.iter().map(|quota| f64::from(quota.spent) / f64::from(quota.units));
        let used = shares.fold(0.0, f64::max);
        Self {
            identity: policies.shown(&account.identity).into_owned(),
            policy: account.policy.to_string(),
            plan: inspection.plan.as_ref().map(ToString::to_string),
            shadow,
            // Rounded to thousandths.
            used: (used * 1000.0).round() / 1000.0,
            quotas,
            candidate: inspection.candidate.iter().map(CandidateView::of).collect(),
            banned_for_ms: inspection.banned.map(ceil_ms),
            exempt_for_ms: inspection.exempt.map(ceil_ms),
            degraded: inspection.degraded,
            denials: None,
            denials_overcount: None,
        }
    }

    /// Whether nothing was spent and no override applies.
    pub(crate) fn is_untouched(&self) -> bool {
        let touched = self.quotas.iter().any(|quota| quota.spent > 0 || quota.granted > 0);
        let overridden = self.banned_for_ms.is_some() || self.exempt_for_ms.is_some();
        !touched && !overridden
    }
}

impl QuotaView {
    fn of(standing: &Standing, granted: u32) -> Self {
        let units = standing.quota().units().get();
        Self {
            quota: standing.quota().to_string(),
            units,
            granted,
            spent: units.saturating_sub(standing.remaining()),
            remaining: standing.remaining(),
            retry_after_ms: ceil_ms(standing.retry_after()),
            reset_after_ms: ceil_ms(standing.reset_after()),
        }
    }
}

impl CandidateView {
    fn of(standing: &CandidateStanding) -> Self {
        let CandidateStanding { quota, remaining, violated } = *standing;
        Self { quota: quota.to_string(), units: quota.units().get(), remaining, violated }
    }
}

/// The identity in a path.
pub(crate) fn identity(text: &str, policies: &Policies) -> Result<Identity, Problem> {
    let read = identity_text::with_key_names(text, policies);
    read.map_err(|error| Problem::invalid_member("identity", in_a_path(error)))
}

/// What to do instead: a path has no room for an object.
fn in_a_path(error: IdentityTextError) -> String {
    match error {
        IdentityTextError::Secret => {
            "expected the name of an API key, or the digest of the secret, as logs show it; of the \
             secret itself it is made by `slidegate inspect api-key:-`, which reads it from \
             standard input, or api-key:@FILE"
                .to_owned()
        }
        IdentityTextError::Form => {
            "expected kind:value as logs show it, such as ip:203.0.113.7 or user:42, or everyone, \
             or anonymous"
                .to_owned()
        }
        IdentityTextError::Address => error.to_string(),
    }
}
