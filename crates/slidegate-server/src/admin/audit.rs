//! The last lines of the audit trail about one identity.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use http::StatusCode;
use tokio::sync::Semaphore;

use super::Operator;
use super::accounts::identity;
use super::changes::NoParameters;
use crate::api::AuditView;
use crate::endpoint::problem::Problem;
use crate::observe::{TrailLines, read_tail};

const MAX_LINES: usize = 50;
/// Each reader has up to 4 MiB in memory.
static READERS: Semaphore = Semaphore::const_new(2);

/// `GET /v1/accounts/{identity}/audit`
pub(super) async fn lines(
    State(operator): State<Arc<Operator>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<AuditView>, Problem> {
    let (policies, Path(text)) = (operator.policies(), path?);
    query?;
    let identity = policies.shown(&identity(&text, &policies)?).into_owned();
    let Some(file) = operator.observer.audit_file().map(ToOwned::to_owned) else {
        let (audited, lines, since) = (false, Vec::new(), None);
        return Ok(Json(AuditView { identity, audited, lines, since }));
    };
    let subject = identity.clone();
    let _permit = READERS.acquire().await.map_err(cannot_read)?;
    // The disk may be slow, and others wait for this thread.
    let read = tokio::task::spawn_blocking(move || read_tail(&file, &subject, MAX_LINES));
    let TrailLines { lines, since } = read.await.map_err(cannot_read)?.map_err(cannot_read)?;
    Ok(Json(AuditView { identity, audited: true, lines, since }))
}

fn cannot_read(error: impl std::fmt::Display) -> Problem {
    let detail = format_args!("the audit trail cannot be read: {error}");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}
