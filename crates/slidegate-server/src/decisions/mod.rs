//! Decision API: returns a verdict that the caller enforces. `POST /v1/decide`, `/v1/settle`,
//! `/v1/refund` and `/v1/record` for any program, `/v1/auth` for proxies.

mod answer;
mod auth;
pub(crate) mod question;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use slidegate::limit::SystemClock;
use slidegate::policy::without_query;
use slidegate::{AccountError, Bearer, Clock, Decision, HeldCharge, Timestamp};
use slidegate_proxy::{Accepted, Handler, RequestBody};
use slidegate_replay::DescribedRequest;
use slidegate_tower::{LimiterOutcome, bad_request};

pub(crate) use self::answer::Answer;
use self::auth::AuthProtocol;
pub(crate) use self::auth::OriginalRequest;
use self::question::{MAX_BYTES, Question, RecordBody};
use crate::endpoint::access;
use crate::endpoint::json_body;
use crate::endpoint::problem::Problem;
use crate::endpoint::token::{RequiredToken, bearer};
use crate::holds::{Holds, SettleError};
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, Observer, RequestOutcome, UpstreamOutcome};

/// What this endpoint does, for programs that read it.
const OPENAPI: &str = include_str!("openapi.json");

const DECIDE: &str = "/v1/decide";
const SETTLE: &str = "/v1/settle";
const REFUND: &str = "/v1/refund";
const RECORD: &str = "/v1/record";
const OPENAPI_PATH: &str = "/v1/openapi.json";

/// By what source settlements are counted.
const SOURCE: &str = "api";

/// The most bytes of a body with an id: a hold under some hundred policies.
const MAX_SETTLE_BYTES: usize = 64 * 1024;

/// How many questions of a list look their bearers up at once: as many as a key service is asked about
/// new keys at the same time. More would find no place and be refused as unavailable.
const LOOKUPS_AT_ONCE: usize = 24;

/// Enough for a decision with two standings.
const ANSWER_BYTES: usize = 1024;

/// In a forward-auth request `Authorization` is the client's, so the proxy sends its token here.
const TOKEN: HeaderName = HeaderName::from_static("x-slidegate-token");

/// Decides what callers ask about.
pub(crate) struct Decisions {
    pub(crate) live: Arc<LiveConfig>,
    pub(crate) observer: Observer,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) holds: Arc<Holds>,
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
            SETTLE if *method == Method::POST => decisions.settle(request).await,
            REFUND if *method == Method::POST => decisions.refund(request).await,
            RECORD if *method == Method::POST => decisions.record(request).await,
            DECIDE | SETTLE | REFUND | RECORD => Ok(not_allowed("POST")),
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
            (None, _) if is_for_programs(request.uri().path()) => bearer(request.headers()),
            _ => None,
        };
        token.check(presented, peer).map_err(|error| {
            Box::new(error.respond(
                "expected the token of this service in X-Slidegate-Token, or for /v1/decide, \
                 /v1/settle, /v1/refund and /v1/record in Authorization: Bearer TOKEN",
            ))
        })
    }
}

/// The body of `POST /v1/settle`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct SettleBody {
    id: String,
    units: u32,
}

