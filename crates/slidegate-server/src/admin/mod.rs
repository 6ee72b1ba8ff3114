//! The operator's door: metrics and health.

mod index;
mod metrics;
mod problem;
mod readiness;
#[cfg(test)]
mod tests;
mod token;

use axum::routing::get;
use axum::{Router, middleware};

use self::token::Token;
use crate::config::Secret;
use crate::observe::Observer;
use crate::shutdown::Shutdown;

/// The operator's pages: those for probes, which have no token, and those that need one if there
/// is one.
pub(crate) fn router(observer: Observer, shutdown: Shutdown, token: Option<&Secret>) -> Router {
    let guarded = guarded(observer.clone());
    let guarded = match token.map(Token::new) {
        Some(token) => guarded.route_layer(middleware::from_fn(move |request, next| {
            token.clone().demand(request, next)
        })),
        None => guarded,
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

/// What is not for everybody's eyes.
fn guarded(observer: Observer) -> Router {
    Router::new().route("/metrics", get(move || async move { metrics::answer(&observer) }))
}
