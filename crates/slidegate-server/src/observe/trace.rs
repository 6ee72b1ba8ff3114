//! Spans of the gateway's requests, in traces that others began or that begin here.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceFlags, TraceState,
    Tracer as _, TracerProvider,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use slidegate::{Clock, Policies, Timestamp};

use super::request_log::shortened;
use super::span_export::{SpanCounts, SpanQueue};
use super::{BlockReason, RequestOutcome, UpstreamError, UpstreamOutcome, VerdictLabel};
use crate::calendar::ceil_ms;
use crate::config::TraceConfig;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Begins a span for each request. A collector that is slow or gone delays none: spans that find the
/// queue full are dropped and counted.
#[derive(Debug)]
pub(crate) struct Tracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    ratio: f64,
    /// Whether spans have the client's address and identity.
    identity: bool,
    counts: Arc<SpanCounts>,
}

/// The span of a request under way. If it is dropped, the client is gone, and the span ends with that.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    span: Span,
    began: SystemTime,
}

/// What a span is about, as soon as the request is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TracedRequest<'r> {
    pub(crate) method: &'r Method,
    /// As it was sent, without the query.
    pub(crate) path: &'r str,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) version: Version,
    /// Whether it came over TLS.
    pub(crate) is_secure: bool,
    /// Whether the peer may decide that a trace is sampled.
    pub(crate) is_trusted: bool,
    /// When it came, by the calendar.
    pub(crate) began: Timestamp,
}

impl Tracer {
    /// A tracer whose spans a thread exports, and whose connection the current runtime drives. It
    /// connects when there are spans.
    pub(crate) fn new(config: &TraceConfig, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let counts = Arc::new(SpanCounts::new(&config.otlp, clock));
        let resource = Resource::builder().with_service_name(config.service_name.clone()).build();
        // A parent's decision is final; that of an untrusted one has been replaced before.
        let root = Sampler::TraceIdRatioBased(config.ratio);
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_sampler(Sampler::ParentBased(Box::new(root)))
            .with_span_processor(SpanQueue::new(config, counts.clone())?)
            .build();
        Ok(Self {
            tracer: provider.tracer("slidegate"),
            provider,
            propagator: TraceContextPropagator::new(),
            ratio: config.ratio,
            identity: config.identity,
            counts,
        })
    }

    /// Begins the span of a request, below the one that its headers name.
    pub(crate) fn begin(&self, request: TracedRequest<'_>) -> Box<RequestSpan> {
        let headers = TraceHeaders::of(request.headers);
        let mut parent = self.propagator.extract_with_context(&Context::new(), &headers);
        if !request.is_trusted && parent.has_active_span() {
            parent = self.resampled(&parent);
        }
        let began = system_time(request.began);
        let builder = SpanBuilder::from_name(name_of(request.method))
            .with_kind(SpanKind::Server)
            .with_start_time(began);
        let mut span = self.tracer.build_with_context(builder, &parent);
        if span.is_recording() {
            span.set_attributes(request.attributes());
        }
        Box::new(RequestSpan { span, began })
    }

    /// The same parent with a decision by the ratio. An untrusted client could otherwise have all its
    /// requests recorded: by the flag, by a `tracestate` that says the same to another tracer, or by a
    /// trace id below the threshold of the ratio.
    fn resampled(&self, parent: &Context) -> Context {
        let span = parent.span();
        let claimed = span.span_context();
        let flags = TraceFlags::default().with_sampled(fastrand::f64() < self.ratio);
        let (trace, span) = (claimed.trace_id(), claimed.span_id());
        let context = SpanContext::new(trace, span, flags, true, TraceState::default());
        Context::new().with_remote_span_context(context)
    }

    /// Writes a span into the headers that go upstream, as the parent of what happens there.
    pub(crate) fn propagate(&self, span: &RequestSpan, headers: &mut HeaderMap) {
        let context = span.span.span_context().clone();
        let context = Context::new().with_remote_span_context(context);
        self.propagator.inject_context(&context, &mut UpstreamHeaders(headers));
    }

    /// Ends the span of a request, and queues it for the collector.
    pub(super) fn end(
        &self,
        mut span: RequestSpan,
        outcome: &RequestOutcome<'_>,
        verdict: VerdictLabel,
        route: Option<String>,
        policies: impl FnOnce() -> Arc<Policies>,
    ) {
        let since = |at: Timestamp| span.began + at.saturating_since(outcome.began);
        let (ended, decided) = (since(outcome.ended), outcome.decided.map(since));
        let identity = self.identity.then(policies);
        span.span.set_attributes(attributes(outcome, verdict, identity.as_deref()));
        if let Some(route) = route {
            span.span.update_name(format!("{} {route}", name_of(outcome.method)));
            span.span.set_attribute(KeyValue::new("http.route", route));
        }
        if let Some(decided) = decided {
            span.span.add_event_with_timestamp("decided", decided, Vec::new());
        }
        if outcome.status.is_server_error() {
            span.span.set_status(Status::error(""));
        }
        span.span.end_with_timestamp(ended);
    }

    /// What has become of the spans.
    pub(super) fn counts(&self) -> &SpanCounts {
        &self.counts
    }

    /// Exports what is queued and ends, within this time at most, whatever the collector does.
    pub(crate) async fn shut_down(&self, timeout: Duration) {
        let provider = self.provider.clone();
        let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(timeout));
        // Its connection needs this thread meanwhile.
        if !matches!(tokio::time::timeout(timeout, flush).await, Ok(Ok(Ok(())))) {
            tracing::warn!("the last spans could not be exported");
        }
    }
}

