//! A decision as JSON.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use slidegate::{Decision, PolicyStanding, Standing, StoreError, Verdict};
use slidegate_tower::{Answers, Reason, Refused};

use super::object::Object;

/// Room for the headers that tell where a client stands.
const USUAL_HEADERS: usize = 8;

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
        *allowed.headers_mut() = HeaderMap::with_capacity(USUAL_HEADERS);
        answers.annotate(decision, &mut allowed);
    }
    let (decision, refused) = (outcome.as_ref().ok(), Refused::of(outcome));
    let mut reply = Object::begin(out);
    reply.text("verdict", verdict(outcome));
    if let Some(refused) = &refused {
        reply.text("reason", reason(refused.reason()));
    }
    if let Some(after) = retry_after(outcome, refused.as_ref()) {
        reply.number("retry_after_ms", ceil_ms(after));
    }
    reply.flag("degraded", decision.is_none_or(Decision::is_degraded));
    reply.objects("standings", standings(decision), write_standing);
    if let Some(response) = &refusal {
        reply.number("status", response.status().as_u16().into());
    }
    let headers = refusal.as_ref().map_or(allowed.headers(), Response::headers);
    reply.object("headers", |object| write_headers(object, headers));
    if let Some(response) = &refusal {
        reply.text("body", &String::from_utf8_lossy(response.body()));
    }
    reply.end();
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
    let (whole, rest) = (time.as_secs(), time.subsec_nanos());
    whole.saturating_mul(1000).saturating_add(rest.div_ceil(1_000_000).into())
}

/// Every quota, with its policy.
fn standings(decision: Option<&Decision>) -> impl Iterator<Item = (&PolicyStanding, &Standing)> {
    let policies = decision.map_or(&[][..], Decision::policies).iter();
    policies.flat_map(|policy| policy.standings().iter().map(move |standing| (policy, standing)))
}

/// Where one quota stands.
fn write_standing(object: &mut Object<'_>, (policy, standing): (&PolicyStanding, &Standing)) {
    object.text("policy", policy.policy());
    object.text("identity", policy.identity().as_str());
    if let Some(plan) = policy.plan() {
        object.text("plan", plan.name());
    }
    object.number("window_ms", ceil_ms(standing.quota().window()));
    object.number("units", standing.quota().units().get().into());
    object.number("remaining", standing.remaining().into());
    object.number("reset_after_ms", ceil_ms(standing.reset_after()));
    object.number("retry_after_ms", ceil_ms(standing.retry_after()));
    object.flag("violated", !standing.retry_after().is_zero());
    object.flag("shadow", policy.is_shadow());
}

/// The headers, each with one value: none is written twice for one decision.
fn write_headers(object: &mut Object<'_>, headers: &HeaderMap) {
    for (name, value) in headers {
        object.text(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
    }
}
