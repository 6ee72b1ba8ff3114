//! Log lines about requests: a line for every request if the operator wants it, and for denials.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use slidegate::{
    Clock, Decision, Limiter, Policies, PolicyStanding, Quota, Standing, Timestamp, Verdict,
};
use tracing::Level;

use super::{RequestOutcome, UpstreamError, UpstreamOutcome, VerdictLabel};

/// Of a path.
const MAX_PATH_CHARS: usize = 200;

/// Writes the line of the access log. Neither headers nor the query are in it: they may have
/// secrets.
pub(super) fn log_access(outcome: &RequestOutcome<'_>, verdict: VerdictLabel) {
    let tightest = outcome.decision.and_then(|decision| decision.tightest());
    let took = outcome.ended.saturating_since(outcome.began);
    // Why the gateway answered 502, 503 or 504.
    let reason = match outcome.upstream {
        UpstreamOutcome::Failed(error) => Some(UpstreamError::as_str(error)),
        _ if verdict == VerdictLabel::Unavailable => Some("store"),
        _ => None,
    };
    tracing::info!(
        target: "slidegate::access",
        listener = outcome.listener.as_str(),
        method = outcome.method.as_str(),
        path = shortened(outcome.path),
        status = outcome.status.as_u16(),
        client = outcome.client.map(tracing::field::display),
        duration_ms = rounded(took.as_secs_f64() * 1000.0),
        verdict = verdict.as_str(),
        policy = tightest.map(|(policy, _)| &*policy.policy),
        reason,
    );
}

/// The log of denials, limited so that denied clients cannot flood it: one line a minute for an
/// identity under a policy, and ten lines a second in all. Denials without a line are counted, and
/// the next line has the count.
#[derive(Debug)]
pub(super) struct DenialLog {
    by_account: Limiter,
    all: Limiter,
    /// No denial is logged before this time. It is read first, so that a flood of denials does not wait
    /// for the lock of `all`.
    full_until: AtomicU64,
    pub(super) left_out: Counter,
    /// How many of those a line has reported.
    reported: AtomicU64,
}

const DENIED: &str = "slidegate::denied";
/// Far more than the 600 lines of a minute, so that the table has 16 shards and denials of different
/// accounts seldom wait for the same lock. It takes 2 MB when it is full.
const MAX_ACCOUNTS: usize = 16_384;

impl DenialLog {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        let limiter = |quota| Limiter::new(quota).clock(clock.clone());
        Self {
            by_account: limiter(Quota::per_minute(1)).capacity(MAX_ACCOUNTS),
            all: limiter(Quota::per_second(10)).capacity(1),
            full_until: AtomicU64::new(0),
            left_out: Counter::default(),
            reported: AtomicU64::new(0),
        }
    }

    pub(super) fn record(
        &self,
        outcome: &RequestOutcome<'_>,
        decision: &Decision,
        policies: impl Fn() -> Arc<Policies>,
    ) {
        let Some((policy, standing)) = exceeded(decision) else { return };
        if !tracing::enabled!(target: DENIED, Level::INFO) {
            return;
        }
        if !self.has_room(policy, outcome.ended) {
            self.left_out.inc();
            return;
        }
        let left_out = self.left_out.get();
        let reported = self.reported.swap(left_out, Ordering::Relaxed);
        let (quota, remaining) = (standing.quota(), standing.remaining());
        let units = quota.units().get();
        tracing::info!(
            target: DENIED,
            policy = &*policy.policy,
            identity = &*policies().shown(&policy.identity),
            plan = policy.plan.as_deref().map(|plan| &*plan.name),
            units,
            window_s = rounded(quota.window().as_secs_f64()),
            spent = units.saturating_sub(remaining),
            remaining,
            retry_after_s = rounded(standing.retry_after().as_secs_f64()),
            shadow = policy.shadow,
            listener = outcome.listener.as_str(),
            method = outcome.method.as_str(),
            path = shortened(outcome.path),
            client = outcome.client.map(tracing::field::display),
            left_out = left_out.saturating_sub(reported),
            "limit exceeded"
        );
    }

    /// In a flood the first look decides, and the account keeps its line for later.
    fn has_room(&self, policy: &PolicyStanding, now: Timestamp) -> bool {
        if now < Timestamp::from_nanos(self.full_until.load(Ordering::Relaxed)) {
            return false;
        }
        let account = format!("{} {}", policy.policy, policy.identity.as_str());
        let has_room = self.by_account.check(&account).is_ok() && self.all.check("").is_ok();
        if has_room {
            let until = now + self.all.retry_after("");
            self.full_until.fetch_max(until.as_nanos(), Ordering::Relaxed);
        }
        has_room
    }
}

/// The standing that a request was denied for, or would have been by a shadow policy. Nothing was
/// denied for units that were already used.
fn exceeded(decision: &Decision) -> Option<(&PolicyStanding, &Standing)> {
    if matches!(decision.verdict(), Verdict::Deny { .. }) && !decision.is_recorded() {
        return decision.tightest();
    }
    let mut shadows = decision.policies().iter().filter(|policy| policy.shadow && !policy.recorded);
    let policy = shadows.find(|policy| policy.is_violated())?;
    let longest = |standing: &&Standing| (standing.is_violated(), standing.retry_after());
    Some((policy, policy.standings.iter().max_by_key(longest)?))
}

/// As much of a path as a line has room for.
pub(super) fn shortened(path: &str) -> &str {
    path.char_indices().nth(MAX_PATH_CHARS).map_or(path, |(end, _)| &path[..end])
}

/// A figure for a log line, to three decimals.
fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_between_characters() {
        assert_eq!(shortened("/short"), "/short");
        assert_eq!(shortened(&"\u{fc}".repeat(500)), "\u{fc}".repeat(MAX_PATH_CHARS));
    }
}
