//! A decision as JSON.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use slidegate::{Decision, PolicyStanding, Standing, StoreError, Verdict};
use slidegate_tower::{Reason, Refused, Responder};

use super::writer::JsonWriter;

/// Writes the reply to a question about a request with these headers, and gives back the response
/// that its client is to get in the case of a refusal.
pub(super) fn write(
    out: &mut Vec<u8>,
    outcome: &Result<Decision, StoreError>,
    answers: &Responder,
    request: &HeaderMap,
) -> Option<Response<Bytes>> {
    let mut out = JsonWriter(out);
    let decision = outcome.as_ref().ok();
    out.put(r#"{"verdict":""#);
    out.put(verdict(outcome));
    out.put("\"");
    let refused = Refused::of(outcome);
    if let Some(refused) = &refused {
        out.put(r#","reason":""#);
        out.put(reason(refused.reason()));
        out.put("\"");
    }
    if let Some(after) = retry_after(outcome, refused.as_ref()) {
        out.put(r#","retry_after_ms":"#);
        out.number(ceil_ms(after));
    }
    out.put(r#","degraded":"#);
    out.flag(decision.is_none_or(Decision::is_degraded));
    out.put(r#","standings":["#);
    write_standings(&mut out, decision.map_or(&[], Decision::policies));
    out.put("]");
    let refusal = answers.refuse(outcome, request);
    match (&refusal, decision) {
        (Some(refusal), _) => write_refusal(&mut out, refusal),
        (None, decision) => {
            let mut allowed = Response::new(());
            if let Some(decision) = decision {
                answers.annotate(decision, &mut allowed);
            }
            write_headers(&mut out, allowed.headers());
        }
    }
    out.put("}");
    refusal
}

/// Writes the reply to a question about a request that is malformed, whose client is to get this
/// response.
pub(super) fn write_bad_request(out: &mut Vec<u8>, response: &Response<Bytes>) {
    let mut out = JsonWriter(out);
    out.put(r#"{"verdict":"block","reason":"bad-request","degraded":false,"standings":[]"#);
    write_refusal(&mut out, response);
    out.put("}");
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
        Reason::StoreUnavailable => "store-unavailable",
        _ => "quota-exceeded",
    }
}

/// To the millisecond, unlike the header, which also covers the windows that it shows.
fn retry_after(
    outcome: &Result<Decision, StoreError>,
    refused: Option<&Refused<'_>>,
) -> Option<Duration> {
    match outcome {
        Ok(decision) => decision.retry_after(),
        Err(_) => refused?.retry_after(),
    }
}

/// Rounded up, so that a retry is never early.
fn ceil_ms(time: Duration) -> u64 {
    let (whole, rest) = (time.as_secs(), time.subsec_nanos());
    whole.saturating_mul(1000).saturating_add(rest.div_ceil(1_000_000).into())
}

/// Where every quota stands, with its policy.
fn write_standings(out: &mut JsonWriter<'_>, policies: &[PolicyStanding]) {
    let mut is_first = true;
    for policy in policies {
        for standing in policy.standings() {
            if !is_first {
                out.put(",");
            }
            is_first = false;
            write_standing(out, policy, standing);
        }
    }
}

fn write_standing(out: &mut JsonWriter<'_>, policy: &PolicyStanding, standing: &Standing) {
    out.put(r#"{"policy":""#);
    // A name needs no escapes.
    out.put(policy.policy());
    out.put(r#"","identity":"#);
    out.text(policy.identity().as_str());
    if let Some(plan) = policy.plan() {
        out.put(r#","plan":""#);
        out.put(plan.name());
        out.put("\"");
    }
    if policy.is_plan_unknown() {
        out.put(r#","plan_unknown":true"#);
    }
    out.put(r#","window_ms":"#);
    out.number(ceil_ms(standing.quota().window()));
    out.put(r#","units":"#);
    out.number(standing.quota().units().get().into());
    out.put(r#","remaining":"#);
    out.number(standing.remaining().into());
    out.put(r#","reset_after_ms":"#);
    out.number(ceil_ms(standing.reset_after().min(standing.quota().longest_reset())));
    out.put(r#","retry_after_ms":"#);
    out.number(ceil_ms(standing.retry_after()));
    out.put(r#","violated":"#);
    out.flag(standing.is_violated());
    out.put(r#","shadow":"#);
    out.flag(policy.is_shadow());
    out.put("}");
}

/// The response that the client is to get.
fn write_refusal(out: &mut JsonWriter<'_>, refusal: &Response<Bytes>) {
    out.put(r#","status":"#);
    out.number(refusal.status().as_u16().into());
    write_headers(out, refusal.headers());
    out.put(r#","body":"#);
    out.text(&String::from_utf8_lossy(refusal.body()));
}

fn write_headers(out: &mut JsonWriter<'_>, headers: &HeaderMap) {
    out.put(r#","headers":{"#);
    for (place, (name, value)) in headers.iter().enumerate() {
        out.put(if place == 0 { "\"" } else { ",\"" });
        out.put(name.as_str());
        out.put("\":");
        out.text(&String::from_utf8_lossy(value.as_bytes()));
    }
    out.put("}");
}
