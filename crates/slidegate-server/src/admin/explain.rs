//! What a described request would fall under, and what would be decided about it now.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use slidegate::Policies;
use slidegate::policy::{ExplainedPolicy, Explanation};
use slidegate_replay::DescribedRequest;
use slidegate_tower::bad_request;

use super::Operator;
use super::changes::NoParameters;
use crate::api::{ExplainView, PolicyEffect};
use crate::decisions::Answer;
use crate::endpoint::json_body::JsonObject;
use crate::endpoint::problem::Problem;

/// A request with many long headers.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// `POST /v1/explain`
pub(super) async fn explain(
    State(operator): State<Arc<Operator>>,
    query: Result<Query<NoParameters>, QueryRejection>,
    body: Result<JsonObject<DescribedRequest, MAX_BODY_BYTES>, Problem>,
) -> Result<Json<ExplainView<Answer>>, Problem> {
    query?;
    let JsonObject(request) = body?;
    Ok(Json(operator.explain(&request).await))
}

impl Operator {
    async fn explain(&self, request: &DescribedRequest) -> ExplainView<Answer> {
        let (gate, settings) = (self.live.gate(), self.live.settings());
        let limiter = &settings.limiter;
        let facts = request.facts(&limiter.client_address);
        let policies = self.policies();
        let other_paths = policies.other_paths(&request.path);
        let client = request.explain_client(&limiter.client_address);
        let client =
            client.unwrap_or_else(|| "unknown, as neither client nor peer says".to_owned());
        let credentials = settings.explain_credentials(&request.headers).await;
        if let Err(error) = gate.check(&facts) {
            let decision = Answer::bad_request(bad_request(&error));
            let (blocked, exempt, policies) = (None, None, Vec::new());
            return ExplainView {
                client,
                credentials,
                other_paths,
                blocked,
                exempt,
                policies,
                decision,
            };
        }
        let bearer = settings.bearer(&request.headers, None).await;
        let facts = bearer.as_ref().map_or(facts, |bearer| facts.bearer(bearer));
        let Explanation { blocked, exempt, policies: each, .. } = gate.explain(&facts);
        let [blocked, exempt] =
            [blocked, exempt].map(|listed| listed.map(|listed| listed.shown(&policies)));
        let each = each.into_iter().map(|one| PolicyEffect::new(one, &policies)).collect();
        let decision = Answer::new(gate.peek(&facts).await, &limiter.responder, &request.headers);
        ExplainView { client, credentials, other_paths, blocked, exempt, policies: each, decision }
    }
}

impl PolicyEffect {
    fn new(explained: ExplainedPolicy, policies: &Policies) -> Self {
        let ExplainedPolicy { policy, identity, effect } = explained;
        let identity = identity.map(|identity| policies.shown(&identity).into_owned());
        Self { policy: policy.to_string(), identity, effect }
    }
}
