//! Metrics of answered requests.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::decision_times::DecisionTimes;
use super::page::Page;
use super::{
    BlockReason, ListenerKind, RequestOutcome, UpstreamError, UpstreamOutcome, VerdictLabel,
};

/// A request adds to counters that are there from the start, by index.
#[derive(Debug, Default)]
pub(super) struct RequestMetrics {
    gateway: ListenerMetrics,
    decisions: ListenerMetrics,
    resp: ListenerMetrics,
    rls: ListenerMetrics,
    /// Of all listeners.
    pub(super) decision_times: DecisionTimes,
    /// Descriptors that match no policy: of an unknown domain, and of known ones.
    pub(super) unmatched_descriptors: [Counter; 2],
    upstream_classes: [Counter; CLASSES.len()],
    pub(super) upstream_errors: [Counter; UpstreamError::NAMES.len()],
    upstream_seconds: Seconds,
}

/// What one listener has answered.
#[derive(Debug, Default)]
struct ListenerMetrics {
    verdicts: [Counter; VerdictLabel::NAMES.len()],
    blocks: [Counter; BlockReason::NAMES.len()],
    classes: [Counter; CLASSES.len()],
    fallbacks: Counter,
    response_seconds: Seconds,
    decision_seconds: Seconds,
}

/// Requests that the gate has decided, at all listeners.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestTotals {
    pub(crate) allowed: u64,
    /// Denied by a quota, banned or blocked.
    pub(crate) refused: u64,
    /// Refused because the store could not count them.
    pub(crate) unavailable: u64,
}

impl RequestTotals {
    /// In the order of the fields.
    pub(crate) fn values(self) -> [u64; 3] {
        [self.allowed, self.refused, self.unavailable]
    }
}

/// By the first digit of the status.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// In seconds: from a refusal out of memory to a slow upstream.
const BUCKETS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// A histogram of durations.
#[derive(Debug)]
struct Seconds(Histogram);

impl Default for Seconds {
    fn default() -> Self {
        Self(Histogram::new(BUCKETS))
    }
}

impl Seconds {
    fn observe(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }
}

impl RequestMetrics {
    pub(super) fn record(&self, outcome: &RequestOutcome<'_>, verdict: VerdictLabel) {
        match outcome.listener {
            ListenerKind::Gateway => self.gateway.record(outcome, verdict),
            ListenerKind::Decisions => self.decisions.record(outcome, verdict),
            ListenerKind::Resp => self.resp.record(outcome, verdict),
            ListenerKind::Rls => self.rls.record(outcome, verdict),
            ListenerKind::Admin => {}
        }
        if let Some(decided) = outcome.decided {
            self.decision_times.record(decided.saturating_since(outcome.asked));
        }
        match outcome.upstream {
            UpstreamOutcome::NotCalled => {}
            UpstreamOutcome::Answered => {
                let sent = outcome.decided.unwrap_or(outcome.began);
                self.upstream_seconds.observe(outcome.ended.saturating_since(sent));
                self.upstream_classes[class_index(outcome.status)].inc();
            }
            UpstreamOutcome::Failed(error) => drop(self.upstream_errors[error as usize].inc()),
        }
    }

    pub(super) fn totals(&self) -> RequestTotals {
        let listeners = [&self.gateway, &self.decisions, &self.resp, &self.rls];
        let count = |verdict: VerdictLabel| -> u64 {
            listeners.iter().map(|listener| listener.verdicts[verdict as usize].get()).sum()
        };
        RequestTotals {
            allowed: count(VerdictLabel::Allow),
            refused: count(VerdictLabel::Deny) + count(VerdictLabel::Block),
            unavailable: count(VerdictLabel::Unavailable),
        }
    }

    pub(super) fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        let listeners = [
            ("gateway", &self.gateway),
            ("decisions", &self.decisions),
            ("resp", &self.resp),
            ("rls", &self.rls),
        ];
        let listeners = listeners.map(|(name, metrics)| (("listener", name), metrics));
        let each =
            |label, names: &'static [&'static str], of: fn(&ListenerMetrics) -> &[Counter]| {
                listeners.into_iter().flat_map(move |(listener, metrics)| {
                    let counters = names.iter().zip(of(metrics).iter().cloned());
                    counters.map(move |(name, counter)| ([listener, (label, *name)], counter))
                })
            };
        page.family(
            "slidegate_requests",
            "Requests answered, by verdict: allow, deny (a quota is used up), block (listed, \
             banned or too costly), unavailable (the store could not count and a policy says deny \
             to that), none (the gate was not asked).",
            each("verdict", &VerdictLabel::NAMES, |listener| &listener.verdicts),
        )?;
        page.family(
            "slidegate_responses",
            "Responses sent, by status class.",
            each("class", &CLASSES, |listener| &listener.classes),
        )?;
        page.family(
            "slidegate_blocks",
            "Requests refused regardless of their quotas, by reason: listed as blocked, costing \
             more than a quota allows in a whole window, banned by a policy, suspended by an \
             operator, with an unknown API key.",
            each("reason", &BlockReason::NAMES, |listener| &listener.blocks),
        )?;
        page.family(
            "slidegate_fallback_decisions",
            "Decisions made without the store because it failed, by on_store_error.",
            listeners.map(|(listener, metrics)| ([listener], metrics.fallbacks.clone())),
        )?;
        page.family(
            "slidegate_response_seconds",
            "Time from receiving a request (over HTTP, its head) to its response being ready to send, \
             upstream included.",
            listeners.map(|(listener, metrics)| ([listener], metrics.response_seconds.0.clone())),
        )?;
        page.family(
            "slidegate_decision_seconds",
            "Time from asking the gate to its decision and the refusal made of it, store included. \
             Reading the request is not included.",
            listeners.map(|(listener, metrics)| ([listener], metrics.decision_seconds.0.clone())),
        )?;
        let unknown = ["domain", "descriptor"].map(|unknown| [("unknown", unknown)]);
        page.family(
            "slidegate_unmatched_descriptors",
            "Descriptors from Envoy that match no policy, by what is unknown: the domain or the \
             descriptor.",
            unknown.into_iter().zip(self.unmatched_descriptors.clone()),
        )?;
        let classes = CLASSES.map(|class| [("class", class)]);
        page.family(
            "slidegate_upstream_responses",
            "Upstream responses, by status class.",
            classes.into_iter().zip(self.upstream_classes.clone()),
        )?;
        let reasons = UpstreamError::NAMES.map(|reason| [("reason", reason)]);
        page.family(
            "slidegate_upstream_errors",
            "Requests without a complete upstream response, by reason.",
            reasons.into_iter().zip(self.upstream_errors.clone()),
        )?;
        page.metric(
            "slidegate_upstream_seconds",
            "Time from the gate's decision to the head of upstream's response.",
            &self.upstream_seconds.0,
        )
    }
}

impl ListenerMetrics {
    fn record(&self, outcome: &RequestOutcome<'_>, verdict: VerdictLabel) {
        self.verdicts[verdict as usize].inc();
        self.classes[class_index(outcome.status)].inc();
        self.response_seconds.observe(outcome.ended.saturating_since(outcome.began));
        if let Some(decided) = outcome.decided {
            self.decision_seconds.observe(decided.saturating_since(outcome.asked));
        }
        if let Some(decision) = outcome.decision {
            if let Some(reason) = BlockReason::of(decision) {
                self.blocks[reason as usize].inc();
            }
            if decision.is_degraded() {
                self.fallbacks.inc();
            }
        }
    }
}

fn class_index(status: StatusCode) -> usize {
    usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1
}
