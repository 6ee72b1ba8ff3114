//! Decision API: returns a verdict that the caller enforces. `POST /v1/decide` and
//! `POST /v1/refund` for any program, `/v1/auth` for proxies.

mod answer;
mod auth;
pub(crate) mod question;
mod refunds;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use slidegate::limit::SystemClock;
use slidegate::policy::without_query;
use slidegate::{AccountError, Clock, Decision, NamedCharge, Timestamp};
use slidegate_proxy::Accepted;
use slidegate_replay::DescribedRequest;
use slidegate_tower::{LimiterOutcome, bad_request};

pub(crate) use self::answer::Answer;
use self::auth::AuthProtocol;
pub(crate) use self::auth::OriginalRequest;
use self::question::{MAX_BYTES, Question};
pub(crate) use self::refunds::RefundTable;
use self::refunds::{MAX_ENTRIES, REFUND_TTL};
use crate::endpoint::access;
use crate::endpoint::json_body::{self, JsonObject};
use crate::endpoint::problem::Problem;
use crate::endpoint::token::{RequiredToken, bearer, peer};
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, Observer, OperationOutcome, RequestOutcome, UpstreamOutcome};

/// What this endpoint does, for programs that read it.
const OPENAPI: &str = include_str!("openapi.json");

const DECIDE: &str = "/v1/decide";
const REFUND: &str = "/v1/refund";
const OPENAPI_PATH: &str = "/v1/openapi.json";

/// The most bytes of a body with an id.
const MAX_REFUND_BYTES: usize = 1024;

/// Enough for a decision with two standings.
const ANSWER_BYTES: usize = 1024;

/// In a forward-auth request `Authorization` is the client's, so the proxy sends its token here.
const TOKEN: HeaderName = HeaderName::from_static("x-slidegate-token");

/// Decides what callers ask about.
pub(crate) struct Decisions {
    pub(crate) live: Arc<LiveConfig>,
    pub(crate) observer: Observer,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) refunds: Arc<RefundTable>,
}

/// The routes of the endpoint on these ports. It must not be public: callers are trusted, with the
/// token if there is one.
pub(crate) fn router(
    decisions: Decisions,
    token: Option<RequiredToken>,
    ports: Arc<[u16]>,
) -> Router {
    let auth = |protocol| {
        any(move |State(decisions): State<Arc<Decisions>>, request: Request| async move {
            decisions.auth(protocol, request).await
        })
    };
    let router = Router::new()
        .route(DECIDE, post(decide).fallback(|| async { not_allowed("POST") }))
        .route(REFUND, post(refund).fallback(|| async { not_allowed("POST") }))
        .route("/v1/auth", auth(AuthProtocol::Forwarding))
        .route("/v1/auth/nginx", auth(AuthProtocol::Nginx))
        .route(
            auth::REFUSAL_PATH,
            any(async |headers: HeaderMap| -> Result<Response, Problem> {
                Ok(auth::refusal_of_nginx(&headers)?.map(Body::from))
            }),
        )
        .route("/v1/auth/envoy", auth(AuthProtocol::Envoy))
        .route("/v1/auth/envoy/", auth(AuthProtocol::Envoy))
        .route("/v1/auth/envoy/{*path}", auth(AuthProtocol::Envoy))
        .route(OPENAPI_PATH, get(openapi).fallback(|| async { not_allowed("GET, HEAD") }))
        .fallback(not_found)
        .with_state(Arc::new(decisions));
    match token {
        Some(token) => router.layer(from_fn_with_state(token, require_token)),
        None => router.layer(from_fn_with_state(ports, access::only_programs)),
    }
}

/// `POST /v1/decide`
async fn decide(
    State(decisions): State<Arc<Decisions>>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let began = decisions.clock.now();
    let mode = DecideMode::read(query.as_deref().unwrap_or_default())?;
    let body = json_body::read(request, MAX_BYTES).await?;
    let questions = Question::read(&body, &decisions.live.gate().policies())?;
    let mut answers = Vec::with_capacity(questions.len());
    for question in &questions {
        answers.push(decisions.answer(question, mode, began).await?);
    }
    match &*answers {
        // The only question is about a malformed request. In a list such a request is refused like
        // any other, because the rest was decided.
        [answer] if !json_body::is_list(&body) && answer.is_bad_request() => {
            Ok(json_response(StatusCode::BAD_REQUEST, answer))
        }
        [answer] if !json_body::is_list(&body) => Ok(json_response(StatusCode::OK, answer)),
        answers => Ok(json_response(StatusCode::OK, answers)),
    }
}

