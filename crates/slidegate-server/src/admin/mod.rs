//! The admin endpoint: metrics, health, accounts and overrides.

mod index;
mod metrics;
mod operator;
mod problem;
mod readiness;
#[cfg(test)]
mod tests;
mod token;
pub(crate) mod views;

use axum::routing::get;
use axum::{Router, middleware};
use slidegate::Store;

pub(crate) use self::operator::Operator;
use crate::config::Secret;
use crate::observe::Observer;
use crate::shutdown::Shutdown;
use crate::token::Token;

/// The operator's pages: those for probes, which have no token, and those that need one if there
/// is one.
pub(crate) fn router<S: Store>(
    operator: Operator<S>,
    shutdown: Shutdown,
    token: Option<&Secret>,
) -> Router {
    let observer = operator.observer.clone();
    let guarded = guarded(operator);
    let guarded = match token.map(Token::new) {
        Some(token) => guarded.route_layer(middleware::from_fn(move |request, next| {
            token::demand(token.clone(), request, next)
        })),
        None => guarded.route_layer(middleware::from_fn(token::demand_plain_host)),
    };
    let ready = move |observer: Observer| async move { readiness::answer(&observer, &shutdown) };
    Router::new()
        .route("/", get(index::answer))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || ready(observer)))
        .merge(guarded)
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
}

/// The routes that need the token.
fn guarded<S: Store>(operator: Operator<S>) -> Router {
    let observer = operator.observer.clone();
    Router::new()
        .route("/metrics", get(move || async move { metrics::answer(&observer) }))
        .merge(operator::routes(operator))
}
