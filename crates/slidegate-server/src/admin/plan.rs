//! What a reload with another configuration would change.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;

use super::changes::NoParameters;
use crate::api::{PlanBody, ReloadPlan};
use crate::endpoint::json_body::JsonObject;
use crate::endpoint::problem::Problem;
use crate::reload::{self, Reloader};

/// A configuration has 1 MiB at most, and more as a string of JSON.
const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;

/// How long a plan waits for others to be made: longer than a million keys take.
const PLAN_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// The page, without the check of the token.
pub(crate) fn router(reloader: Arc<Reloader>) -> Router {
    Router::new().route("/v1/plan", post(plan)).with_state(reloader)
}

/// `POST /v1/plan`
async fn plan(
    State(reloader): State<Arc<Reloader>>,
    query: Result<Query<NoParameters>, QueryRejection>,
    body: Result<JsonObject<PlanBody, MAX_BODY_BYTES>, Problem>,
) -> Result<Json<ReloadPlan>, Problem> {
    query?;
    let JsonObject(PlanBody { config, name }) = body?;
    let Ok(_turn) = tokio::time::timeout(PLAN_QUEUE_TIMEOUT, reloader.planning.lock()).await else {
        let detail = "Other plans are being made. Try again later.";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let planned = reloader.plan(name, config).await.map_err(|error| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format_args!("No plan was made: {error:#}"))
    })?;
    let (loaded, changes) =
        planned.map_err(|error| Problem::bad_request(format_args!("{error:#}")))?;
    let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
    let in_force = reloader.live.gate().policies();
    let accounts = reloader.accounts_over(&in_force, &loaded.config.limiter.policies).await;
    reload::free(loaded.config);
    Ok(Json(ReloadPlan { changes, warnings, accounts }))
}