/// The body of `POST /v1/refund`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct RefundBody {
    id: String,
}

/// `POST /v1/refund`
async fn refund(
    State(decisions): State<Arc<Decisions>>,
    JsonObject(RefundBody { id }): JsonObject<RefundBody, MAX_REFUND_BYTES>,
) -> Result<StatusCode, Problem> {
    decisions.refund(&id).await
}

/// Whether a question spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecideMode {
    Spend,
    Peek,
}

impl DecideMode {
    /// Reads a query: nothing, or `peek=true`, in whatever case a language writes its booleans.
    fn read(query: &str) -> Result<Self, Problem> {
        match query.to_ascii_lowercase().as_str() {
            "" | "peek=false" | "peek=0" => Ok(Self::Spend),
            "peek=true" | "peek=1" => Ok(Self::Peek),
            _ => Err(Problem::invalid_body("the query can only be peek=true or peek=false")),
        }
    }
}

impl Decisions {
    /// Refunds the decision of this id. If the store fails, it may have been refunded: it is not
    /// tried again, because what is refunded twice is more than was spent.
    async fn refund(&self, id: &str) -> Result<StatusCode, Problem> {
        let Some(decision) = self.refunds.take(id, self.clock.now()) else {
            self.observer.refunded(OperationOutcome::Refused, None);
            return Err(Problem::not_found(format_args!(
                "there is no decision of this id to refund: it was refunded already, is older than \
                 {} s or than {MAX_ENTRIES} others, or another gateway made it, or this one before \
                 it was restarted",
                REFUND_TTL.as_secs()
            )));
        };
        let refunded = self.live.gate().refund(&decision).await;
        let outcome = match refunded {
            Ok(()) => OperationOutcome::Done,
            Err(_) => OperationOutcome::Failed,
        };
        self.observer.refunded(outcome, Some(&decision));
        refunded.map(|()| StatusCode::NO_CONTENT).map_err(|error| {
            let detail =
                format_args!("the decision may not be refunded, and cannot be again: {error}");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })
    }

    /// Decides one question, and reports it to the observer unless it only peeks.
    async fn answer(
        &self,
        question: &Question,
        mode: DecideMode,
        began: Timestamp,
    ) -> Result<Answer, Problem> {
        let asked = self.clock.now();
        let (mut answer, method, path, client) = match question.charges() {
            Some(charges) => {
                let answer = self.decide_charges(&charges, mode).await?;
                (answer, &Method::POST, DECIDE, None)
            }
            None => {
                let answer = self.decide_request(question, mode).await;
                let DescribedRequest { method, path, client, .. } = &question.request;
                (answer, method, path.as_str(), *client)
            }
        };
        if mode == DecideMode::Spend {
            let decision = answer.decision.as_ref();
            let times = (began, asked);
            self.record(times, method, path, client, answer.client_status(), decision);
            let kept = decision.filter(|decision| question.is_refundable() && decision.has_spent());
            answer.id = kept.and_then(|decision| self.refunds.keep(decision.clone(), asked));
        }
        Ok(answer)
    }

    async fn decide_request(&self, question: &Question, mode: DecideMode) -> Answer {
        let (gate, settings) = (self.live.gate(), self.live.settings());
        let facts = question.facts();
        if let Err(error) = gate.check(&facts) {
            return Answer::bad_request(bad_request(&error));
        }
        let outcome = match mode {
            DecideMode::Spend => gate.decide(&facts).await,
            DecideMode::Peek => gate.peek(&facts).await,
        };
        Answer::new(outcome, &settings.limiter.responder, &question.request.headers)
    }

