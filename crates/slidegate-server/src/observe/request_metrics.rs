//! Metrics of answered requests.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::verdict::{BlockReason, VerdictLabel};
use super::{ListenerKind, RequestOutcome, UpstreamError, UpstreamOutcome};

/// Labels with fixed values.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

type HistogramFamily = Family<Labels<1>, Histogram, fn() -> Histogram>;

/// Every series is looked up once, at the start: a request adds to those that it is about.
#[derive(Debug)]
pub(super) struct RequestMetrics {
    gateway: ListenerMetrics,
    decisions: ListenerMetrics,
    upstream_classes: [Counter; CLASSES.len()],
    upstream_errors: [Counter; UpstreamError::NAMES.len()],
    upstream_seconds: Histogram,
}

/// What one listener has answered.
#[derive(Debug)]
struct ListenerMetrics {
    verdicts: [Counter; VerdictLabel::NAMES.len()],
    blocks: [Counter; BlockReason::NAMES.len()],
    classes: [Counter; CLASSES.len()],
    fallbacks: Counter,
    response_seconds: Histogram,
    decision_seconds: Histogram,
}

/// By the first digit of the status.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// In seconds: from a refusal out of memory to a slow upstream.
const BUCKETS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

impl RequestMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = ListenerFamilies::register(registry);
        let classes = Family::<Labels<1>, Counter>::default();
        let errors = Family::<Labels<1>, Counter>::default();
        let upstream_seconds = histogram();
        registry.register(
            "slidegate_upstream_responses",
            "Upstream responses, by status class",
            classes.clone(),
        );
        registry.register(
            "slidegate_upstream_errors",
            "Requests without a complete upstream response, by reason",
            errors.clone(),
        );
        registry.register(
            "slidegate_upstream_seconds",
            "Time from the gate's decision to the head of upstream's response",
            upstream_seconds.clone(),
        );
        Self {
            gateway: families.of(ListenerKind::Gateway),
            decisions: families.of(ListenerKind::Decisions),
            upstream_classes: CLASSES.map(|name| classes.get_or_create_owned(&[("class", name)])),
            upstream_errors: UpstreamError::NAMES
                .map(|name| errors.get_or_create_owned(&[("reason", name)])),
            upstream_seconds,
        }
    }

    pub(super) fn record(&self, outcome: &RequestOutcome<'_>, verdict: VerdictLabel) {
        match outcome.listener {
            ListenerKind::Gateway => self.gateway.record(outcome, verdict),
            ListenerKind::Decisions => self.decisions.record(outcome, verdict),
            ListenerKind::Admin => {}
        }
        match outcome.upstream {
            UpstreamOutcome::NotCalled => {}
            UpstreamOutcome::Answered => {
                let sent = outcome.decided.unwrap_or(outcome.began);
                observe(&self.upstream_seconds, outcome.ended.saturating_since(sent));
                self.upstream_classes[class_index(outcome.status)].inc();
            }
            UpstreamOutcome::Failed(error) => self.record_upstream_error(error),
        }
    }

    pub(super) fn record_upstream_error(&self, error: UpstreamError) {
        self.upstream_errors[error as usize].inc();
    }
}

impl ListenerMetrics {
    fn record(&self, outcome: &RequestOutcome<'_>, verdict: VerdictLabel) {
        self.verdicts[verdict as usize].inc();
        self.classes[class_index(outcome.status)].inc();
        observe(&self.response_seconds, outcome.ended.saturating_since(outcome.began));
        if let Some(decided) = outcome.decided {
            observe(&self.decision_seconds, decided.saturating_since(outcome.began));
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

struct ListenerFamilies {
    requests: Family<Labels<2>, Counter>,
    responses: Family<Labels<2>, Counter>,
    blocks: Family<Labels<2>, Counter>,
    fallbacks: Family<Labels<1>, Counter>,
    response_seconds: HistogramFamily,
    decision_seconds: HistogramFamily,
}

impl ListenerFamilies {
    fn register(registry: &mut Registry) -> Self {
        let families = Self {
            requests: Family::default(),
            responses: Family::default(),
            blocks: Family::default(),
            fallbacks: Family::default(),
            response_seconds: Family::new_with_constructor(histogram),
            decision_seconds: Family::new_with_constructor(histogram),
        };
        registry.register(
            "slidegate_requests",
            "Requests answered, by verdict: allow, deny (a quota is used up), block (listed, \
             banned or too costly), unavailable (the store could not count and a policy says deny \
             to that), none (the gate was not asked)",
            families.requests.clone(),
        );
        registry.register(
            "slidegate_responses",
            "Responses sent, by status class",
            families.responses.clone(),
        );
        registry.register(
            "slidegate_blocks",
            "Requests refused regardless of their quotas, by reason: listed as blocked, costing \
             more than a quota allows in a whole window, banned by a policy, suspended by an \
             operator",
            families.blocks.clone(),
        );
        registry.register(
            "slidegate_fallback_decisions",
            "Decisions made without the store because it failed, by on_store_error",
            families.fallbacks.clone(),
        );
        registry.register(
            "slidegate_response_seconds",
            "Time from receiving a request's head to sending its response's, upstream included",
            families.response_seconds.clone(),
        );
        registry.register(
            "slidegate_decision_seconds",
            "Time from receiving a request's head to the gate's decision, store included",
            families.decision_seconds.clone(),
        );
        families
    }

    fn of(&self, listener: ListenerKind) -> ListenerMetrics {
        let listener = ("listener", listener.as_str());
        let counters = |family: &Family<Labels<2>, Counter>, label, names: [_; 5]| {
            names.map(|name| family.get_or_create_owned(&[listener, (label, name)]))
        };
        ListenerMetrics {
            verdicts: counters(&self.requests, "verdict", VerdictLabel::NAMES),
            blocks: counters(&self.blocks, "reason", BlockReason::NAMES),
            classes: counters(&self.responses, "class", CLASSES),
            fallbacks: self.fallbacks.get_or_create_owned(&[listener]),
            response_seconds: self.response_seconds.get_or_create_owned(&[listener]),
            decision_seconds: self.decision_seconds.get_or_create_owned(&[listener]),
        }
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

fn observe(histogram: &Histogram, time: Duration) {
    histogram.observe(time.as_secs_f64());
}

fn class_index(status: StatusCode) -> usize {
    usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1
}
