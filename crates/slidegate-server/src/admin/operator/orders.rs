//! What is done to accounts: resets, and orders that hold for a time.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, Uri};
use serde::Serialize;
use slidegate::policy::Measure;
use slidegate::{Identity, Name, Policies, Store};

use super::Operator;
use super::ask::{self, Asked, Members};
use super::reply::{Refusal, json};
use super::view::OrderView;
use crate::decisions::body;
use crate::desk::{Action, DeskError, Filed, Motive, Target, Until};
use crate::listener::Accepted;
use crate::observe::{Operation, OperationOutcome};

/// Of an id in the audit trail: one that is not ours may have any length.
const MOST_ID_CHARS: usize = 64;

#[derive(Serialize)]
struct List {
    orders: Vec<OrderView>,
    /// Whether there may be others: Redis cannot be asked, and these were read last.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
}

#[derive(Serialize)]
struct Taken {
    order: OrderView,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<OrderView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<OrderView>,
}

#[derive(Serialize)]
struct WasReset {
    reset: String,
    policies: Vec<String>,
    /// The policies under which there was nothing to forget.
    nothing_spent: Vec<String>,
    reason: String,
}

#[derive(Serialize)]
struct Lifted {
    lifted: OrderView,
    reason: String,
}

/// `GET /v1/orders`
pub(super) async fn list<S: Store>(State(operator): State<Operator<S>>, uri: Uri) -> Response {
    if let Err(refusal) = ask::query(&uri, []) {
        return refusal.into_response();
    }
    let in_force = operator.desk.in_force().await;
    let policies = operator.policies();
    let view = |order| OrderView::at(in_force.now_ms, order, &policies);
    let orders = in_force.orders.iter().map(view).collect();
    json(StatusCode::OK, &List { orders, stale: in_force.is_cut_off })
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
            "reset" => Members::Reset,
            "grant" => Members::Grant,
            "exempt" | "ban" => Members::Order,
            _ => {
                let detail = "there is reset, grant, exempt and ban to be done to an account";
                return Err(Refusal::Nothing(detail.to_owned()));
            }
        };
        let identity = ask::identity(&identity, &operator.policies())?;
        let (by, body) = read(request).await?;
        let asked = Asked::read(&body, members)?;
        let target = Target { identity, policy: asked.policy };
        let motive = Motive { by, reason: asked.reason };
        let measure = match (word.as_str(), asked.units) {
            ("grant", Some(units)) => Measure::Grant(units),
            ("exempt", _) => Measure::Exempt,
            ("ban", _) => Measure::Ban,
            _ => return operator.reset(target, motive).await,
        };
        // There is one, as the body was read.
        let until = asked.until.unwrap_or(Until::At(0));
        operator.give(measure, target, until, motive).await
    };
    answer.await.unwrap_or_else(Refusal::into_response)
}

/// `DELETE /v1/orders/{id}`
pub(super) async fn lift<S: Store>(
    State(operator): State<Operator<S>>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let answer = async {
        let id = ask::path(path)?;
        let (by, body) = read(request).await?;
        let asked = Asked::read(&body, Members::Lift)?;
        operator.lift(&id, Motive { by, reason: asked.reason }).await
    };
    answer.await.unwrap_or_else(Refusal::into_response)
}

/// Who sent a request, and its body.
async fn read(request: Request) -> Result<(Option<std::net::IpAddr>, Bytes), Refusal> {
    let by = request.extensions().get::<Accepted>().and_then(|accepted| accepted.peer);
    ask::query(request.uri(), [])?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body)
        .await
        .map_err(|refusal| Refusal::Body(Box::new(refusal)))?;
    Ok((by, body))
}

impl<S: Store> Operator<S> {
    pub(super) fn policies(&self) -> Arc<Policies> {
        self.desk.gate().policies()
    }

    fn shown(&self, identity: &Identity) -> String {
        self.policies().shown(identity).into_owned()
    }

