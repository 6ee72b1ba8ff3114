//! Accounts: those to look at first, and one by name.

use std::net::IpAddr;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri};
use slidegate::policy::{CheckedPolicy, Network};
use slidegate::{Account, AccountError, Identity, Name, Source, Store};

use super::Operator;
use super::ask::{self, expected};
use super::reply::{OperatorError, json};
use crate::admin::views::{AccountList, AccountSort, AccountView, IdentityView, OverrideView};
use crate::overrides::{OverrideError, OverrideRecord};

const DEFAULT_LIMIT: usize = 20;
/// Each is a call to the store.
const MOST_LISTED: usize = 100;

/// `GET /v1/accounts`
pub(super) async fn list<S: Store>(State(operator): State<Operator<S>>, uri: Uri) -> Response {
    match operator.list(&uri).await {
        Ok(list) => json(StatusCode::OK, &list),
        Err(refusal) => refusal.into_response(),
    }
}

/// `GET /v1/accounts/{identity}`
pub(super) async fn inspect<S: Store>(
    State(operator): State<Operator<S>>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Response {
    let answer = async {
        let identity = ask::identity(&ask::path(path)?, &operator.policies())?;
        let [policy, plan] = ask::query(&uri, ["policy", "plan"])?;
        operator.inspect(identity, policy, plan.as_deref()).await
    };
    match answer.await {
        Ok(found) => json(StatusCode::OK, &found),
        Err(refusal) => refusal.into_response(),
    }
}

impl<S: Store> Operator<S> {
    async fn list(&self, uri: &Uri) -> Result<AccountList, OperatorError> {
        let [sort, limit] = ask::query(uri, ["sort", "limit"])?;
        let sort = match sort.as_deref() {
            None | Some("nearest") => AccountSort::Nearest,
            Some("denied") => AccountSort::Denied,
            Some(other) => return Err(expected("sort", "nearest or denied", other)),
        };
        let limit = match limit {
            None => DEFAULT_LIMIT,
            Some(text) => {
                let limit = text.parse().ok().filter(|limit| (1..=MOST_LISTED).contains(limit));
                let what = format!("a whole number from 1 to {MOST_LISTED}");
                limit.ok_or_else(|| expected("limit", &what, &text))?
            }
        };
        let accounts = match sort {
            AccountSort::Nearest => self.nearest(limit).await,
            AccountSort::Denied => self.most_denied(limit).await,
        };
        Ok(AccountList { sort, accounts })
    }

    /// Those that were last seen near a quota, as they are now.
    async fn nearest(&self, limit: usize) -> Vec<AccountView> {
        let mut accounts = Vec::new();
        // Some may have been seen long ago, and others been nearer since.
        for seen in self.observer.nearest(limit * 2) {
            let plan = seen.plan.as_deref();
            accounts.extend(self.look(&seen.account, plan).await.ok());
        }
        accounts.retain(|account| account.used > 0.0);
        accounts.sort_by(|a, b| b.used.total_cmp(&a.used));
        accounts.truncate(limit);
        accounts
    }

    async fn most_denied(&self, limit: usize) -> Vec<AccountView> {
        let mut accounts = Vec::new();
        for denied in self.observer.most_denied(limit) {
            let looked = self.look(&denied.seen.account, denied.seen.plan.as_deref()).await;
            accounts.extend(looked.ok().map(|account| AccountView {
                denials: Some(denied.denials),
                denials_overcount: Some(denied.overcount),
                ..account
            }));
        }
        accounts
    }

    async fn inspect(
        &self,
        identity: Identity,
        policy: Option<String>,
        plan: Option<&str>,
    ) -> Result<IdentityView, OperatorError> {
        let policies = self.overrides.gate().policies();
        if let Some(plan) =
            plan.filter(|plan| !policies.plans().iter().any(|p| **p.name() == **plan))
        {
            let plans = policies.plans();
            let known: Vec<&str> = plans.iter().map(|plan| &**plan.name()).collect();
            let known = known.join(", ");
            return Err(OperatorError::Nothing(format!(
                "there is no plan {plan:?}; there is {known}"
            )));
        }
        let mut accounts = Vec::new();
        for counting in policies.iter() {
            if policy.as_deref().is_some_and(|policy| *counting.name != *policy) {
                continue;
            }
            let account = Account { policy: counting.name.clone(), identity };
            let seen = self.observer.plan_of(&account);
            let account = self.look(&account, plan.or(seen.as_deref())).await;
            let account = account.map_err(OverrideError::Account)?;
            let is_asked_for = policy.is_some() || counts(counting, &identity);
            if is_asked_for || !account.is_untouched() {
                accounts.push(account);
            }
        }
        if let Some(policy) = policy.filter(|_| accounts.is_empty()) {
            let known = policies.names().map(Name::to_string).collect();
            return Err(OverrideError::UnknownPolicy { policy, known }.into());
        }
        let active = self.overrides.active().await;
        let own = active.overrides.iter().filter(|record| concerns(record, &identity));
        let view = |record| OverrideView::at(active.now_ms, record, &policies);
        let overrides = own.map(view).collect();
        let identity = policies.shown(&identity).into_owned();
        Ok(IdentityView { identity, accounts, overrides })
    }

    async fn look(
        &self,
        account: &Account,
        plan: Option<&str>,
    ) -> Result<AccountView, AccountError> {
        let inspection = self.overrides.gate().admin().inspect(account, plan).await?;
        let policies = self.overrides.gate().policies();
        Ok(AccountView::new(account, &inspection, &policies))
    }
}

/// Whether requests under the policy can be counted for such an identity.
fn counts(policy: &CheckedPolicy, identity: &Identity) -> bool {
    let kind = identity.kind();
    let gives = |source: &Source| match source {
        Source::User => kind == "user",
        Source::Named(named) => kind == named,
        Source::ApiKey => kind == "api-key",
        Source::Authorization => kind == "authorization",
        Source::Ip(_) => kind == "ip",
        Source::Header(name) => kind == name.as_str() || kind == "header",
        Source::Everyone => kind == "everyone",
    };
    policy.identity.iter().any(gives) || kind == "anonymous"
}

/// Whether an override is for the identity, its network, or all.
fn concerns(record: &OverrideRecord, identity: &Identity) -> bool {
    let target = &record.target.identity;
    let around = || {
        let network: Network = target.value().parse().ok()?;
        let address: IpAddr = identity.value().parse().ok()?;
        Some(target.kind() == "ip" && identity.kind() == "ip" && network.contains(address))
    };
    target == identity || target.kind() == "everyone" || around().unwrap_or_default()
}
