//! Changes to accounts: resets, and overrides that hold until a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, Path, Query, Request, State};
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use slidegate::limit::Quotas;
use slidegate::policy::{Action, CheckedPolicy};
use slidegate::{Account, Policies, Quota};
use slidegate_replay::described_request::shortened;

use super::Operator;
use crate::api::{
    AccountsReset, LiftBody, OverrideBody, OverrideCreated, OverrideLifted, OverrideList, ResetBody,
};
use crate::calendar::{Rfc3339, ceil_ms};
use crate::endpoint::json_body::JsonObject;
use crate::endpoint::problem::{Problem, with_causes};
use crate::endpoint::token::peer;
use crate::observe::{Operation, OperationOutcome};
use crate::shared::{
    Actor, Expiry, OperatorAction, OverrideError, OverrideRecord, Target, window_text,
};
use slidegate::limit::Period;

/// Longer reasons belong into a ticket, which the reason can name.
const MAX_REASON_CHARS: usize = 200;
/// Of an id in the audit trail: one that is not ours may have any length.
const MAX_ID_CHARS: usize = 64;
/// No valid body has a tenth of it.
const MAX_BODY_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

/// Which quotas a grant raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuotaChoice {
    All,
    /// The one with this window.
    Window(Duration),
}

impl FromStr for QuotaChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::All);
        }
        let quota: Result<Quota, _> = format!("1/{text}").parse();
        quota
            .map(|quota| Self::Window(quota.window()))
            .map_err(|_| "expected the window of a quota, such as \"min\" or \"1d\", or \"all\"")
    }
}

/// Extracts what an operator asks to change. There are no parameters besides the body.
pub(super) struct RequestedChange<T> {
    /// The operator's address.
    by: Option<IpAddr>,
    body: T,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for RequestedChange<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let by = peer(&request);
        Query::<NoParameters>::try_from_uri(request.uri())?;
        let JsonObject(body) =
            JsonObject::<T, MAX_BODY_BYTES>::from_request(request, state).await?;
        Ok(Self { by, body })
    }
}

