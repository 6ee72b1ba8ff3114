//! The endpoint for programs that ask and do the rest themselves: `POST /v1/decide` for any
//! program, `/v1/auth` for proxies.

pub(crate) mod ask;
mod auth;
pub(crate) mod body;
mod charges;
pub(crate) mod identity;
pub(crate) mod json;
mod mode;
mod quick;
mod reply;
mod request;
#[cfg(test)]
mod tests;
pub(crate) mod validation;
mod writer;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use slidegate::limit::SystemClock;
use slidegate::policy::{NamedChargeError, without_query};
use slidegate::{Clock, Decision, NamedCharge, Store, StoreError, Timestamp};
use slidegate_tower::{LimiterOutcome, bad_request};

use self::ask::{Ask, Asks};
use self::auth::{AuthProtocol, ENVOY_PREFIX, Original};
use self::charges::ChargeAsk;
use self::mode::DecideMode;
use self::validation::{ValidationErrors, refuse};
use crate::config::Secret;
use crate::listener::{Accepted, Handler, RequestBody};
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, RequestOutcome, UpstreamOutcome};
use crate::token::{Token, bearer};

/// What this endpoint does, for programs that read it.
const OPENAPI: &str = include_str!("openapi.json");

const DECIDE: &str = "/v1/decide";
const OPENAPI_PATH: &str = "/v1/openapi.json";
/// Enough for a decision with two standings, so that nearly none has to grow it.
const REPLY_BYTES: usize = 1024;

type Reply = Response<Full<Bytes>>;

/// Answers programs that ask.
///
/// It must not be public: its callers are trusted, with the token if there is one.
#[derive(Debug)]
pub(crate) struct Decisions<S, O> {
    live: Arc<LiveConfig<S>>,
    observe: O,
    clock: Arc<SystemClock>,
    /// What callers have to present, if anything.
    token: Option<Token>,
}

impl<S, O: Clone> Clone for Decisions<S, O> {
    fn clone(&self) -> Self {
        let (live, clock) = (self.live.clone(), self.clock.clone());
        Self { live, observe: self.observe.clone(), clock, token: self.token.clone() }
    }
}

