//! The page of metrics, and its text formats.

use std::fmt;

use http::{HeaderMap, header};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The page, as it is written.
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

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// What Prometheus asks for.
    OpenMetrics,
    /// Prometheus's own format, for everything else.
    Text,
}

const OPENMETRICS: &str = "application/openmetrics-text";

impl MetricsFormat {
    /// The format that a request prefers: OpenMetrics if it is named and plain text is not ranked
    /// above it.
    pub(crate) fn accepted_by(headers: &HeaderMap) -> Self {
        let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges: Vec<&str> = accept.flat_map(|value| value.split(',')).map(str::trim).collect();
        let quality = |name: &str| {
            let named = ranges.iter().filter_map(|range| {
                let (media_type, parameters) = range.split_once(';').unwrap_or((range, ""));
                media_type.trim().eq_ignore_ascii_case(name).then(|| quality(parameters))
            });
            named.fold(0.0, f32::max)
        };
        let openmetrics = quality(OPENMETRICS);
        match openmetrics > 0.0 && openmetrics >= quality("text/plain") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Puts a page of OpenMetrics into this format.
    pub(super) fn convert(self, openmetrics: String) -> String {
        match self {
            Self::OpenMetrics => openmetrics,
            Self::Text => to_text(&openmetrics),
        }
    }
}

fn quality(parameters: &str) -> f32 {
    let parameters = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let mut qualities = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    qualities.next().map_or(1.0, |(_, value)| value.trim().parse().unwrap_or(0.0))
}

/// Samples look the same in both formats. The metadata of a family differs: OpenMetrics
/// names it without the suffix of its samples, Prometheus's format with it; there is no type `info`
/// and no `unknown`; and `# UNIT` and `# EOF` mean nothing.
fn to_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some((_, words)) = described(line, "# HELP ") {
            help = words;
        } else if let Some((name, kind)) = described(line, "# TYPE ") {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            text += &format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// The name of a family, and what the line says about it.
fn described<'l>(line: &'l str, prefix: &str) -> Option<(&'l str, &'l str)> {
    line.strip_prefix(prefix)?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_the_format_that_the_client_prefers() {
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                            application/openmetrics-text;version=0.0.1;q=0.4,\
                            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                            text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, expected) in [
            (prometheus_3, MetricsFormat::OpenMetrics),
            ("Application/OpenMetrics-Text", MetricsFormat::OpenMetrics),
            ("*/*", MetricsFormat::Text),
            ("text/html, */*;q=0.8", MetricsFormat::Text),
            ("text/plain;version=0.0.4", MetricsFormat::Text),
            ("application/openmetrics-text; q=0", MetricsFormat::Text),
            ("application/openmetrics-text; q=0.1, text/plain; q=0.9", MetricsFormat::Text),
            ("", MetricsFormat::Text),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(MetricsFormat::accepted_by(&headers), expected, "{accept}");
        }
        assert_eq!(MetricsFormat::accepted_by(&HeaderMap::new()), MetricsFormat::Text);
    }

    #[test]
    fn families_are_described_by_the_names_of_their_samples() {
        let openmetrics = "# HELP a_b Some count.\n# TYPE a_b counter\n# UNIT a_b b\n\
                           a_b_total{l=\"# TYPE\"} 3\n\
                           # HELP v What runs.\n# TYPE v info\nv_info{version=\"1\"} 1\n\
                           # HELP g A gauge.\n# TYPE g gauge\ng 1.5\n# EOF\n";
        let text = "# HELP a_b_total Some count.\n# TYPE a_b_total counter\n\
                    a_b_total{l=\"# TYPE\"} 3\n\
                    # HELP v_info What runs.\n# TYPE v_info gauge\nv_info{version=\"1\"} 1\n\
                    # HELP g A gauge.\n# TYPE g gauge\ng 1.5\n";
        assert_eq!(MetricsFormat::Text.convert(openmetrics.to_owned()), text);
        assert_eq!(MetricsFormat::OpenMetrics.convert(openmetrics.to_owned()), openmetrics);
    }
}
