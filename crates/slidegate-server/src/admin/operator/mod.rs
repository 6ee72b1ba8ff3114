//! What an operator can see and do: accounts, and overrides for them.

mod accounts;
mod ask;
mod overrides;
mod reply;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};
use slidegate::Store;

use crate::observe::Observer;
use crate::overrides::OverrideService;

/// What the operator's requests are answered from.
#[derive(Debug)]
pub(crate) struct Operator<S> {
    pub(crate) overrides: Arc<OverrideService<S>>,
    pub(crate) observer: Observer,
}

impl<S> Clone for Operator<S> {
    fn clone(&self) -> Self {
        Self { overrides: self.overrides.clone(), observer: self.observer.clone() }
    }
}

pub(super) fn routes<S: Store>(operator: Operator<S>) -> Router {
    Router::new()
        .route("/v1/accounts", get(accounts::list::<S>))
        .route("/v1/accounts/{identity}", get(accounts::inspect::<S>))
        .route("/v1/accounts/{identity}/{action}", post(overrides::act::<S>))
        .route("/v1/overrides", get(overrides::list::<S>))
        .route("/v1/overrides/{id}", delete(overrides::lift::<S>))
        .with_state(operator)
}
