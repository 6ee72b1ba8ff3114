//! Metrics of answered requests.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use super::verdict::{BlockReason, VerdictLabel};
use super::{ListenerKind, RequestOutcome, UpstreamError, UpstreamOutcome};

/// Labels with fixed values.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

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
        let by_two_labels = Family::<Labels<2>, Counter>::default;
        let by_label = Family::<Labels<1>, Counter>::default;
        let histograms =
            || Family::<Labels<1>, Histogram, _>::new_with_constructor(|| Histogram::new(BUCKETS));
        let requests = register(
            registry,
            "slidegate_requests",
            "Requests answered, by verdict: allow, deny (a quota is used up), block (listed, \
             banned or too costly), unavailable (the store could not count and a policy says deny \
             to that), none (the gate was not asked)",
            by_two_labels(),
        );
        let responses = register(
            registry,
            "slidegate_responses",
            "Responses sent, by status class",
            by_two_labels(),
        );
        let blocks = register(
            registry,
            "slidegate_blocks",
            "Requests refused regardless of their quotas, by reason: listed as blocked, costing \
             more than a quota allows in a whole window, banned by a policy, suspended by an \
             operator",
            by_two_labels(),
        );
        let fallbacks = register(
            registry,
            "slidegate_fallback_decisions",
            "Decisions made without the store because it failed, by on_store_error",
            by_label(),
        );
        let response_seconds = register(
            registry,
            "slidegate_response_seconds",
            "Time from receiving a request's head to sending its response's, upstream included",
            histograms(),
        );
        let decision_seconds = register(
            registry,
            "slidegate_decision_seconds",
            "Time from receiving a request's head to the gate's decision, store included",
            histograms(),
        );
        let upstream_classes = register(
            registry,
            "slidegate_upstream_responses",
            "Upstream responses, by status class",
            by_label(),
        );
        let upstream_errors = register(
            registry,
            "slidegate_upstream_errors",
            "Requests without a complete upstream response, by reason",
            by_label(),
        );
        let of_listener = |listener: ListenerKind| {
            let listener = ("listener", listener.as_str());
            let each = |family: &Family<Labels<2>, Counter>, label, values: [&'static str; 5]| {
                values.map(|value| family.get_or_create_owned(&[listener, (label, value)]))
            };
            ListenerMetrics {
                verdicts: each(&requests, "verdict", VerdictLabel::NAMES),
                blocks: each(&blocks, "reason", BlockReason::NAMES),
                classes: each(&responses, "class", CLASSES),
                fallbacks: fallbacks.get_or_create_owned(&[listener]),
                response_seconds: response_seconds.get_or_create_owned(&[listener]),
                decision_seconds: decision_seconds.get_or_create_owned(&[listener]),
            }
        };
        Self {
            gateway: of_listener(ListenerKind::Gateway),
            decisions: of_listener(ListenerKind::Decisions),
            upstream_classes: CLASSES
                .map(|class| upstream_classes.get_or_create_owned(&[("class", class)])),
            upstream_errors: UpstreamError::NAMES
                .map(|reason| upstream_errors.get_or_create_owned(&[("reason", reason)])),
            upstream_seconds: register(
                registry,
                "slidegate_upstream_seconds",
                "Time from the gate's decision to the head of upstream's response",
                Histogram::new(BUCKETS),
            ),
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

/// Puts a metric on the page. prometheus-client ends the help with a full stop.
pub(super) fn register<M: Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn observe(histogram: &Histogram, time: Duration) {
    histogram.observe(time.as_secs_f64());
}

fn class_index(status: StatusCode) -> usize {
    usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1
}