impl<S, O> Handler for Decisions<S, O>
where
    S: Store,
    O: Fn(&RequestOutcome<'_>) + Clone + Send + Sync + 'static,
{
    type Body = Full<Bytes>;

    async fn answer(&mut self, accepted: Accepted, request: Request<RequestBody>) -> Reply {
        self.respond(accepted.peer, request).await
    }
}

impl<S, O> Decisions<S, O>
where
    S: Store,
    O: Fn(&RequestOutcome<'_>) + Send + Sync,
{
    /// Reports every decided request to the observer, timed by this clock.
    pub(crate) fn new(live: Arc<LiveConfig<S>>, observe: O, clock: Arc<SystemClock>) -> Self {
        Self { live, observe, clock, token: None }
    }

    /// Asks callers for a token, if there is one.
    pub(crate) fn with_token(self, token: Option<&Secret>) -> Self {
        Self { token: token.map(Token::new), ..self }
    }

    async fn respond<B>(&self, peer: Option<IpAddr>, request: Request<B>) -> Reply
    where
        B: Body<Data = Bytes>,
    {
        // The head stays here: it is large, and would be moved at every step.
        let (head, body) = request.into_parts();
        if self.token.as_ref().is_some_and(|token| !presents(&head, token)) {
            return unauthorized();
        }
        match head.uri.path() {
            DECIDE => self.decide(&head, body).await,
            "/v1/auth" => self.auth(AuthProtocol::Forwarding, peer, &head).await,
            "/v1/auth/nginx" => self.auth(AuthProtocol::Nginx, peer, &head).await,
            OPENAPI_PATH => openapi(&head.method),
            path if is_envoys(path) => self.auth(AuthProtocol::Envoy, peer, &head).await,
            _ => refuse(
                StatusCode::NOT_FOUND,
                "there is /v1/decide, /v1/auth, /v1/auth/nginx, \
                                                /v1/auth/envoy and /v1/openapi.json",
            ),
        }
    }

    async fn decide<B>(&self, head: &Parts, body: B) -> Reply
    where
        B: Body<Data = Bytes>,
    {
        if head.method != Method::POST {
            return not_allowed("POST");
        }
        let intent = match DecideMode::of(head.uri.query()) {
            Ok(intent) => intent,
            Err(problems) => return problems.response(),
        };
        let body = match body::read(&head.headers, body).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let answered = async {
            let asks = Asks::parse(&body, || self.live.gate().policies())?;
            self.reply(&asks, intent).await
        };
        match answered.await {
            Ok((status, json)) => {
                let mut response = json_reply(json);
                *response.status_mut() = status;
                response
            }
            Err(problems) => problems.response(),
        }
    }

    /// The reply, and its status: 400 if the only question is about a request that is malformed. In
    /// a list such a request is refused like any other, because the rest was decided.
    async fn reply(
        &self,
        asks: &Asks<'_>,
        intent: DecideMode,
    ) -> Result<(StatusCode, Vec<u8>), ValidationErrors> {
        let mut out = Vec::with_capacity(REPLY_BYTES);
        let mut status = StatusCode::OK;
        match asks {
            Asks::One(ask) => status = self.reply_to(ask, intent, &mut out).await?,
            Asks::Many(asks) => {
                out.push(b'[');
                for (i, ask) in asks.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    self.reply_to(ask, intent, &mut out).await?;
                }
                out.push(b']');
            }
        }
        Ok((status, out))
    }

    async fn reply_to(
        &self,
        ask: &Ask<'_>,
        intent: DecideMode,
        out: &mut Vec<u8>,
    ) -> Result<StatusCode, ValidationErrors> {
        let (gate, asked_at) = (self.live.gate(), self.clock.now());
        match ask {
            Ask::Request(request) => {
                let other_paths = self.live.settings().paths.readings(&request.path);
                let facts = request.facts(&other_paths);
                if let Err(error) = gate.check(&facts) {
                    let response = bad_request(&error);
                    reply::write_bad_request(out, &response);
                    self.record_outcome(ask, intent, asked_at, response.status(), None);
                    return Ok(response.status());
                }
                let outcome = match intent {
                    DecideMode::Spend => gate.decide(&facts).await,
                    DecideMode::Peek => gate.peek(&facts).await,
                };
                self.write_reply(ask, intent, asked_at, &outcome, out);
            }
            Ask::Charges(charges) => {
                let outcome = match intent {
                    DecideMode::Spend => gate.decide_named(&named(charges)).await,
                    DecideMode::Peek => gate.peek_named(&named(charges)).await,
                };
                let outcome = match outcome {
                    Ok(decision) => Ok(decision),
                    Err(NamedChargeError::Store(error)) => Err(error),
                    // The policies have changed since the question was read.
                    Err(error) => return Err(ValidationErrors::one(error)),
                };
                self.write_reply(ask, intent, asked_at, &outcome, out);
            }
        }
        Ok(StatusCode::OK)
    }

    /// Writes the reply to a question, and records it.
    fn write_reply(
        &self,
        ask: &Ask<'_>,
        intent: DecideMode,
        asked_at: Timestamp,
        outcome: &Result<Decision, StoreError>,
        out: &mut Vec<u8>,
    ) {
        let nothing = HeaderMap::new();
        let headers = match ask {
            Ask::Request(request) => &request.headers,
            Ask::Charges(_) => &nothing,
        };
        let refusal = reply::write(out, outcome, &self.live.settings().answers, headers);
        let status = refusal.map_or(StatusCode::OK, |response| response.status());
        self.record_outcome(ask, intent, asked_at, status, outcome.as_ref().ok());
    }

    /// Records an answered question, unless it only peeked.
    fn record_outcome(
        &self,
        ask: &Ask<'_>,
        intent: DecideMode,
        asked_at: Timestamp,
        status: StatusCode,
        decision: Option<&Decision>,
    ) {
        if intent != DecideMode::Spend {
            return;
        }
        let (method, path, client) = match ask {
            Ask::Request(request) => (&request.method, &*request.path, request.client),
            Ask::Charges(_) => (&Method::POST, DECIDE, None),
        };
        let now = self.clock.now();
        (self.observe)(&RequestOutcome {
            listener: ListenerKind::Decisions,
            method,
            path: without_query(path),
            client,
            status,
            decision,
            upstream: UpstreamOutcome::NotCalled,
            began: asked_at,
            decided: (status != StatusCode::BAD_REQUEST).then_some(now),
            ended: now,
        });
    }

    async fn auth(&self, proxy: AuthProtocol, peer: Option<IpAddr>, head: &Parts) -> Reply {
        let asked_at = self.clock.now();
        let original = Original::of(proxy, head, peer, &self.live.settings().client_address);
        let original = match original {
            Ok(original) => original,
            Err(problems) => return problems.response(),
        };
        let settings = Arc::clone(&self.live.settings());
        let response = match settings.limiter.decide(original.head()).await {
            LimiterOutcome::Pass(decision) => {
                let mut allowed = Response::new(Bytes::new());
                settings.limiter.annotate(decision, &mut allowed);
                allowed
            }
            LimiterOutcome::Refuse(refusal) => auth::refuse(proxy, refusal),
        };
        let now = self.clock.now();
        (self.observe)(&RequestOutcome {
            listener: ListenerKind::Decisions,
            method: &original.method,
            path: without_query(&original.path),
            client: original.client.client,
            status: response.status(),
            decision: response.extensions().get(),
            upstream: UpstreamOutcome::NotCalled,
            began: asked_at,
            decided: Some(now),
            ended: now,
        });
        response.map(Full::new)
    }
}

/// In a forward-auth request `Authorization` is the client's, so the proxy has a header of its own.
const TOKEN: HeaderName = HeaderName::from_static("x-slidegate-token");

/// Whether a request presents the token, or needs none. Of two tokens neither counts: a client may
/// have sent one of them.
fn presents(head: &Parts, token: &Token) -> bool {
    let path = head.uri.path();
    if path == OPENAPI_PATH {
        return true;
    }
    let mut own = head.headers.get_all(TOKEN).iter();
    let presented = match (own.next(), own.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        (None, _) if path == DECIDE => bearer(&head.headers),
        _ => None,
    };
    presented.is_some_and(|presented| token.is(presented))
}

fn unauthorized() -> Reply {
    let detail = "expected the token of this service in X-Slidegate-Token, or for /v1/decide in \
                  Authorization: Bearer TOKEN";
    let mut response = refuse(StatusCode::UNAUTHORIZED, detail);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn named<'a>(charges: &'a [ChargeAsk<'_>]) -> Vec<NamedCharge<'a>> {
    charges.iter().map(ChargeAsk::named).collect()
}

fn is_envoys(path: &str) -> bool {
    path.strip_prefix(ENVOY_PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn openapi(method: &Method) -> Reply {
    match *method {
        Method::GET | Method::HEAD => json_reply(OPENAPI),
        _ => not_allowed("GET, HEAD"),
    }
}

fn json_reply(body: impl Into<Bytes>) -> Reply {
    let mut response = Response::new(Full::new(body.into()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn not_allowed(methods: &'static str) -> Reply {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, &format!("expected {methods}"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}
