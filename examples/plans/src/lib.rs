//! An API that is sold in plans: each customer has a minute's and a day's quota.

mod customers;

use std::future::Future;
use std::net::SocketAddr;

use axum::routing::get;
use axum::{Json, Router, middleware};
use serde_json::{Value, json};
use slidegate::{Gate, MemoryStore, Plan, Policies, Policy, PolicyErrors, Quota, Source};
use slidegate_tower::{RateLimitLayer, Shape};
use tokio::net::TcpListener;

const UPGRADE_URL: &str = "https://app.example.com/upgrade";

/// The application, without a socket.
pub fn app() -> Result<Router, PolicyErrors> {
    let limits = RateLimitLayer::new(Gate::new(policies()?, MemoryStore::new()));
    // The layer that is added last sees a request first: who it is comes before how much.
    Ok(Router::new()
        .route("/reports", get(reports))
        .layer(limits.refusal(Shape::Plan))
        .layer(middleware::from_fn(customers::authenticate)))
}

/// Serves the application to connections of the listener, until `shutdown` is over.
pub async fn serve(
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let app = app().map_err(std::io::Error::other)?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).with_graceful_shutdown(shutdown).await
}

/// What customers can buy. Both quotas of a plan must allow a request.
fn policies() -> Result<Policies, PolicyErrors> {
    let plan = |name: &str, units_a_minute, units_a_day| {
        Plan::new(name, [Quota::per_minute(units_a_minute), Quota::per_day(units_a_day)])
    };
    Policies::builder()
        .plan(plan("free", 60, 10_000).upgrade_url(UPGRADE_URL))
        .plan(plan("pro", 600, 100_000).upgrade_url(UPGRADE_URL))
        .plan(plan("enterprise", 6000, 1_000_000))
        .policy(Policy::new("api").identity([Source::User]).plans("free"))
        .build()
}

async fn reports() -> Json<Value> {
    Json(json!({ "reports": [] }))
}
