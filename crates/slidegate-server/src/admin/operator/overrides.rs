//! What is done to accounts: resets, and overrides that hold for a time.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, Uri};
use slidegate::policy::Action;
use slidegate::{Identity, Name, Policies, Store};

use super::Operator;
use super::ask::{self, BodyMembers, OperatorRequest};
use super::reply::{OperatorError, json};
use crate::admin::views::{
    AccountsReset, OverrideCreated, OverrideLifted, OverrideList, OverrideView,
};
use crate::decisions::body;
use crate::listener::Accepted;
use crate::observe::{Operation, OperationOutcome};
use crate::overrides::{Actor, Expiry, OperatorAction, OverrideError, OverrideRecord, Target};

/// Of an id in the audit trail: one that is not ours may have any length.
const MOST_ID_CHARS: usize = 64;

/// `GET /v1/overrides`
pub(super) async fn list<S: Store>(State(operator): State<Operator<S>>, uri: Uri) -> Response {
    if let Err(refusal) = ask::query(&uri, []) {
        return refusal.into_response();
    }
    let active = operator.overrides.active().await;
    let policies = operator.policies();
    let view = |record| OverrideView::at(active.now_ms, record, &policies);
    let overrides = active.overrides.iter().map(view).collect();
    json(StatusCode::OK, &OverrideList { overrides, stale: active.is_cut_off })
}

/// `POST /v1/accounts/{identity}/{action}`
pub(super) async fn act<S: Store>(
    State(operator): State<Operator<S>>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Response {
    let answer = async {
        let (identity, word) = ask::path(path)?;
        let members = match word.as_str() {
            "reset" => BodyMembers::Reset,
            "grant" => BodyMembers::Grant,
            "exempt" | "ban" => BodyMembers::Override,
            _ => {
                let detail = "there is reset, grant, exempt and ban to be done to an account";
                return Err(OperatorError::Nothing(detail.to_owned()));
            }
        };
        let identity = ask::identity(&identity, &operator.policies())?;
        let (by, body) = read(request).await?;
        let asked = OperatorRequest::read(&body, members)?;
        let target = Target { identity, policy: asked.policy };
        let actor = Actor { by, reason: asked.reason };
        let action = match (word.as_str(), asked.units) {
            ("grant", Some(units)) => Action::Grant(units),
            ("exempt", _) => Action::Exempt,
            ("ban", _) => Action::Ban,
            _ => return operator.reset(target, actor).await,
        };
        // There is one, as the body was read.
        let until = asked.until.unwrap_or(Expiry::At(0));
        operator.create(action, target, until, actor).await
    };
    answer.await.unwrap_or_else(OperatorError::into_response)
}

/// `DELETE /v1/overrides/{id}`
pub(super) async fn lift<S: Store>(
    State(operator): State<Operator<S>>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let answer = async {
        let id = ask::path(path)?;
        let (by, body) = read(request).await?;
        let asked = OperatorRequest::read(&body, BodyMembers::Lift)?;
        operator.lift(&id, Actor { by, reason: asked.reason }).await
    };
    answer.await.unwrap_or_else(OperatorError::into_response)
}

/// The peer's address and the body of a request.
async fn read(request: Request) -> Result<(Option<std::net::IpAddr>, Bytes), OperatorError> {
    let by = request.extensions().get::<Accepted>().and_then(|accepted| accepted.peer);
    ask::query(request.uri(), [])?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body)
        .await
        .map_err(|refusal| OperatorError::Body(Box::new(refusal)))?;
    Ok((by, body))
}

impl<S: Store> Operator<S> {
    pub(super) fn policies(&self) -> Arc<Policies> {
        self.overrides.gate().policies()
    }

    fn shown(&self, identity: &Identity) -> String {
        self.policies().shown(identity).into_owned()
    }

