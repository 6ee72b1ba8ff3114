//! The answer to a question, as JSON.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use serde::{Serialize, Serializer};
use slidegate::{Decision, PolicyStanding, Standing, StoreError, Verdict};
use slidegate_tower::{Reason, Refused, Responder, StandingFields};

use crate::calendar::ceil_ms;

/// The answer to a question.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    verdict: &'static str,
    /// By which it can be settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    degraded: bool,
    #[serde(rename = "standings", serialize_with = "standings")]
    pub(super) decision: Option<Decision>,
    /// The status of the client's response, if the request is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    headers: AnswerHeaders,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text")]
    body: Option<Bytes>,
}

/// The headers of the client's response.
#[derive(Debug)]
struct AnswerHeaders {
    refusal: HeaderMap,
    standing: StandingFields,
}

const BAD_REQUEST: &str = "bad-request";

impl Answer {
    /// The answer to a question about a request with these headers.
    pub(crate) fn new(
        outcome: Result<Decision, StoreError>,
        responder: &Responder,
        request: &HeaderMap,
    ) -> Self {
        let refused = Refused::of(&outcome);
        let reason = refused.as_ref().map(|refused| reason(refused.reason()));
        // To the millisecond, unlike the header, which also covers the windows that it shows.
        let retry_after = match &outcome {
            Ok(decision) => decision.retry_after(),
            Err(_) => refused.as_ref().and_then(Refused::retry_after),
        };
        let (refusal, standing) = match responder.refuse_apart(&outcome, request) {
            Some((refusal, standing)) => (Some(refusal), standing),
            None => (
                None,
                outcome.as_ref().map(|decision| responder.fields(decision)).unwrap_or_default(),
            ),
        };
        let status = refusal.as_ref().map(|refusal| refusal.status().as_u16());
        let (head, body) = refusal.map(Response::into_parts).unzip();
        let refusal = head.map(|head| head.headers).unwrap_or_default();
        Self {
            verdict: verdict(&outcome),
            id: None,
            reason,
            retry_after_ms: retry_after.map(ceil_ms),
            degraded: outcome.as_ref().map_or(true, Decision::is_degraded),
            decision: outcome.ok(),
            status,
            headers: AnswerHeaders { refusal, standing },
            body,
        }
    }

    pub(super) fn is_bad_request(&self) -> bool {
        self.reason == Some(BAD_REQUEST)
    }

    /// The status that the client is to get, as far as it is known here.
    pub(super) fn client_status(&self) -> StatusCode {
        let status = self.status.map(StatusCode::from_u16);
        status.and_then(Result::ok).unwrap_or(StatusCode::OK)
    }

    /// The answer to a question about a malformed request, whose client is to get this response.
    pub(crate) fn bad_request(response: Response<Bytes>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            verdict: "block",
            id: None,
            reason: Some(BAD_REQUEST),
            retry_after_ms: None,
            degraded: false,
            decision: None,
            status: Some(head.status.as_u16()),
            headers: AnswerHeaders { refusal: head.headers, standing: StandingFields::default() },
            body: Some(body),
        }
    }
}

fn verdict(outcome: &Result<Decision, StoreError>) -> &'static str {
    match outcome.as_ref().map(Decision::verdict) {
        Ok(Verdict::Allow) => "allow",
        Ok(Verdict::Block(_)) => "block",
        Ok(_) => "deny",
        Err(_) => "unavailable",
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::CostAboveUnits => "cost-above-units",
        Reason::Banned => "banned",
        Reason::Suspended => "suspended",
        Reason::Blocked => "blocked",
        Reason::UnknownKey => "unknown-key",
        Reason::InvalidToken => "invalid-token",
        Reason::UncheckedCredentials => "unchecked-credentials",
        Reason::KeysUnavailable => "keys-unavailable",
        Reason::StoreUnavailable => "store-unavailable",
        _ => "quota-exceeded",
    }
}

/// Where one quota stands.
#[derive(Serialize)]
struct QuotaStanding<'a> {
    policy: &'a str,
    identity: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    plan_unknown: bool,
    window_ms: u64,
    units: u32,
    remaining: u32,
    reset_after_ms: u64,
    retry_after_ms: u64,
    violated: bool,
    shadow: bool,
}

impl<'a> QuotaStanding<'a> {
    fn new(policy: &'a PolicyStanding, standing: &'a Standing) -> Self {
        let quota = standing.quota();
        Self {
            policy: &policy.policy,
            identity: policy.identity.as_str(),
            plan: policy.plan.as_deref().map(|plan| &*plan.name),
            plan_unknown: policy.plan_unknown,
            window_ms: ceil_ms(quota.window()),
            units: quota.units().get(),
            remaining: standing.remaining(),
            reset_after_ms: ceil_ms(standing.reset_after().min(quota.longest_reset())),
            retry_after_ms: ceil_ms(standing.retry_after()),
            violated: standing.is_violated(),
            shadow: policy.shadow,
        }
    }
}

fn standings<S: Serializer>(decision: &Option<Decision>, json: S) -> Result<S::Ok, S::Error> {
    let policies = decision.as_ref().map_or(&[][..], Decision::policies);
    json.collect_seq(policies.iter().flat_map(|policy| {
        policy.standings.iter().map(move |standing| QuotaStanding::new(policy, standing))
    }))
}

impl Serialize for AnswerHeaders {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let refusal = self.refusal.iter().map(|(name, line)| (name, as_text(line.as_bytes())));
        let standing = self.standing.iter().map(|(name, value)| (name, Cow::Borrowed(value)));
        json.collect_map(refusal.chain(standing).map(|(name, value)| (name.as_str(), value)))
    }
}

fn text<S: Serializer>(body: &Option<Bytes>, json: S) -> Result<S::Ok, S::Error> {
    json.serialize_str(&as_text(body.as_deref().unwrap_or_default()))
}

/// Checking whether it is UTF-8 takes a tenth of looking for what is not.
fn as_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
