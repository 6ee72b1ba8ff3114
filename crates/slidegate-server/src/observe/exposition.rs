//! The page of metrics, in the OpenMetrics text format.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The page, as it is written.
pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

/// How many took up to each bound and no other, and how long all took together.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) total: Duration,
}

/// A label's name and value.
pub(super) type Label<'a> = (&'static str, &'a str);

impl Page<'_> {
    /// A number that only grows. The name gets `_total` on the page.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        encode_counter(&mut self.begin(name, help, MetricType::Counter)?, value)
    }

    /// Such numbers, by labels.
    pub(super) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let encode = |metric: &mut MetricEncoder<'_>, value| encode_counter(metric, value);
        self.family(name, help, MetricType::Counter, values, encode)
    }

    /// A number that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.begin(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Such numbers, by labels.
    pub(super) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let encode = |metric: &mut MetricEncoder<'_>, value| metric.encode_gauge(&value);
        self.family(name, help, MetricType::Gauge, values, encode)
    }

    /// How long things took.
    pub(super) fn histogram(&mut self, name: &str, help: &str, of: &Histogram) -> fmt::Result {
        of.encode(&mut self.begin(name, help, MetricType::Histogram)?)
    }

    /// How long things took, by labels.
    pub(super) fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, Histogram)>,
    ) -> fmt::Result {
        let encode = |metric: &mut MetricEncoder<'_>, of: Histogram| of.encode(metric);
        self.family(name, help, MetricType::Histogram, values, encode)
    }

    /// What does not change, as labels. The name gets `_info` on the page.
    pub(super) fn info(
        &mut self,
        name: &str,
        help: &str,
        labels: &impl EncodeLabelSet,
    ) -> fmt::Result {
        self.begin(name, help, MetricType::Info)?.encode_info(labels)
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
        let mut metric = self.begin(name, help, kind)?;
        values.try_for_each(|(labels, value)| encode(&mut metric.encode_family(&labels)?, value))
    }

    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }
}

impl Histogram {
    fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        // Of the buckets, so that the two agree whatever is being counted meanwhile.
        let count = self.buckets.iter().map(|(_, count)| count).sum();
        metric.encode_histogram::<NoLabelSet>(self.total.as_secs_f64(), count, &self.buckets, None)
    }
}

fn encode_counter(metric: &mut MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}