    async fn decide_charges(
        &self,
        charges: &[NamedCharge<'_>],
        mode: DecideMode,
    ) -> Result<Answer, Problem> {
        let gate = self.live.gate();
        let outcome = match mode {
            DecideMode::Spend => gate.decide_named(charges).await,
            DecideMode::Peek => gate.peek_named(charges).await,
        };
        let outcome = match outcome {
            Ok(decision) => Ok(decision),
            Err(AccountError::Store(error)) => Err(error),
            // The policies have changed since the question was read.
            Err(error) => return Err(Problem::invalid_body(error)),
        };
        Ok(Answer::new(outcome, &self.live.settings().limiter.responder, &HeaderMap::new()))
    }

    /// `/v1/auth`, `/v1/auth/nginx` and `/v1/auth/envoy`
    async fn auth(&self, protocol: AuthProtocol, request: Request) -> Result<Response, Problem> {
        let began = self.clock.now();
        let settings = self.live.settings();
        let (head, _) = request.into_parts();
        let peer = head.extensions.get::<Accepted>().and_then(|accepted| accepted.peer);
        let original =
            OriginalRequest::read(protocol, &head, peer, &settings.limiter.client_address)?;
        let (response, decision) = match settings.limiter.decide(original.head()).await {
            LimiterOutcome::Pass(decision) => {
                let mut allowed = http::Response::new(Bytes::new());
                settings.limiter.annotate(decision.as_ref(), &mut allowed);
                (allowed, decision)
            }
            LimiterOutcome::Refuse(refusal, decision) if protocol == AuthProtocol::Nginx => {
                (auth::for_nginx(refusal), decision)
            }
            LimiterOutcome::Refuse(refusal, decision) => (refusal, decision),
        };
        let (status, decision) = (response.status(), decision.as_ref());
        let client = original.client.client;
        let times = (began, began);
        self.record(times, &original.method, &original.path, client, status, decision);
        Ok(response.map(Body::from))
    }

    /// Reports a decided request to the observer, with the times at which it came and the gate was asked.
    fn record(
        &self,
        (began, asked): (Timestamp, Timestamp),
        method: &Method,
        path: &str,
        client: Option<IpAddr>,
        status: StatusCode,
        decision: Option<&Decision>,
    ) {
        let now = self.clock.now();
        self.observer.record(&RequestOutcome {
            listener: ListenerKind::Decisions,
            method,
            path: without_query(path),
            client,
            status,
            decision,
            upstream: UpstreamOutcome::NotCalled,
            began,
            asked,
            decided: (status != StatusCode::BAD_REQUEST).then_some(now),
            ended: now,
        });
    }
}

/// Lets requests pass that present the token, and those for the description. Of two tokens neither
/// counts: a client may have sent one of them.
async fn require_token(
    State(token): State<RequiredToken>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let mut own = request.headers().get_all(TOKEN).iter();
    let presented = match (own.next(), own.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        (None, _) if [DECIDE, REFUND].contains(&path) => bearer(request.headers()),
        _ => None,
    };
    if path == OPENAPI_PATH {
        return next.run(request).await;
    }
    match token.check(presented, peer(&request)) {
        Ok(()) => next.run(request).await,
        Err(error) => error.respond(
            "expected the token of this service in X-Slidegate-Token, or for /v1/decide and \
             /v1/refund in Authorization: Bearer TOKEN",
        ),
    }
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn not_found() -> Problem {
    let detail = "there is /v1/decide, /v1/refund, /v1/auth, /v1/auth/nginx, /v1/auth/envoy and \
                  /v1/openapi.json";
    Problem::not_found(detail)
}

fn not_allowed(methods: &'static str) -> Response {
    let detail = format_args!("expected {methods}");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
    ([(header::ALLOW, methods)], problem).into_response()
}

fn json_response(status: StatusCode, answer: &(impl Serialize + ?Sized)) -> Response {
    let mut json = Vec::with_capacity(ANSWER_BYTES);
    serde_json::to_writer(&mut json, answer).expect("an answer can be JSON");
    (status, [(header::CONTENT_TYPE, "application/json")], Body::from(json)).into_response()
}
