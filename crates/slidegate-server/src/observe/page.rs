//! The page of metrics, as it is written.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

impl Page<'_> {
    /// The name of a counter gets `_total` on the page, that of an info `_info`.
    pub(super) fn metric(
        &mut self,
        name: &str,
        help: &str,
        metric: &impl EncodeMetric,
    ) -> fmt::Result {
        metric.encode(self.0.encode_descriptor(name, help, None, metric.metric_type())?)
    }

    /// A metric for each set of labels. One without any is left out: not every parser takes a
    /// description of nothing.
    pub(super) fn family<L: EncodeLabelSet, M: EncodeMetric + TypedMetric>(
        &mut self,
        name: &str,
        help: &str,
        metrics: impl IntoIterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut metrics = metrics.into_iter().peekable();
        if metrics.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, M::TYPE)?;
        metrics.try_for_each(|(labels, metric)| metric.encode(family.encode_family(&labels)?))
    }

    /// A family of numbers that only grow.
    pub(super) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let counters = values.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.family(name, help, counters)
    }

    /// A family of numbers that go up and down.
    pub(super) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let gauges = values.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.family(name, help, gauges)
    }
}
