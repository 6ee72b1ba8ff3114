//! A URL shortener: anybody may follow links, and each address may make ten a minute.

mod links;

use std::future::Future;
use std::net::SocketAddr;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use slidegate::{Gate, Policies, Policy, PolicyErrors, Quota, Store};
use slidegate_tower::{RateLimitLayer, Shape};
use tokio::net::TcpListener;

use crate::links::Links;

/// The application, without a socket. What each address has spent is kept in the store; all that
/// have the same one share their budgets.
pub fn app(store: impl Store) -> Result<Router, PolicyErrors> {
    let policy = Policy::new("shorten").quota(Quota::per_minute(10));
    let policies = Policies::builder().policy(policy).build()?;
    let limit = RateLimitLayer::new(Gate::new(policies, store)).refusal(Shape::Error);
    Ok(Router::new()
        .route("/shorten", post(shorten).route_layer(limit))
        .route("/{slug}", get(follow))
        .with_state(Links::default()))
}

/// Serves the application to connections of the listener, until `shutdown` is over.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    // Without the connection's address, all clients would be one.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).with_graceful_shutdown(shutdown).await
}

#[derive(Deserialize)]
struct Shorten {
    url: String,
}

async fn shorten(State(links): State<Links>, Json(Shorten { url }): Json<Shorten>) -> Response {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return error(StatusCode::UNPROCESSABLE_ENTITY, "url must begin with http:// or https://");
    }
    match links.shorten(url) {
        Some(slug) => (StatusCode::CREATED, Json(json!({ "slug": slug }))).into_response(),
        None => error(StatusCode::INSUFFICIENT_STORAGE, "there is no room for more links"),
    }
}

async fn follow(State(links): State<Links>, Path(slug): Path<String>) -> Response {
    match links.url(&slug) {
        Some(url) => Redirect::temporary(&url).into_response(),
        None => error(StatusCode::NOT_FOUND, "there is no such link"),
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "error": message }))).into_response()
}