    async fn give(
        &self,
        measure: Measure,
        target: Target,
        until: Until,
        motive: Motive,
    ) -> Result<Response, Refusal> {
        let given = self.desk.give(measure, target.clone(), until, motive.clone()).await;
        let until_ms = match &given {
            Ok(given) => given.order.until_ms,
            Err(_) => until.end_ms(self.desk.now_ms().await),
        };
        let (action, id) = (Action::Order(measure), Filed::id_of(measure, &target));
        let about = About {
            action,
            id: Some(&id),
            kind: Some(action),
            target: Some(&target),
            until_ms: Some(until_ms),
        };
        let given = self.tell(&about, &motive, given)?;
        let policies = self.policies();
        let view = |order: &Filed| OrderView::at(given.order.given_ms, order, &policies);
        let taken = Taken {
            order: view(&given.order),
            replaced: given.replaced.as_ref().map(view),
            others: given.others.iter().map(view).collect(),
        };
        Ok(json(StatusCode::OK, &taken))
    }

    async fn reset(&self, target: Target, motive: Motive) -> Result<Response, Refusal> {
        let reset = self.desk.reset(target.clone(), motive.clone()).await;
        let about = About {
            action: Action::Reset,
            id: None,
            kind: None,
            target: Some(&target),
            until_ms: None,
        };
        let done = self.tell(&about, &motive, reset)?;
        let names = |policies: &[Name]| policies.iter().map(ToString::to_string).collect();
        let was_reset = WasReset {
            reset: self.shown(&target.identity),
            policies: names(&done.policies),
            nothing_spent: names(&done.untouched),
            reason: motive.reason,
        };
        Ok(json(StatusCode::OK, &was_reset))
    }

    async fn lift(&self, id: &str, motive: Motive) -> Result<Response, Refusal> {
        let known = self.desk.find(id).await;
        let lifted = self.desk.lift(id, motive.clone()).await;
        let order = lifted.as_ref().ok().or(known.as_ref()).cloned();
        let order = order.as_ref();
        let about = About {
            action: Action::Lift,
            id: Some(id),
            kind: order.map(|order| order.action),
            target: order.map(|order| &order.target),
            until_ms: order.map(|order| order.until_ms),
        };
        let lifted = self.tell(&about, &motive, lifted)?;
        let lifted = OrderView::at(self.desk.now_ms().await, &lifted, &self.policies());
        Ok(json(StatusCode::OK, &Lifted { lifted, reason: motive.reason }))
    }

    /// Writes down what was done or not.
    fn tell<T>(
        &self,
        about: &About<'_>,
        motive: &Motive,
        outcome: Result<T, DeskError>,
    ) -> Result<T, Refusal> {
        let outcome = outcome.map_err(Refusal::from);
        let (told, problem) = match &outcome {
            Ok(_) => (OperationOutcome::Done, None),
            Err(refusal) if refusal.status().is_client_error() => {
                (OperationOutcome::Refused, Some(refusal.detail()))
            }
            Err(refusal) => (OperationOutcome::Failed, Some(refusal.detail())),
        };
        self.observer.operated(Operation {
            action: about.action.word(),
            by: motive.by,
            order: about.id.map(|id| id.chars().take(MOST_ID_CHARS).collect()),
            kind: about.kind.map(Action::word),
            identity: about.target.map(|target| self.shown(&target.identity)),
            policy: about.target.and_then(|target| target.policy.clone()),
            units: about.kind.and_then(Action::units),
            until_ms: about.until_ms,
            reason: motive.reason.clone(),
            outcome: told,
            problem,
        });
        outcome
    }
}

/// What was to be done.
struct About<'a> {
    action: Action,
    /// The order that it is about, whether or not there is one of this id.
    id: Option<&'a str>,
    /// What that order does.
    kind: Option<Action>,
    target: Option<&'a Target>,
    until_ms: Option<u64>,
}