/// `GET /v1/overrides`
pub(super) async fn list(
    State(operator): State<Arc<Operator>>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<OverrideList>, Problem> {
    query?;
    Ok(Json(operator.overrides.list(None).await))
}

/// `POST /v1/accounts/{identity}/reset`
pub(super) async fn reset(
    State(operator): State<Arc<Operator>>,
    path: Result<Path<String>, PathRejection>,
    change: Result<RequestedChange<ResetBody>, Problem>,
) -> Result<Json<AccountsReset>, Problem> {
    let Path(identity) = path?;
    let policies = operator.policies();
    let identity = policies.account_of(super::accounts::identity(&identity, &policies)?);
    let RequestedChange { by, body: ResetBody { policy, reason } } = change?;
    let target = Target { identity, policy: parsed("policy", policy.as_deref())? };
    let actor = Actor { by, reason: checked_reason(&reason)? };
    operator.reset(target, actor).await.map(Json)
}

/// `POST /v1/accounts/{identity}/{action}`
pub(super) async fn create(
    State(operator): State<Arc<Operator>>,
    path: Result<Path<(String, String)>, PathRejection>,
    change: Result<RequestedChange<OverrideBody>, Problem>,
) -> Result<Json<OverrideCreated>, Problem> {
    let Path((identity, action)) = path?;
    if !["grant", "exempt", "ban"].contains(&action.as_str()) {
        let detail = "there is reset, grant, exempt and ban to be done to an account";
        return Err(Problem::not_found(detail));
    }
    let policies = operator.policies();
    let identity = super::accounts::identity(&identity, &policies)?;
    // Units are an account's; one key of a customer can be exempt or banned without the others.
    let identity = if action == "grant" { policies.account_of(identity) } else { identity };
    let RequestedChange { by, body } = change?;
    let units = body.units;
    let quota = parsed("quota", body.quota.as_deref())?;
    let period: Option<Period> = parsed("for", body.r#for.as_deref())?;
    let until: Option<Rfc3339> = parsed("until", body.until.as_deref())?;
    let target = Target { identity, policy: parsed("policy", body.policy.as_deref())? };
    let actor = Actor { by, reason: checked_reason(&body.reason)? };
    if action != "grant" && quota.is_some() {
        return Err(Problem::invalid_member("quota", "only a grant has a quota"));
    }
    let action = match (action.as_str(), units) {
        ("grant", Some(units)) => {
            Action::Grant { units, window: granted_window(quota, &target, &operator.policies())? }
        }
        ("grant", None) => return Err(Problem::invalid_member("units", "missing from a grant")),
        (_, Some(_)) => return Err(Problem::invalid_member("units", "only a grant has units")),
        ("exempt", None) => Action::Exempt,
        (_, None) => Action::Ban,
    };
    let expiry = match (period, until) {
        (Some(period), None) => Expiry::For(ceil_ms(period.0)),
        (None, Some(until)) => Expiry::At(until.0.as_millis()),
        _ => {
            let example = "expected one of for, such as \"1h\", and until, such as \
                           \"2026-01-01T12:00:00Z\"";
            return Err(Problem::invalid_member("for", example));
        }
    };
    let kind = OperatorAction::Override(action);
    let operation = Operation {
        override_id: Some(OverrideRecord::id_of(action, &target)),
        kind: Some(kind.name().to_owned()),
        units: kind.units(),
        quota: kind.quota(),
        ..operator.operation(kind, Some(&target), &actor)
    };
    let created = operator.overrides.create(action, target, expiry, actor).await;
    let until = match &created {
        Ok(created) => created.created.until,
        Err(_) => Rfc3339::from_millis(expiry.end_ms(operator.overrides.now_ms().await)),
    };
    let operation = Operation { until: Some(until), ..operation };
    operator.finish(operation, created).map(Json)
}

/// `DELETE /v1/overrides/{id}`
pub(super) async fn lift(
    State(operator): State<Arc<Operator>>,
    path: Result<Path<String>, PathRejection>,
    change: Result<RequestedChange<LiftBody>, Problem>,
) -> Result<Json<OverrideLifted>, Problem> {
    let Path(id) = path?;
    let RequestedChange { by, body: LiftBody { reason } } = change?;
    let actor = Actor { by, reason: checked_reason(&reason)? };
    let known = operator.overrides.find(&id).await;
    let operation = operator.operation(OperatorAction::Lift, None, &actor);
    let lifted = operator.overrides.lift(&id, actor).await;
    let view = lifted.as_ref().map(|lifted| &lifted.lifted).ok().or(known.as_ref());
    let operation = Operation {
        override_id: Some(id.chars().take(MAX_ID_CHARS).collect()),
        kind: view.map(|view| view.action.clone()),
        identity: view.map(|view| view.identity.clone()),
        policy: view.and_then(|view| view.policy.clone()),
        units: view.and_then(|view| view.units),
        quota: view.and_then(|view| view.quota.clone()),
        until: view.map(|view| view.until),
        ..operation
    };
    operator.finish(operation, lifted).map(Json)
}

/// The window of the quota that a grant raises; `None` for all quotas. A grant must name it if the
/// target has several, under one policy or under different ones.
fn granted_window(
    quota: Option<QuotaChoice>,
    target: &Target,
    policies: &Policies,
) -> Result<Option<Duration>, Problem> {
    let by_window = quotas_by_window(target, policies);
    match quota {
        Some(QuotaChoice::All) => return Ok(None),
        Some(QuotaChoice::Window(window))
            if by_window.is_empty() || by_window.contains_key(&window) =>
        {
            return Ok(Some(window));
        }
        None if by_window.len() <= 1 => return Ok(None),
        Some(QuotaChoice::Window(_)) | None => {}
    }
    let choice = |(window, quotas): (&Duration, &BTreeSet<String>)| {
        let quotas: Vec<&str> = quotas.iter().map(String::as_str).collect();
        format!("{} ({})", window_text(*window), quotas.join(", "))
    };
    let choices: Vec<String> = by_window.iter().map(choice).collect();
    let problem = format_args!("expected the one to raise: {}, or all", choices.join(", "));
    Err(Problem::invalid_member("quota", problem))
}

/// The quotas that the target may be counted by, under every plan.
fn quotas_by_window(target: &Target, policies: &Policies) -> BTreeMap<Duration, BTreeSet<String>> {
    let mut by_window = BTreeMap::<Duration, BTreeSet<String>>::new();
    let selects = |policy: &&CheckedPolicy| match &target.policy {
        Some(name) => *name == policy.name,
        None => policy.counts(&target.identity),
    };
    for policy in policies.iter().filter(selects) {
        let account = Account { policy: policy.name.clone(), identity: target.identity };
        let plans = match policy.default_plan() {
            Some(_) => policies.plans().iter().map(|plan| plan.quotas.clone()).collect(),
            None => Vec::from_iter(policies.quotas_of(&account, None).map(|(quotas, _)| quotas)),
        };
        for quota in plans.iter().flat_map(Quotas::as_slice) {
            by_window.entry(quota.window()).or_default().insert(quota.to_string());
        }
    }
    by_window
}

/// Parses a member that is written as a text.
fn parsed<T: FromStr<Err: Display>>(
    member: &str,
    text: Option<&str>,
) -> Result<Option<T>, Problem> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|error| {
        Problem::invalid_member(member, format_args!("{error}, not {:?}", shortened(text)))
    })
}

