//! The queue of ended spans, and their way to the collector.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use opentelemetry::Context;
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};
use prometheus_client::metrics::counter::Counter;
use slidegate::{Clock, Limiter, Quota};
use slidegate_customers::authorities;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::config::TraceConfig;
use crate::file;

/// Spans that wait for the collector: a few megabytes.
const MAX_QUEUED_SPANS: usize = 4096;
/// Spans of one call.
const MAX_BATCH: usize = 512;
/// How long the first span of a call waits for others.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// For a connection to the collector, and for a call. Spans queue meanwhile.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// What has become of spans.
pub(crate) struct SpanCounts {
    exported: Counter,
    /// Because the queue was full.
    dropped: Counter,
    /// Because the collector did not take them.
    failed: Counter,
    queued: AtomicUsize,
    collector: String,
    /// One log line a minute.
    log: Limiter,
}

impl SpanCounts {
    pub(super) fn new(collector: &str, clock: Arc<dyn Clock>) -> Self {
        Self {
            exported: Counter::default(),
            dropped: Counter::default(),
            failed: Counter::default(),
            queued: AtomicUsize::new(0),
            collector: collector.to_owned(),
            log: Limiter::new(Quota::per_minute(1)).clock(clock).capacity(1),
        }
    }

    pub(super) fn by_outcome(&self) -> [([(&'static str, &'static str); 1], Counter); 3] {
        [
            ([("outcome", "exported")], self.exported.clone()),
            ([("outcome", "dropped")], self.dropped.clone()),
            ([("outcome", "failed")], self.failed.clone()),
        ]
    }

    /// Logs that spans are lost, unless it has been logged within a minute.
    fn warn(&self, reason: &dyn fmt::Display) {
        if self.log.check("").is_ok() {
            let (dropped, failed) = (self.dropped.get(), self.failed.get());
            tracing::warn!(
                collector = self.collector,
                %reason,
                dropped,
                failed,
                "spans are lost; requests are not affected"
            );
        }
    }
}

impl fmt::Debug for SpanCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanCounts").finish_non_exhaustive()
    }
}

/// Checks the certificate authority of a collector. Connects to nothing.
pub(crate) fn check_collector(config: &TraceConfig) -> anyhow::Result<()> {
    endpoint(config).map(drop)
}

fn endpoint(config: &TraceConfig) -> anyhow::Result<Endpoint> {
    let endpoint = Endpoint::from_shared(config.otlp.clone()).context("trace.otlp")?;
    let endpoint = endpoint.connect_timeout(EXPORT_TIMEOUT).timeout(EXPORT_TIMEOUT);
    if !config.otlp.starts_with("https") {
        return Ok(endpoint);
    }
    let tls = match &config.ca {
        Some(path) => {
            let pem = file::read_pem(path).context("the file cannot be read")?.bytes;
            // The channel would take anything, and fail for each span.
            ensure!(!authorities(&pem)?.is_empty(), "the file has no certificate");
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
        }
        None => ClientTlsConfig::new().with_webpki_roots(),
    };
    endpoint.tls_config(tls).context("trace.ca")
}

/// Counts spans in and out around the batches of the SDK, which would only log those that it drops.
#[derive(Debug)]
pub(super) struct SpanQueue {
    batches: BatchSpanProcessor,
    counts: Arc<SpanCounts>,
}

impl SpanQueue {
    /// Starts the thread that exports. The connection, which is opened for the first span, is driven by
    /// the current runtime.
    pub(super) fn new(config: &TraceConfig, counts: Arc<SpanCounts>) -> anyhow::Result<Self> {
        let channel: Channel = endpoint(config)?.connect_lazy();
        let exporter = OtlpExporter::builder()
            .with_tonic()
            .with_channel(channel)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .context("trace.otlp")?;
        let exporter = CountingExporter { exporter, counts: counts.clone() };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_QUEUED_SPANS)
            .with_max_export_batch_size(MAX_BATCH)
            .with_scheduled_delay(MAX_DELAY)
            .build();
        let batches = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        Ok(Self { batches, counts })
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.counts.queued.fetch_add(1, Ordering::Relaxed) >= MAX_QUEUED_SPANS {
            self.counts.queued.fetch_sub(1, Ordering::Relaxed);
            self.counts.dropped.inc();
            self.counts.warn(&"the queue is full");
        } else {
            self.batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

#[derive(Debug)]
struct CountingExporter {
    exporter: OtlpExporter,
    counts: Arc<SpanCounts>,
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.counts.queued.fetch_sub(spans, Ordering::Relaxed);
        let result = self.exporter.export(batch).await;
        match &result {
            Ok(()) => drop(self.counts.exported.inc_by(spans as u64)),
            Err(error) => {
                self.counts.failed.inc_by(spans as u64);
                self.counts.warn(error);
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
