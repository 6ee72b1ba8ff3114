//! Where a caller stands: the path at which the gateway itself answers, for the caller's own identity.

mod accept;
mod answer;
mod page;

use std::num::NonZeroU32;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use slidegate::{Bearer, Facts, Gate, MemoryStore, Policies, Policy, Store};
use slidegate_tower::{ProblemDetails, RequestHead, RequestLimiter, bad_request};

use self::accept::prefers_html;
use self::answer::StandingAnswer;
use crate::config::StandingConfig;

/// Tells callers where they stand. It spends nothing of their quotas, but has one for each address.
#[derive(Debug)]
pub(crate) struct StandingEndpoint {
    pub(crate) config: StandingConfig,
    guard: Gate,
}

/// The name under which the guard refuses.
const GUARD: &str = "standing";
/// Addresses that the guard counts at a time. Each takes a few hundred bytes; when there are more,
/// those that find no room share accounts.
const GUARDED_ADDRESSES: usize = 100_000;
/// The most units that can be asked about.
const MAX_UNITS: u32 = 1 << 31;

impl StandingEndpoint {
    pub(crate) fn new(config: StandingConfig) -> Self {
        // Not in headers: they tell where a caller stands under the policies.
        let quotas = config.quotas.as_slice().iter().copied();
        let policy = quotas.fold(Policy::new(GUARD).not_in_headers(), Policy::quota);
        let policies = Policies::builder().policy(policy).build_silently();
        let policies =
            policies.expect("quotas were checked, and a policy by address needs no more");
        let store = MemoryStore::builder().capacity(GUARDED_ADDRESSES).build();
        Self { config, guard: Gate::new(policies, store) }
    }

    /// Whether it answers requests for this target. Other spellings of the path go upstream.
    pub(crate) fn is_for(&self, target: &Uri) -> bool {
        target.path() == self.config.path
    }

    /// Answers a request. Who bears its credentials is found only if the guard has room.
    pub(crate) async fn answer<B, S: Store>(
        &self,
        limiter: &RequestLimiter<S>,
        request: &Request<B>,
        head: RequestHead<'_>,
        bearer: impl Future<Output = Option<Bearer>>,
    ) -> Response<Bytes> {
        let facts = head.facts(head.resolve(&limiter.client_address));
        let answer = self.respond(limiter, request, &facts, bearer).await;
        let mut response = answer.unwrap_or_else(|refusal| *refusal);
        if request.method() == Method::HEAD {
            let length = response.body().len();
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
            *response.body_mut() = Bytes::new();
        }
        response
    }

    async fn respond<B, S: Store>(
        &self,
        limiter: &RequestLimiter<S>,
        request: &Request<B>,
        facts: &Facts<'_>,
        bearer: impl Future<Output = Option<Bearer>>,
    ) -> Result<Response<Bytes>, Box<Response<Bytes>>> {
        let headers = request.headers();
        if let Some(refusal) = limiter.responder.refuse(&self.guard.decide_now(facts), headers) {
            return Err(refusal.into());
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return Err(method_not_allowed().into());
        }
        let units = units(request.uri().query().unwrap_or_default())?;
        if let Err(error) = limiter.gate().check(facts) {
            return Err(bad_request(&error).into());
        }
        let bearer = bearer.await;
        let facts = &bearer.as_ref().map_or(*facts, |bearer| facts.bearer(bearer));
        let standing = match limiter.gate().standing(facts).await {
            Ok(standing) => standing,
            Err(error) => {
                let refusal = limiter.responder.refuse(&Err(error), headers);
                return Err(refusal.expect("what cannot be read is refused").into());
            }
        };
        let (policies, now) = (limiter.gate().policies(), limiter.gate().now());
        match StandingAnswer::new(standing, &policies, now, units) {
            Ok(answer) if prefers_html(headers) => Ok(html(page::render(&answer))),
            Ok(answer) => Ok(json(&answer)),
            Err(decision) => {
                let refusal = limiter.responder.refuse(&Ok(*decision), headers);
                Err(refusal.expect("a caller that is refused is refused here too").into())
            }
        }
    }
}

/// The units of a query. Other parameters say nothing here: a caller asks about itself alone.
fn units(query: &str) -> Result<Option<NonZeroU32>, Box<Response<Bytes>>> {
    let parameters: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
    let mut given = parameters.iter().filter(|(name, _)| name == "units").map(|(_, text)| text);
    let expected = |instead: &str| {
        let detail = format!("units: expected a whole number from 1 to {MAX_UNITS}, not {instead}");
        Box::new(ProblemDetails::new(StatusCode::BAD_REQUEST, detail).response())
    };
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(expected("several")),
        (Some(text), None) => {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let units = text.parse().ok().filter(|units: &NonZeroU32| units.get() <= MAX_UNITS);
            let shown: String = text.chars().take(32).collect();
            units.filter(|_| is_number).map(Some).ok_or_else(|| expected(&format!("{shown:?}")))
        }
    }
}

fn method_not_allowed() -> Response<Bytes> {
    let detail = "expected GET or HEAD: this path tells where you stand, and changes nothing";
    let mut response = ProblemDetails::new(StatusCode::METHOD_NOT_ALLOWED, detail).response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// The answer depends on the request's credentials, so no cache may keep it.
const HEADERS: [(HeaderName, &str); 3] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::VARY, "accept"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

const PAGE_HEADERS: [(HeaderName, &str); 3] = [
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

fn json(answer: &StandingAnswer) -> Response<Bytes> {
    let mut body = serde_json::to_vec(answer).expect("strings and numbers can be JSON");
    body.push(b'\n');
    response("application/json", body.into(), &HEADERS)
}

fn html(page: String) -> Response<Bytes> {
    let mut response = response("text/html; charset=utf-8", page.into(), &HEADERS);
    add(response.headers_mut(), &PAGE_HEADERS);
    let policy = page::CONTENT_SECURITY_POLICY.clone();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn response(
    content_type: &'static str,
    body: Bytes,
    headers: &[(HeaderName, &'static str)],
) -> Response<Bytes> {
    let mut response = Response::new(body);
    add(response.headers_mut(), &[(header::CONTENT_TYPE, content_type)]);
    add(response.headers_mut(), headers);
    response
}

fn add(headers: &mut HeaderMap, fields: &[(HeaderName, &'static str)]) {
    for (name, value) in fields {
        headers.insert(name.clone(), HeaderValue::from_static(value));
    }
}
