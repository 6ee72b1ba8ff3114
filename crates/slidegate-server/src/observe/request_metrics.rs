//! Metrics of answered requests.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

use super::histogram::{DurationCounts, Histogram};
use super::page::Page;
use super::{
    BlockReason, ListenerKind, RequestOutcome, UpstreamError, UpstreamOutcome, VerdictLabel,
};

/// The requests that one worker has answered. A request adds to counters that are there from the
/// start, by index.
#[derive(Debug, Default)]
pub(super) struct RequestMetrics {
    gateway: ListenerMetrics,
    decisions: ListenerMetrics,
    resp: ListenerMetrics,
    rls: ListenerMetrics,
    /// Descriptors that no policy is for: of a domain that none is for, and of others.
    pub(super) unmatched_descriptors: [Count; 2],
    upstream_classes: [Count; CLASSES.len()],
    pub(super) upstream_errors: [Count; UpstreamError::NAMES.len()],
    upstream_seconds: Histogram,
}

/// What one listener has answered.
#[derive(Debug, Default)]
struct ListenerMetrics {
    verdicts: [Count; VerdictLabel::NAMES.len()],
    blocks: [Count; BlockReason::NAMES.len()],
    classes: [Count; CLASSES.len()],
    fallbacks: Count,
    response_seconds: Histogram,
    decision_seconds: Histogram,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Requests that the gate has decided, at all listeners.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestTotals {
    /// With reports of units that were already used, also beyond a quota.
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

impl RequestMetrics {
    pub(super) fn record(&self, outcome: &RequestOutcome<'_>, verdict: VerdictLabel) {
        match outcome.listener {
            ListenerKind::Gateway => self.gateway.record(outcome, verdict),
            ListenerKind::Decisions => self.decisions.record(outcome, verdict),
            ListenerKind::Resp => self.resp.record(outcome, verdict),
            ListenerKind::Rls => self.rls.record(outcome, verdict),
            ListenerKind::Admin => {}
        }
        match outcome.upstream {
            UpstreamOutcome::NotCalled => {}
            UpstreamOutcome::Answered => {
                let sent = outcome.decided.unwrap_or(outcome.began);
                self.upstream_seconds.record(outcome.ended.saturating_since(sent));
                self.upstream_classes[class_index(outcome.status)].add(1);
            }
            UpstreamOutcome::Failed(error) => self.upstream_errors[error as usize].add(1),
        }
    }

    /// How long the decisions of all listeners took.
    pub(super) fn decision_times(&self) -> DurationCounts {
        self.listeners().map(|(_, listener)| listener.decision_seconds.counts()).into_iter().sum()
    }

    pub(super) fn totals(workers: &[&Self]) -> RequestTotals {
        let count = |verdict: VerdictLabel| -> u64 {
            let listeners = workers.iter().flat_map(|worker| worker.listeners());
            listeners.map(|(_, listener)| listener.verdicts[verdict as usize].get()).sum()
        };
        RequestTotals {
            allowed: count(VerdictLabel::Allow) + count(VerdictLabel::Recorded),
            refused: count(VerdictLabel::Deny) + count(VerdictLabel::Block),
            unavailable: count(VerdictLabel::Unavailable),
        }
    }

    fn listeners(&self) -> [(&'static str, &ListenerMetrics); 4] {
        [
            ("gateway", &self.gateway),
            ("decisions", &self.decisions),
            ("resp", &self.resp),
            ("rls", &self.rls),
        ]
    }

    /// Writes what all workers have answered.
    pub(super) fn encode(workers: &[&Self], page: &mut Page<'_>) -> fmt::Result {
        type OfListener<T> = fn(&ListenerMetrics) -> T;
        /// The metrics of a listener at each worker.
        fn by_listener<'w>(
            workers: &'w [&RequestMetrics],
        ) -> impl Iterator<Item = ((&'static str, &'static str), Vec<&'w ListenerMetrics>)>
        {
            let names = workers.first().map(|worker| worker.listeners().map(|(name, _)| name));
            names.into_iter().flatten().enumerate().map(|(index, name)| {
                let of_workers = workers.iter().map(|worker| worker.listeners()[index].1);
                (("listener", name), of_workers.collect())
            })
        }
        let each = |label, names: &'static [&'static str], of: fn(&ListenerMetrics) -> &[Count]| {
            by_listener(workers).flat_map(move |(listener, metrics)| {
                let counts = names.iter().enumerate().map(move |(index, name)| {
                    let count: u64 = metrics.iter().map(|metrics| of(metrics)[index].get()).sum();
                    ([listener, (label, *name)], count)
                });
                counts.collect::<Vec<_>>()
            })
        };
        let times = |of: OfListener<DurationCounts>| {
            by_listener(workers).map(move |(listener, metrics)| {
                ([listener], metrics.into_iter().map(of).sum::<DurationCounts>())
            })
        };
        let sums = |of: fn(&Self) -> &[Count]| {
            let counts = workers.first().map_or(0, |worker| of(worker).len());
            (0..counts).map(move |index| workers.iter().map(|worker| of(worker)[index].get()).sum())
        };
        page.counters(
            "slidegate_requests",
            "Requests answered, by verdict: allow, deny (a quota is used up), recorded (units that \
             were already used exceeded a quota; nothing was refused), block (listed, banned or too \
             costly), unavailable (the store could not count and a policy says deny to that), none \
             (the gate was not asked).",
            each("verdict", &VerdictLabel::NAMES, |listener| &listener.verdicts),
        )?;
        page.counters(
            "slidegate_responses",
            "Responses sent, by status class.",
            each("class", &CLASSES, |listener| &listener.classes),
        )?;
        page.counters(
            "slidegate_blocks",
            "Requests refused regardless of their quotas, by reason: listed as blocked, costing \
             more than a quota allows in a whole window, banned by a policy, suspended by an \
             operator, with an unknown API key.",
            each("reason", &BlockReason::NAMES, |listener| &listener.blocks),
        )?;
        page.counters(
            "slidegate_fallback_decisions",
            "Decisions made without the store because it failed, by on_store_error.",
            by_listener(workers).map(|(listener, metrics)| {
                ([listener], metrics.iter().map(|metrics| metrics.fallbacks.get()).sum())
            }),
        )?;
        page.family(
            "slidegate_response_seconds",
            "Time from receiving a request (over HTTP, its head) to its response being ready to send, \
             upstream included.",
            times(|listener| listener.response_seconds.counts()),
        )?;
        page.family(
            "slidegate_decision_seconds",
            "Time from asking the gate to its decision and the refusal made of it, store included. \
             Reading the request is not included.",
            times(|listener| listener.decision_seconds.counts()),
        )?;
        let unknown = ["domain", "descriptor"].map(|unknown| [("unknown", unknown)]);
        page.counters(
            "slidegate_unmatched_descriptors",
            "Descriptors from Envoy that match no policy, by what is unknown: the domain or the \
             descriptor.",
            unknown.into_iter().zip(sums(|worker| &worker.unmatched_descriptors)),
        )?;
        let classes = CLASSES.map(|class| [("class", class)]);
        page.counters(
            "slidegate_upstream_responses",
            "Upstream responses, by status class.",
            classes.into_iter().zip(sums(|worker| &worker.upstream_classes)),
        )?;
        let reasons = UpstreamError::NAMES.map(|reason| [("reason", reason)]);
        page.counters(
            "slidegate_upstream_errors",
            "Requests without a complete upstream response, by reason.",
            reasons.into_iter().zip(sums(|worker| &worker.upstream_errors)),
        )?;
        page.metric(
            "slidegate_upstream_seconds",
            "Time from the gate's decision to the head of upstream's response.",
            &workers.iter().map(|worker| worker.upstream_seconds.counts()).sum::<DurationCounts>(),
        )
    }
}

impl ListenerMetrics {
    fn record(&self, outcome: &RequestOutcome<'_>, verdict: VerdictLabel) {
        self.verdicts[verdict as usize].add(1);
        self.classes[class_index(outcome.status)].add(1);
        self.response_seconds.record(outcome.ended.saturating_since(outcome.began));
        if let Some(decided) = outcome.decided {
            self.decision_seconds.record(decided.saturating_since(outcome.asked));
        }
        if let Some(decision) = outcome.decision {
            if let Some(reason) = BlockReason::of(decision) {
                self.blocks[reason as usize].add(1);
            }
            if decision.is_degraded() {
                self.fallbacks.add(1);
            }
        }
    }
}

fn class_index(status: StatusCode) -> usize {
    usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1
}