impl RequestSpan {
    /// Whether it is sampled, so that what it says is exported.
    pub(crate) fn is_recording(&self) -> bool {
        self.span.is_recording()
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if self.is_recording() {
            self.span.set_attribute(KeyValue::new("error.type", "aborted"));
        }
    }
}

impl TracedRequest<'_> {
    /// By the semantic conventions for HTTP servers.
    fn attributes(&self) -> Vec<KeyValue> {
        let (method, original) = known_method(self.method);
        let version = match self.version {
            Version::HTTP_2 => "2",
            Version::HTTP_10 => "1.0",
            _ => "1.1",
        };
        let mut attributes = vec![
            KeyValue::new("http.request.method", method),
            KeyValue::new("url.scheme", if self.is_secure { "https" } else { "http" }),
            KeyValue::new("url.path", shortened(self.path).to_owned()),
            KeyValue::new("network.protocol.version", version),
        ];
        if let Some(original) = original {
            attributes.push(KeyValue::new("http.request.method_original", original.to_owned()));
        }
        attributes
    }
}

/// What became of a request; by the semantic conventions for HTTP servers, where they have a name.
fn attributes(
    outcome: &RequestOutcome<'_>,
    verdict: VerdictLabel,
    policies: Option<&Policies>,
) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(10);
    let mut add = |name: &'static str, value: Value| attributes.push(KeyValue::new(name, value));
    add("http.response.status_code", i64::from(outcome.status.as_u16()).into());
    if let Some(error) = error_type(outcome, verdict) {
        add("error.type", error.into());
    }
    add("slidegate.verdict", verdict.as_str().into());
    if let Some(reason) = outcome.decision.and_then(BlockReason::of) {
        add("slidegate.reason", reason.as_str().into());
    }
    if let Some((policy, standing)) = outcome.decision.and_then(|decision| decision.tightest()) {
        add("slidegate.policy", policy.policy.to_string().into());
        if let Some(plan) = policy.plan.as_deref() {
            add("slidegate.plan", plan.name.to_string().into());
        }
        add("slidegate.quota", standing.quota().to_string().into());
        add("slidegate.remaining", i64::from(standing.remaining()).into());
        if let Some(policies) = policies {
            add("slidegate.identity", policies.shown(&policy.identity).into_owned().into());
        }
    }
    if let Some(after) = outcome.decision.and_then(|decision| decision.retry_after()) {
        let ms = i64::try_from(ceil_ms(after)).unwrap_or(i64::MAX);
        add("slidegate.retry_after_ms", ms.into());
    }
    if let Some(client) = policies.and(outcome.client) {
        add("client.address", client.to_string().into());
    }
    attributes
}

/// Why there is a 5xx, as the metrics name it, or which one it is.
fn error_type(outcome: &RequestOutcome<'_>, verdict: VerdictLabel) -> Option<Cow<'static, str>> {
    if !outcome.status.is_server_error() {
        return None;
    }
    Some(match outcome.upstream {
        UpstreamOutcome::Failed(error) => UpstreamError::as_str(error).into(),
        _ if verdict == VerdictLabel::Unavailable => "store".into(),
        _ => outcome.status.as_str().to_owned().into(),
    })
}

/// Stands for methods that the conventions do not list: clients must not choose span names.
const OTHER: &str = "_OTHER";

/// A method as spans have it, and the original if that is another.
fn known_method(method: &Method) -> (&'static str, Option<&str>) {
    let known = match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::CONNECT => "CONNECT",
        Method::OPTIONS => "OPTIONS",
        Method::TRACE => "TRACE",
        Method::PATCH => "PATCH",
        _ => return (OTHER, Some(method.as_str())),
    };
    (known, None)
}

/// The name of a span whose route is not known.
fn name_of(method: &Method) -> &'static str {
    match known_method(method) {
        (OTHER, _) => "HTTP",
        (known, _) => known,
    }
}

fn system_time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(at.as_nanos())
}

/// The headers of a trace that a request came with.
struct TraceHeaders<'h> {
    parent: Option<&'h str>,
    state: Option<Cow<'h, str>>,
}

impl<'h> TraceHeaders<'h> {
    fn of(headers: &'h HeaderMap) -> Self {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let parent = match (parents.next(), parents.next()) {
            (Some(parent), None) => parent.to_str().ok(),
            // Of two, neither is known to be the sender's.
            _ => None,
        };
        let states: Option<Vec<&str>> =
            headers.get_all(TRACESTATE).iter().map(|state| state.to_str().ok()).collect();
        let state = states.and_then(|states| match states[..] {
            [] => None,
            [state] => Some(Cow::Borrowed(state)),
            _ => Some(Cow::Owned(states.join(","))),
        });
        Self { parent, state }
    }
}

impl Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.parent,
            "tracestate" => self.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// The headers of a request that goes upstream.
struct UpstreamHeaders<'h>(&'h mut HeaderMap);

impl Injector for UpstreamHeaders<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = if key == TRACEPARENT { TRACEPARENT } else { TRACESTATE };
        match HeaderValue::try_from(value) {
            Ok(value) if !value.is_empty() => drop(self.0.insert(name, value)),
            // An empty tracestate is not sent.
            _ => drop(self.0.remove(name)),
        }
    }
}
