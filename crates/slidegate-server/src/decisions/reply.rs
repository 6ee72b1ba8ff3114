//! A decision as JSON.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use slidegate::{Decision, PolicyStanding, Standing, StoreError, Verdict};
use slidegate_tower::{Answers, Reason, Refused};

/// Everything that there is to say about a decision.
#[derive(Serialize)]
struct Reply<'a> {
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    degraded: bool,
    #[serde(serialize_with = "standings")]
    standings: &'a [PolicyStanding],
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(serialize_with = "lines")]
    headers: &'a HeaderMap,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Cow<'a, str>>,
}

/// Where one quota stands.
#[derive(Serialize)]
struct StandingReply<'a> {
    policy: &'a str,
    identity: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    window_ms: u64,
    units: u32,
    remaining: u32,
    reset_after_ms: u64,
    retry_after_ms: u64,
    violated: bool,
    shadow: bool,
}

/// Writes the reply to a question about a request with these headers, and gives back the response
/// that its client is to get in the case of a refusal.
pub(super) fn write(
    out: &mut Vec<u8>,
    outcome: &Result<Decision, StoreError>,
    answers: &Answers,
    request: &HeaderMap,
) -> Option<Response<Bytes>> {
    let refusal = answers.refuse(outcome, request);
    let mut allowed = Response::new(());
    if let (Ok(decision), None) = (outcome, &refusal) {
        answers.annotate(decision, &mut allowed);
    }
    let decision = outcome.as_ref().ok();
    let refused = Refused::of(outcome);
    let reply = Reply {
        verdict: verdict(outcome),
        reason: refused.map(|refused| reason(refused.reason())),
        retry_after_ms: retry_after(outcome, refused.as_ref()).map(ceil_ms),
        degraded: decision.is_none_or(Decision::is_degraded),
        standings: decision.map_or(&[], Decision::policies),
        status: refusal.as_ref().map(|response| response.status().as_u16()),
        headers: refusal.as_ref().map_or(allowed.headers(), Response::headers),
        body: refusal.as_ref().map(|response| String::from_utf8_lossy(response.body())),
    };
    serde_json::to_writer(out, &reply).expect("strings and numbers can be JSON");
    refusal
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
        Reason::Blocked => "blocked",
        Reason::StoreUnavailable => "store-unavailable",
        _ => "quota-exceeded",
    }
}

/// To the millisecond, unlike the header, which also waits for the windows that it tells of.
fn retry_after(
    outcome: &Result<Decision, StoreError>,
    refused: Option<&Refused<'_>>,
) -> Option<Duration> {
    match outcome {
        Ok(decision) => decision.retry_after(),
        Err(_) => refused?.retry_after(),
    }
}

/// Rounded up: who comes back by it is not early.
fn ceil_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn standings<S: Serializer>(
    policies: &&[PolicyStanding],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(policies.iter().flat_map(|policy| {
        policy.standings().iter().map(move |standing| StandingReply::of(policy, standing))
    }))
}

impl<'a> StandingReply<'a> {
    fn of(policy: &'a PolicyStanding, standing: &Standing) -> Self {
        Self {
            policy: policy.policy(),
            identity: policy.identity().as_str(),
            plan: policy.plan().map(|plan| &**plan.name()),
            window_ms: ceil_ms(standing.quota().window()),
            units: standing.quota().units().get(),
            remaining: standing.remaining(),
            reset_after_ms: ceil_ms(standing.reset_after()),
            retry_after_ms: ceil_ms(standing.retry_after()),
            violated: !standing.retry_after().is_zero(),
            shadow: policy.is_shadow(),
        }
    }
}

/// The headers, each with one value: none is written twice for one decision.
fn lines<S: Serializer>(headers: &&HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(headers.len()))?;
    for (name, value) in *headers {
        map.serialize_entry(name.as_str(), &String::from_utf8_lossy(value.as_bytes()))?;
    }
    map.end()
}
