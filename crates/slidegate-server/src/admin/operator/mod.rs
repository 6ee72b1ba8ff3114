//! What an operator can see and do: accounts, and orders for them.

mod accounts;
mod ask;
mod orders;
mod reply;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};
use slidegate::Store;

use crate::desk::Desk;
use crate::observe::Observer;

/// What the operator's requests are answered from.
#[derive(Debug)]
pub(crate) struct Operator<S> {
    pub(crate) desk: Arc<Desk<S>>,
    pub(crate) observer: Observer,
}

impl<S> Clone for Operator<S> {
    fn clone(&self) -> Self {
        Self { desk: self.desk.clone(), observer: self.observer.clone() }
    }
}

pub(super) fn routes<S: Store>(operator: Operator<S>) -> Router {
    Router::new()
        .route("/v1/accounts", get(accounts::list::<S>))
        .route("/v1/accounts/{identity}", get(accounts::inspect::<S>))
        .route("/v1/accounts/{identity}/{action}", post(orders::act::<S>))
        .route("/v1/orders", get(orders::list::<S>))
        .route("/v1/orders/{id}", delete(orders::lift::<S>))
        .with_state(operator)
}
