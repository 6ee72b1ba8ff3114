//! Metrics whose values are read when they are scraped.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeLabelSet, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

/// The page of metrics, as it is written.
pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

impl Page<'_> {
    /// A number that only grows. The name gets `_total` on the page.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeCounterValue + Copy,
    ) -> fmt::Result {
        encode_counter(&mut self.describe(name, help, MetricType::Counter)?, &value)
    }

    /// Numbers that only grow, by labels.
    pub(super) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, values, |metric, value| {
            encode_counter(metric, &value)
        })
    }

    /// A number that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.describe(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Numbers that go up and down, by labels.
    pub(super) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, values, |metric, value| {
            metric.encode_gauge(&value)
        })
    }

    /// How many took up to each bound and no other, and how long all took together.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[(f64, u64)],
        total: Duration,
    ) -> fmt::Result {
        // Of the buckets, so that the two agree whatever is being counted meanwhile.
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.describe(name, help, MetricType::Histogram)?.encode_histogram::<NoLabelSet>(
            total.as_secs_f64(),
            count,
            buckets,
            None,
        )
    }

    /// What does not change, as labels. The name gets `_info` on the page.
    pub(super) fn info(
        &mut self,
        name: &str,
        help: &str,
        labels: &impl EncodeLabelSet,
    ) -> fmt::Result {
        self.describe(name, help, MetricType::Info)?.encode_info(labels)
    }

    /// A family without values is left out: not every parser takes a description of nothing.
    fn family<L: EncodeLabelSet, V>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: impl IntoIterator<Item = (L, V)>,
        encode: impl Fn(&mut MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.describe(name, help, kind)?;
        values.try_for_each(|(labels, value)| encode(&mut metric.encode_family(&labels)?, value))
    }

    fn describe<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }
}

fn encode_counter(metric: &mut MetricEncoder<'_>, value: &impl EncodeCounterValue) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, u64>(value, None)
}
