//! The admin endpoint: metrics, health, accounts, overrides, and the dashboard.

pub(crate) mod accounts;
mod audit;
mod changes;
mod dashboard;
pub(crate) mod density;
mod explain;
pub(crate) mod now;
pub(crate) mod plan;
mod policies;
pub(crate) mod readiness;
mod recent;
#[cfg(test)]
mod tests;
pub(crate) use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use slidegate::Policies;
use tokio_util::sync::CancellationToken;

pub(crate) use self::recent::RecentLists;
use crate::config::Secret;
use crate::endpoint::access;
use crate::endpoint::problem::Problem;
use crate::endpoint::token::RequiredToken;
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, MetricsFormat, Observer};
use crate::shared::OverrideService;

/// What the operator's requests are answered from.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) live: Arc<LiveConfig>,
    pub(crate) overrides: Arc<OverrideService>,
    pub(crate) observer: Observer,
    pub(crate) recent: RecentLists,
}

impl Operator {
    fn policies(&self) -> Arc<Policies> {
        self.live.gate().policies()
    }
}

/// The index as text, for curl; browsers get the dashboard.
const INDEX: &str = concat!(
    "slidegate ",
    env!("CARGO_PKG_VERSION"),
    "

/metrics   metrics for Prometheus
/healthz   200 while the process lives
/readyz    200 while requests can be decided, and how the store is

/          the dashboard, in a browser

GET    /v1/now                              decisions of the last fifteen minutes, store, gateways
GET    /v1/policies                         the policies in force, and what they have decided
GET    /v1/accounts?sort=nearest&limit=20   accounts nearest to a quota; sort=denied: most denied;
                                            sort=candidate: most denied if candidates were in force
GET    /v1/accounts/IDENTITY                where one stands, such as ip:203.0.113.7; ?policy=, ?plan=
GET    /v1/accounts/IDENTITY/density        its spends over each window; ?buckets=60, ?policy=, ?plan=
GET    /v1/accounts/IDENTITY/audit          its last lines in the audit trail
POST   /v1/accounts/IDENTITY/reset          forgets what was spent      {\"reason\": \"...\"}
POST   /v1/accounts/IDENTITY/grant          adds units                  and \"units\": 100, \"quota\": \"1d\", \"for\": \"1h\"
POST   /v1/accounts/IDENTITY/exempt         lets all pass               and \"for\", or \"until\": \"2026-01-01T12:00:00Z\"
POST   /v1/accounts/IDENTITY/ban            refuses all                 \"policy\": \"...\" for one policy only
GET    /v1/overrides                        grants, exemptions and bans in force
DELETE /v1/overrides/ID                     lifts one                   {\"reason\": \"...\"}
POST   /v1/plan                             what a reload would change  {\"config\": \"text of the file\"}
POST   /v1/explain                          what a request would fall under {\"method\": \"GET\", \"path\": \"/\", \"client\": \"...\"}

The same from a terminal: slidegate top, accounts, inspect, reset, grant, exempt, ban, overrides, lift, plan

If there is a token, /metrics and /v1 need it: Authorization: Bearer TOKEN
"
);

/// All routes, with the `others` of the API. Probes and the index need no token; metrics and the API
/// do, if there is one.
pub(crate) fn router(
    operator: Operator,
    draining: CancellationToken,
    token: Option<&Secret>,
    others: Router,
) -> Router {
    let (scraped, probed) = (operator.observer.clone(), operator.observer.clone());
    let failures = operator.observer.token_failures();
    let required = token.map(|token| RequiredToken::new(token, ListenerKind::Admin, failures));
    let guarded = Router::new()
        .route("/v1/accounts", get(accounts::list))
        .route("/v1/accounts/{identity}", get(accounts::inspect))
        .route("/v1/accounts/{identity}/audit", get(audit::lines))
        .route("/v1/accounts/{identity}/density", get(density::density))
        .route("/v1/accounts/{identity}/reset", post(changes::reset))
        .route("/v1/accounts/{identity}/{action}", post(changes::create))
        .route("/v1/overrides", get(changes::list))
        .route("/v1/overrides/{id}", delete(changes::lift))
        .route("/v1/policies", get(policies::list))
        .route("/v1/explain", post(explain::explain))
        .with_state(Arc::new(operator))
        .merge(others)
        .route("/metrics", get(async move |headers: HeaderMap| metrics(&scraped, &headers)))
        .route_layer(from_fn(access::same_origin))
        .route_layer(from_fn_with_state(required, access::authorize));
    let is_open = token.is_none();
    let index = async move |request: Request| match dashboard::wants_dashboard(&request) {
        true if is_open && !access::has_local_host(&request) => access::not_local().into_response(),
        true => dashboard::page(),
        false => ([(header::VARY, "accept")], INDEX).into_response(),
    };
    Router::new()
        .route("/", get(index))
        .route("/dashboard/{file}", get(dashboard::file))
        .route("/healthz", get("ok\n"))
        .route("/readyz", get(async move || readiness::respond(&probed, &draining)))
        .merge(guarded)
        .fallback(async || Problem::not_found("There is no such page. GET / tells what there is."))
        .method_not_allowed_fallback(async || {
            let detail = "This cannot be done here. GET / tells what can.";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        })
        .layer(map_response(no_store))
}

fn metrics(observer: &Observer, request: &HeaderMap) -> Result<Response, Problem> {
    let format = MetricsFormat::accepted_by(request);
    let page = observer.metrics(format).map_err(|error| {
        tracing::error!(%error, "cannot encode metrics");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The metrics could not be encoded.")
    })?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], page).into_response())
}

async fn no_store(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
