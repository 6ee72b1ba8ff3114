//! What one endpoint has answered.

use std::fmt;
use std::sync::atomic::AtomicU64;

use http::StatusCode;

use super::exposition::{Histogram, Label, Page};
use super::per_thread::{PerThread, count_own};
use super::timing::Timing;
use super::verdict::{BlockReason, VerdictLabel};
use super::{ListenerKind, RequestOutcome};

/// The numbers of all endpoints.
#[derive(Debug, Default)]
pub(super) struct EndpointMetrics([PerThread<ResponseCounts>; ListenerKind::RECORDED.len()]);

/// What one endpoint has answered, by one thread.
#[derive(Debug, Default)]
struct ResponseCounts {
    verdicts: [AtomicU64; VerdictLabel::COUNT],
    blocks: [AtomicU64; BlockReason::COUNT],
    classes: [AtomicU64; CLASSES.len()],
    degraded: AtomicU64,
    timing: Timing,
    decisions: Timing,
}

/// By the first digit of the status.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl EndpointMetrics {
    #[inline]
    pub(super) fn count(&self, answered: &RequestOutcome<'_>, verdict: VerdictLabel) {
        let own = self.0[answered.listener as usize].own();
        count_own(&own.verdicts[verdict.index()]);
        count_own(&own.classes[class_index(answered.status)]);
        own.timing.add(answered.took());
        if let Some(decided) = answered.decided {
            own.decisions.add(decided.saturating_since(answered.began));
        }
        if let VerdictLabel::Block(reason) = verdict {
            count_own(&own.blocks[reason.index()]);
        }
        if answered.decision.is_some_and(|decision| decision.is_degraded()) {
            count_own(&own.degraded);
        }
    }

    pub(super) fn expose(&self, page: &mut Page<'_>) -> fmt::Result {
        page.counters(
            "slidegate_requests",
            "Requests answered, by verdict: allow, deny (a quota is used up), block \
             (listed, banned or too costly), unavailable (the store could not count and a policy \
             says deny to that), none (the gate was not asked).",
            self.by("verdict", VerdictLabel::NAMES, |own| &own.verdicts),
        )?;
        page.counters(
            "slidegate_responses",
            "Responses sent, by status class.",
            self.by("class", CLASSES, |own| &own.classes),
        )?;
        page.counters(
            "slidegate_blocks",
            "Requests refused regardless of their quotas, by reason: listed as blocked, \
             costing more than a quota allows in a whole window, banned.",
            self.by("reason", BlockReason::NAMES, |own| &own.blocks),
        )?;
        page.counters(
            "slidegate_fallback_decisions",
            "Decisions made without the store because it failed, by on_store_error.",
            self.each(|answers| answers.sum(|own| &own.degraded)),
        )?;
        page.histograms(
            "slidegate_response_seconds",
            "Time from receiving a request's head to sending its response's, upstream included.",
            self.timings(|own| &own.timing),
        )?;
        page.histograms(
            "slidegate_decision_seconds",
            "Time from receiving a request's head to the gate's decision, store included.",
            self.timings(|own| &own.decisions),
        )
    }

    fn by<const N: usize>(
        &self,
        label: &'static str,
        names: [&'static str; N],
        counters: impl Fn(&ResponseCounts) -> &[AtomicU64; N],
    ) -> Vec<([Label<'static>; 2], u64)> {
        let mut values = Vec::with_capacity(ListenerKind::RECORDED.len() * N);
        for listener in ListenerKind::RECORDED {
            let answers = &self.0[listener as usize];
            let numbered = names.into_iter().enumerate();
            values.extend(numbered.map(|(i, name)| {
                (
                    [("listener", listener.as_str()), (label, name)],
                    answers.sum(|own| &counters(own)[i]),
                )
            }));
        }
        values
    }

    fn each<V>(
        &self,
        value: impl Fn(&PerThread<ResponseCounts>) -> V,
    ) -> impl Iterator<Item = ([Label<'static>; 1], V)> {
        ListenerKind::RECORDED.into_iter().map(move |listener| {
            ([("listener", listener.as_str())], value(&self.0[listener as usize]))
        })
    }

    fn timings(
        &self,
        timing: impl Fn(&ResponseCounts) -> &Timing,
    ) -> impl Iterator<Item = ([Label<'static>; 1], Histogram)> {
        self.each(move |answers| Timing::histogram(answers, &timing))
    }
}

fn class_index(status: StatusCode) -> usize {
    usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1
}