fn checked_reason(text: &str) -> Result<String, Problem> {
    let reason = text.trim();
    let is_good = (1..=MAX_REASON_CHARS).contains(&reason.chars().count())
        && !reason.chars().any(char::is_control);
    is_good.then(|| reason.to_owned()).ok_or_else(|| {
        let expected = format_args!(
            "expected 1 to {MAX_REASON_CHARS} characters, none of them a control character"
        );
        Problem::invalid_member("reason", expected)
    })
}

impl Operator {
    /// Resets accounts, and records it.
    pub(crate) async fn reset(
        &self,
        target: Target,
        actor: Actor,
    ) -> Result<AccountsReset, Problem> {
        let operation = self.operation(OperatorAction::Reset, Some(&target), &actor);
        let reset = self.overrides.reset(target, actor).await;
        self.finish(operation, reset)
    }

    fn operation(
        &self,
        action: OperatorAction,
        target: Option<&Target>,
        actor: &Actor,
    ) -> Operation {
        Operation {
            action: action.name(),
            by: actor.by,
            identity: target.map(|target| self.policies().shown(&target.identity).into_owned()),
            policy: target.and_then(|target| target.policy.as_deref()).map(str::to_owned),
            reason: actor.reason.clone(),
            ..Operation::default()
        }
    }

    /// Records the operation with its outcome.
    fn finish<T>(
        &self,
        operation: Operation,
        result: Result<T, OverrideError>,
    ) -> Result<T, Problem> {
        let result = result.map_err(Problem::from);
        let outcome = match &result {
            Ok(_) => OperationOutcome::Done,
            Err(problem) if problem.status.is_client_error() => OperationOutcome::Refused,
            Err(_) => OperationOutcome::Failed,
        };
        let problem = result.as_ref().err().map(|problem| problem.detail.clone());
        self.observer.operated(&Operation { outcome, problem, ..operation });
        result
    }
}

impl From<OverrideError> for Problem {
    fn from(error: OverrideError) -> Self {
        let status = match error {
            OverrideError::UnknownPolicy { .. } | OverrideError::UnknownOverride(_) => {
                StatusCode::NOT_FOUND
            }
            OverrideError::Past { .. } | OverrideError::TooLong | OverrideError::Network => {
                StatusCode::BAD_REQUEST
            }
            OverrideError::Full => StatusCode::CONFLICT,
            OverrideError::Redis(_) | OverrideError::Disk(_) | OverrideError::Account(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self::new(status, with_causes(&error))
    }
}