/// The answer to `POST /v1/settle`.
#[derive(Serialize)]
struct SettleAnswer {
    settled: bool,
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
            let bearer = self.bearer(question).await;
            let answer = self.answer(question, bearer.as_ref(), mode, began).await?;
            // The only question is about a malformed request. In a list such a request is refused
            // like any other, because the rest was decided.
            let is_bad = answer.is_bad_request();
            let status = if is_bad { StatusCode::BAD_REQUEST } else { StatusCode::OK };
            return Ok(json_of(status, &answer));
        }
        let mut answers = Vec::with_capacity(questions.len());
        let mut rest = &*questions;
        while !rest.is_empty() {
            let (next, later) = rest.split_at(self.count_for_look_ups(rest));
            let bearers = self.bearers(next).await;
            let asked: Vec<_> = next.iter().zip(bearers.iter().map(Option::as_ref)).collect();
            self.answer_in_order(&asked, mode, began, &mut answers).await;
            rest = later;
        }
        Ok(json_of(StatusCode::OK, &answers))
    }

    /// Answers questions of a list, those together that share nothing.
    async fn answer_in_order(
        &self,
        asked: &[(&Question, Option<&Bearer>)],
        mode: DecideMode,
        began: Timestamp,
        answers: &mut Vec<Answer>,
    ) {
        let mut rest = asked;
        while !rest.is_empty() {
            let (together, later) = rest.split_at(self.count_independent(rest));
            let decided = together
                .iter()
                .map(|(question, bearer)| self.answer(question, *bearer, mode, began));
            answers.extend(join_all(decided).await.into_iter().map(|answer| {
                // Others may have spent, so that the list has an answer to each question.
                answer.unwrap_or_else(|problem| Answer::bad_request(problem.into()))
            }));
            rest = later;
        }
    }

    /// The bearers of these questions.
    async fn bearers(&self, questions: &[Question]) -> Vec<Option<Bearer>> {
        let mut bearers = Vec::with_capacity(questions.len());
        for some in questions.chunks(LOOKUPS_AT_ONCE) {
            bearers.extend(join_all(some.iter().map(|question| self.bearer(question))).await);
        }
        bearers
    }

    /// Who bears the credentials that a question has, if there are sources that know.
    async fn bearer(&self, question: &Question) -> Option<Bearer> {
        let DescribedRequest { headers, client, .. } = &question.request;
        self.live.settings().bearer_of(&question.facts(), headers, *client).await
    }

    /// How many questions, from the first on, can have their bearers looked up now: no answer to one of
    /// them leaves the address of a later one without room, so that nothing would be looked up for it.
    fn count_for_look_ups(&self, questions: &[Question]) -> usize {
        if !self.live.settings().has_customers() {
            return questions.len();
        }
        count_disjoint(questions, |question| question.touches_by_address(self.live.gate()))
    }

    /// How many questions, from the first on, share no account and nothing else that decides them: no
    /// answer to them depends on the order, so that they are decided together, and a store can share
    /// calls between them.
    fn count_independent(&self, asked: &[(&Question, Option<&Bearer>)]) -> usize {
        count_disjoint(asked, |(question, bearer)| question.touches(*bearer, self.live.gate()))
    }

    /// `POST /v1/settle`
    async fn settle<B>(&self, request: Request<B>) -> Result<Response<Bytes>, Problem>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let SettleBody { id, units } = json_body::read_object(request, MAX_SETTLE_BYTES).await?;
        self.holds.settle(SOURCE, &id, units).await?;
        Ok(json_of(StatusCode::OK, &SettleAnswer { settled: true }))
    }

    /// `POST /v1/refund`
    async fn refund<B>(&self, request: Request<B>) -> Result<Response<Bytes>, Problem>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let RefundBody { id } = json_body::read_object(request, MAX_SETTLE_BYTES).await?;
        self.holds.settle(SOURCE, &id, 0).await?;
        let mut done = Response::new(Bytes::new());
        *done.status_mut() = StatusCode::NO_CONTENT;
        Ok(done)
    }

    /// `POST /v1/record`
    async fn record<B>(&self, request: Request<B>) -> Result<Response<Bytes>, Problem>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let began = self.clock.now();
        let body: RecordBody = json_body::read_object(request, MAX_BYTES).await?;
        let charges = body.charges(&self.live.gate().policies())?;
        let asked = self.clock.now();
        let answer = self.answer_charges(self.live.gate().record_named(&charges).await)?;
        let (status, decision) = (answer.client_status(), answer.decision.as_ref());
        self.observe((began, asked), &Method::POST, RECORD, None, status, decision);
        Ok(json_of(StatusCode::OK, &answer))
    }

    /// Decides one question, and reports it to the observer unless it only peeks.
    async fn answer(
        &self,
        question: &Question,
        bearer: Option<&Bearer>,
        mode: DecideMode,
        began: Timestamp,
    ) -> Result<Answer, Problem> {
        let asked = self.clock.now();
        let (mut answer, method, path, client) =
            match question.charges(&self.live.gate().policies()) {
                Some(charges) => {
                    let outcome = match mode {
                        DecideMode::Spend => self.live.gate().decide_named(&charges).await,
                        DecideMode::Peek => self.live.gate().peek_named(&charges).await,
                    };
                    (self.answer_charges(outcome)?, &Method::POST, DECIDE, None)
                }
                None => {
                    let answer = self.decide_request(question, bearer, mode).await;
                    let DescribedRequest { method, path, client, .. } = &question.request;
                    (answer, method, path.as_str(), *client)
                }
            };
        if mode == DecideMode::Spend {
            let decision = answer.decision.as_ref();
            let times = (began, asked);
            self.observe(times, method, path, client, answer.client_status(), decision);
            if let Some(decision) = decision.filter(|_| question.wants_id()) {
                let policies = self.live.gate().policies();
                let is_open = |held: &HeldCharge| question.is_open(held, &policies);
                answer.id = self.holds.id_of(decision, is_open);
            }
        }
        Ok(answer)
    }

    async fn decide_request(
        &self,
        question: &Question,
        bearer: Option<&Bearer>,
        mode: DecideMode,
    ) -> Answer {
        let (gate, settings) = (self.live.gate(), self.live.settings());
        let facts = question.facts();
        if let Err(error) = gate.check(&facts) {
            return Answer::bad_request(bad_request(&error));
        }
        let facts = bearer.map_or(facts, |bearer| facts.bearer(bearer));
        let outcome = match mode {
            DecideMode::Spend => gate.decide(&facts).await,
            DecideMode::Peek => gate.peek(&facts).await,
        };
        Answer::new(outcome, &settings.limiter.responder, &question.request.headers)
    }

    /// The answer to named charges.
    fn answer_charges(&self, outcome: Result<Decision, AccountError>) -> Result<Answer, Problem> {
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
        let (response, decision) = match settings.decide(original.head()).await {
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
        self.observe(times, &original.method, &original.path, client, status, decision);
        Ok(response)
    }

    /// Reports a decided request to the observer, with the times at which it came and the gate was asked.
    fn observe(
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

/// How many of the items, from the first on, touch nothing in common. At least one.
fn count_disjoint<T, I: Eq + Hash>(items: &[T], touches: impl Fn(&T) -> Option<Vec<I>>) -> usize {
    let mut seen = HashSet::new();
    let is_apart = |item: &&T| {
        // An item may touch the same thing several times.
        let touched: Option<HashSet<I>> = touches(item).map(HashSet::from_iter);
        touched.is_some_and(|touched| touched.into_iter().all(|one| seen.insert(one)))
    };
    items.iter().take_while(is_apart).count().max(1)
}

impl From<SettleError> for Problem {
    fn from(error: SettleError) -> Self {
        let status = match &error {
            SettleError::Unknown | SettleError::Elsewhere => StatusCode::NOT_FOUND,
            SettleError::Repeated => StatusCode::CONFLICT,
            SettleError::NoKey | SettleError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error)
    }
}

/// Whether `Authorization` in a request for this path is the caller's, not a client's.
fn is_for_programs(path: &str) -> bool {
    matches!(path, DECIDE | SETTLE | REFUND | RECORD)
}

fn not_found() -> Problem {
    let detail = "there is /v1/decide, /v1/settle, /v1/refund, /v1/record, /v1/auth, \
                  /v1/auth/nginx, /v1/auth/envoy and /v1/openapi.json";
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