    async fn create(
        &self,
        action: Action,
        target: Target,
        until: Expiry,
        actor: Actor,
    ) -> Result<Response, OperatorError> {
        let created = self.overrides.create(action, target.clone(), until, actor.clone()).await;
        let until_ms = match &created {
            Ok(created) => created.record.until_ms,
            Err(_) => until.end_ms(self.overrides.now_ms().await),
        };
        let (action, id) =
            (OperatorAction::Override(action), OverrideRecord::id_of(action, &target));
        let about = About {
            action,
            id: Some(&id),
            kind: Some(action),
            target: Some(&target),
            until_ms: Some(until_ms),
        };
        let created = self.record_outcome(&about, &actor, created)?;
        let policies = self.policies();
        let view = |record: &OverrideRecord| {
            OverrideView::at(created.record.created_ms, record, &policies)
        };
        let answer = OverrideCreated {
            created: view(&created.record),
            replaced: created.replaced.as_ref().map(view),
            others: created.others.iter().map(view).collect(),
        };
        Ok(json(StatusCode::OK, &answer))
    }

    async fn reset(&self, target: Target, actor: Actor) -> Result<Response, OperatorError> {
        let reset = self.overrides.reset(target.clone(), actor.clone()).await;
        let about = About {
            action: OperatorAction::Reset,
            id: None,
            kind: None,
            target: Some(&target),
            until_ms: None,
        };
        let done = self.record_outcome(&about, &actor, reset)?;
        let names = |policies: &[Name]| policies.iter().map(ToString::to_string).collect();
        let answer = AccountsReset {
            reset: self.shown(&target.identity),
            policies: names(&done.policies),
            nothing_spent: names(&done.untouched),
            reason: actor.reason,
        };
        Ok(json(StatusCode::OK, &answer))
    }

    async fn lift(&self, id: &str, actor: Actor) -> Result<Response, OperatorError> {
        let known = self.overrides.find(id).await;
        let lifted = self.overrides.lift(id, actor.clone()).await;
        let record = lifted.as_ref().ok().or(known.as_ref()).cloned();
        let record = record.as_ref();
        let about = About {
            action: OperatorAction::Lift,
            id: Some(id),
            kind: record.map(|record| record.action),
            target: record.map(|record| &record.target),
            until_ms: record.map(|record| record.until_ms),
        };
        let lifted = self.record_outcome(&about, &actor, lifted)?;
        let lifted = OverrideView::at(self.overrides.now_ms().await, &lifted, &self.policies());
        Ok(json(StatusCode::OK, &OverrideLifted { lifted, reason: actor.reason }))
    }

    /// Writes down what was done or not.
    fn record_outcome<T>(
        &self,
        about: &About<'_>,
        actor: &Actor,
        outcome: Result<T, OverrideError>,
    ) -> Result<T, OperatorError> {
        let outcome = outcome.map_err(OperatorError::from);
        let (result, problem) = match &outcome {
            Ok(_) => (OperationOutcome::Done, None),
            Err(refusal) if refusal.status().is_client_error() => {
                (OperationOutcome::Refused, Some(refusal.detail()))
            }
            Err(refusal) => (OperationOutcome::Failed, Some(refusal.detail())),
        };
        self.observer.operated(Operation {
            action: about.action.name(),
            by: actor.by,
            override_id: about.id.map(|id| id.chars().take(MOST_ID_CHARS).collect()),
            kind: about.kind.map(OperatorAction::name),
            identity: about.target.map(|target| self.shown(&target.identity)),
            policy: about.target.and_then(|target| target.policy.clone()),
            units: about.kind.and_then(OperatorAction::units),
            until_ms: about.until_ms,
            reason: actor.reason.clone(),
            outcome: result,
            problem,
        });
        outcome
    }
}

/// What was to be done.
struct About<'a> {
    action: OperatorAction,
    /// The override that it is about, whether or not there is one of this id.
    id: Option<&'a str>,
    /// What that override does.
    kind: Option<OperatorAction>,
    target: Option<&'a Target>,
    until_ms: Option<u64>,
}
