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

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use slidegate::limit::SystemClock;
use slidegate::policy::without_query;
use slidegate::{AccountError, Clock, Decision, NamedCharge, Timestamp};
use slidegate_proxy::{Accepted, Handler, RequestBody};
use slidegate_replay::DescribedRequest;
use slidegate_tower::{LimiterOutcome, bad_request};

pub(crate) use self::answer::Answer;
use self::auth::AuthProtocol;
pub(crate) use self::auth::OriginalRequest;
use self::question::{MAX_BYTES, Question};
pub(crate) use self::refunds::RefundTable;
use self::refunds::{MAX_ENTRIES, REFUND_TTL};
use crate::endpoint::access;
use crate::endpoint::json_body;
use crate::endpoint::problem::Problem;
use crate::endpoint::token::{RequiredToken, bearer};
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

/// The endpoint, which must not be public: callers are trusted, with the token if there is one.
///
/// Its few paths need no router, and a decision costs a fifth less without one.
pub(crate) struct DecisionService {
    pub(crate) decisions: Decisions,
    pub(crate) access: Access,
}

/// What a caller has to show.
pub(crate) enum Access {
    Token(RequiredToken),
    /// Without a token, that no web page has the question sent to these ports.
    Program(Arc<[u16]>),
}

impl Handler for DecisionService {
    type Body = Full<Bytes>;

    async fn answer(
        &self,
        accepted: Accepted,
        request: Request<RequestBody>,
    ) -> Response<Full<Bytes>> {
        self.respond(accepted, request).await.map(Full::new)
    }
}

impl DecisionService {
    async fn respond<B>(&self, accepted: Accepted, request: Request<B>) -> Response<Bytes>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        if let Err(refusal) = self.access.check(accepted.peer, &request) {
            return *refusal;
        }
        let decisions = &self.decisions;
        let (method, path) = (request.method(), request.uri().path());
        let answered = match path {
            DECIDE if *method == Method::POST => decisions.decide(request).await,
            REFUND if *method == Method::POST => decisions.refund(request).await,
            DECIDE | REFUND => Ok(not_allowed("POST")),
            "/v1/auth" => decisions.auth(AuthProtocol::Forwarding, accepted, request).await,
            "/v1/auth/nginx" => decisions.auth(AuthProtocol::Nginx, accepted, request).await,
            auth::REFUSAL_PATH => auth::refusal_of_nginx(request.headers()),
            path if auth::is_of_envoy(path) => {
                decisions.auth(AuthProtocol::Envoy, accepted, request).await
            }
            OPENAPI_PATH if *method == Method::GET || *method == Method::HEAD => {
                Ok(json(StatusCode::OK, Bytes::from_static(OPENAPI.as_bytes())))
            }
            OPENAPI_PATH => Ok(not_allowed("GET, HEAD")),
            _ => Err(not_found()),
        };
        answered.unwrap_or_else(Response::from)
    }
}

impl Access {
    /// Of two tokens neither counts: a client may have sent one of them.
    fn check<B>(
        &self,
        peer: Option<IpAddr>,
        request: &Request<B>,
    ) -> Result<(), Box<Response<Bytes>>> {
        let token = match self {
            Self::Program(ports) => {
                let checked = access::only_programs(ports, request);
                return checked.map_err(|problem| Box::new(problem.into()));
            }
            Self::Token(_) if request.uri().path() == OPENAPI_PATH => return Ok(()),
            Self::Token(token) => token,
        };
        let mut own = request.headers().get_all(TOKEN).iter();
        let presented = match (own.next(), own.next()) {
            (Some(value), None) => Some(value.as_bytes()),
            (None, _) if [DECIDE, REFUND].contains(&request.uri().path()) => {
                bearer(request.headers())
            }
            _ => None,
        };
        token.check(presented, peer).map_err(|error| {
            Box::new(error.respond(
                "expected the token of this service in X-Slidegate-Token, or for /v1/decide and \
                 /v1/refund in Authorization: Bearer TOKEN",
            ))
        })
    }
}

/// The body of `POST /v1/refund`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct RefundBody {
    id: String,
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
    /// `POST /v1/decide`
    async fn decide<B>(&self, request: Request<B>) -> Result<Response<Bytes>, Problem>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let began = self.clock.now();
        let mode = DecideMode::read(request.uri().query().unwrap_or_default())?;
        let body = json_body::read(request, MAX_BYTES).await?;
        let questions = Question::read(&body, &self.live.gate().policies())?;
        if let [question] = &*questions
            && !json_body::is_list(&body)
        {
            let answer = self.answer(question, mode, began).await?;
            // The only question is about a malformed request. In a list such a request is refused
            // like any other, because the rest was decided.
            let is_bad = answer.is_bad_request();
            let status = if is_bad { StatusCode::BAD_REQUEST } else { StatusCode::OK };
            return Ok(json_of(status, &answer));
        }
        // One after another: calls to a shared store that are in flight together may overtake each
        // other, and a list is decided in order.
        let mut answers = Vec::with_capacity(questions.len());
        for question in &questions {
            answers.push(self.answer(question, mode, began).await?);
        }
        Ok(json_of(StatusCode::OK, &answers))
    }

    /// `POST /v1/refund`
    ///
    /// If the store fails, the decision may have been refunded: it is not tried again, because what
    /// is refunded twice is more than was spent.
    async fn refund<B>(&self, request: Request<B>) -> Result<Response<Bytes>, Problem>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let RefundBody { id } = json_body::read_object(request, MAX_REFUND_BYTES).await?;
        let Some(decision) = self.refunds.take(&id, self.clock.now()) else {
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
        let mut done = Response::new(Bytes::new());
        *done.status_mut() = StatusCode::NO_CONTENT;
        refunded.map(|()| done).map_err(|error| {
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
    async fn auth<B>(
        &self,
        protocol: AuthProtocol,
        accepted: Accepted,
        request: Request<B>,
    ) -> Result<Response<Bytes>, Problem> {
        let began = self.clock.now();
        let settings = self.live.settings();
        let (head, _) = request.into_parts();
        let clients = &settings.limiter.client_address;
        let original = OriginalRequest::read(protocol, &head, accepted.peer, clients)?;
        let (response, decision) = match settings.limiter.decide(original.head()).await {
            LimiterOutcome::Pass(decision) => {
                let mut allowed = Response::new(Bytes::new());
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
        Ok(response)
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

fn not_found() -> Problem {
    let detail = "there is /v1/decide, /v1/refund, /v1/auth, /v1/auth/nginx, /v1/auth/envoy and \
                  /v1/openapi.json";
    Problem::not_found(detail)
}

fn not_allowed(methods: &'static str) -> Response<Bytes> {
    let detail = format_args!("expected {methods}");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
    let mut response = Response::from(problem);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

fn json_of(status: StatusCode, answer: &(impl Serialize + ?Sized)) -> Response<Bytes> {
    let mut body = Vec::with_capacity(ANSWER_BYTES);
    serde_json::to_writer(&mut body, answer).expect("an answer can be JSON");
    json(status, body.into())
}

fn json(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
