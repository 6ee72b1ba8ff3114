//! Changes to accounts: resets, and overrides that hold until a time.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::Value;
use slidegate::policy::Action;
use slidegate::{Name, Store};

use super::Operator;
use super::fields::{Fields, expected, parsed, text};
use super::views::{OverrideLifted, OverrideList};
use crate::calendar::{Rfc3339, ceil_ms};
use crate::config::Period;
use crate::net::Accepted;
use crate::observe::{Operation, OperationOutcome};
use crate::overrides::{Actor, Expiry, OperatorAction, OverrideError, OverrideRecord, Target};
use crate::problem::Problem;

/// Longer reasons belong into a ticket, which the reason can name.
const MAX_REASON_CHARS: usize = 200;
/// Of an id in the audit trail: one that is not ours may have any length.
const MAX_ID_CHARS: usize = 64;

/// `GET /v1/overrides`
pub(super) async fn list<S: Store>(
    State(operator): State<Arc<Operator<S>>>,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<Json<OverrideList>, Problem> {
    Fields::of_query(parameters).finish(Some(()))?;
    Ok(Json(operator.overrides.list(None).await))
}

/// `POST /v1/accounts/{identity}/{action}`
pub(super) async fn act<S: Store>(
    State(operator): State<Arc<Operator<S>>>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let Path((identity, action)) = path?;
    if !["reset", "grant", "exempt", "ban"].contains(&action.as_str()) {
        let detail = "there is reset, grant, exempt and ban to be done to an account";
        return Err(Problem::not_found(detail));
    }
    let identity = super::accounts::identity(&identity, &operator.policies())?;
    let (by, mut body) = read(request).await?;
    let policy =
        body.read("policy", |value| text(value)?.parse::<Name>().map_err(|e| e.to_string()));
    let target = Target { identity, policy };
    let action = match action.as_str() {
        "grant" => body.require("units", "how many more", units).map(Action::Grant),
        "exempt" => Some(Action::Exempt),
        "ban" => Some(Action::Ban),
        _ => {
            let reason = body.require("reason", "why it is done", reason);
            let actor = Actor { by, reason: body.finish(reason)? };
            let operation = operator.operation(OperatorAction::Reset, Some(&target), &actor);
            let reset = operator.overrides.reset(target, actor).await;
            return Ok(Json(operator.finish(operation, reset)?).into_response());
        }
    };
    let expiry = expiry(&mut body);
    let reason = body.require("reason", "why it is done", reason);
    let ((action, expiry), reason) = body.finish(action.zip(expiry).zip(reason))?;
    let (kind, actor) = (OperatorAction::Override(action), Actor { by, reason });
    let operation = Operation {
        override_id: Some(OverrideRecord::id_of(action, &target)),
        kind: Some(kind.name().to_owned()),
        units: kind.units(),
        ..operator.operation(kind, Some(&target), &actor)
    };
    let created = operator.overrides.create(action, target, expiry, actor).await;
    let until = match &created {
        Ok(created) => created.created.until,
        Err(_) => Rfc3339::from_millis(expiry.end_ms(operator.overrides.now_ms().await)),
    };
    let operation = Operation { until: Some(until), ..operation };
    Ok(Json(operator.finish(operation, created)?).into_response())
}

/// `DELETE /v1/overrides/{id}`
pub(super) async fn lift<S: Store>(
    State(operator): State<Arc<Operator<S>>>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<OverrideLifted>, Problem> {
    let Path(id) = path?;
    let (by, mut body) = read(request).await?;
    let reason = body.require("reason", "why it is done", reason);
    let actor = Actor { by, reason: body.finish(reason)? };
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
        until: view.map(|view| view.until),
        ..operation
    };
    operator.finish(operation, lifted).map(Json)
}

/// The operator's address and the members of the body.
async fn read(request: Request) -> Result<(Option<IpAddr>, Fields), Problem> {
    let by = request.extensions().get::<Accepted>().and_then(|accepted| accepted.peer);
    let Query(parameters) = Query::try_from_uri(request.uri()).map_err(Problem::bad_request)?;
    Fields::of_query(parameters).finish(Some(()))?;
    Ok((by, Fields::of_body(request).await?))
}

fn expiry(body: &mut Fields) -> Option<Expiry> {
    if body.has("for") == body.has("until") {
        let example = "expected one of for, such as \"1h\", and until, such as \
                       \"2026-01-01T12:00:00Z\"";
        body.reject("for", example);
    }
    let lasting = body.read("for", parsed::<Period>).map(|period| Expiry::For(ceil_ms(period.0)));
    let until = body.read("until", parsed::<Rfc3339>);
    lasting.or(until.map(|until| Expiry::At(until.0.as_millis())))
}

fn units(value: &Value) -> Result<NonZeroU32, String> {
    let units = value.as_u64().and_then(|units| u32::try_from(units).ok());
    let what = format_args!("a whole number from 1 to {}", u32::MAX);
    units.and_then(NonZeroU32::new).ok_or_else(|| expected(what, value))
}

fn reason(value: &Value) -> Result<String, String> {
    let reason = text(value)?.trim();
    let is_good = (1..=MAX_REASON_CHARS).contains(&reason.chars().count())
        && !reason.chars().any(char::is_control);
    is_good.then(|| reason.to_owned()).ok_or_else(|| {
        format!("expected 1 to {MAX_REASON_CHARS} characters, none of them a control character")
    })
}

impl<S: Store> Operator<S> {
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
            OverrideError::SharedMap(_)
            | OverrideError::Bans(_)
            | OverrideError::Disk(_)
            | OverrideError::Account(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, format_args!("{:#}", anyhow::Error::from(error)))
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}
