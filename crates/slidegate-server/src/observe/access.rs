//! The access log: a line for every request, if the operator wants it.

use super::denial_log::shortened;
use super::verdict::VerdictLabel;
use super::{RequestOutcome, UpstreamError, rounded};

/// Writes the line. Neither headers nor the query are in it: they may have secrets.
pub(super) fn write(answered: &RequestOutcome<'_>, verdict: VerdictLabel) {
    let tightest = answered.decision.and_then(|decision| decision.tightest());
    tracing::info!(
        target: "slidegate::access",
        listener = answered.listener.as_str(),
        method = answered.method.as_str(),
        path = shortened(answered.path),
        status = answered.status.as_u16(),
        client = answered.client.map(tracing::field::display),
        duration_ms = rounded(answered.took().as_secs_f64() * 1000.0),
        verdict = verdict.as_str(),
        policy = tightest.map(|(policy, _)| &**policy.policy()),
        reason = reason(answered, verdict),
    );
}

/// Why the gateway answered 502, 503 or 504, as labelled in metrics.
fn reason(answered: &RequestOutcome<'_>, verdict: VerdictLabel) -> Option<&'static str> {
    let of_store = (verdict == VerdictLabel::Unavailable).then_some("store");
    answered.upstream.error().map(UpstreamError::as_str).or(of_store)
}
