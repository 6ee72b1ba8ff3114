//! `[trace]`: spans of the gateway's requests, sent to an OpenTelemetry collector.

use std::path::PathBuf;

use crate::config::gateway::{EXPECTED_SERVER, server};
use crate::config::preflight::Preflight;
use crate::config::reader::Value;

/// Where spans of requests go, and how many.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TraceConfig {
    /// The URL of a collector that receives OTLP over gRPC.
    pub(crate) otlp: String,
    /// The PEM file with the authority of the collector's certificate, if it is not a public one.
    pub(crate) ca: Option<PathBuf>,
    /// The share of requests that become spans, unless a trusted peer has decided.
    pub(crate) ratio: f64,
    /// The name of this gateway in traces.
    pub(crate) service_name: String,
    /// Whether spans have the client's address and identity.
    pub(crate) identity: bool,
}

impl TraceConfig {
    /// Reads the section, if it is there.
    pub(super) fn read(root: &Value<'_>) -> Option<Self> {
        let table = root.key("trace").table()?;
        let otlp = table.key("otlp").required("a collector's URL, such as http://127.0.0.1:4317");
        let (ca, name) = (table.key("ca"), table.key("service_name"));
        let service_name = name.string().unwrap_or_else(|| "slidegate".to_owned());
        if service_name.trim().is_empty() {
            name.report("expected a name, such as slidegate");
        }
        let trace = Self {
            ca: ca.file(),
            ratio: table.key("ratio").share().unwrap_or(1.0),
            service_name,
            identity: table.key("identity").is_true(),
            otlp: collector(&otlp)?,
        };
        if ca.is_set() && !trace.otlp.starts_with("https") {
            ca.report_with("only for an https collector", None);
        }
        otlp.warn_if(
            trace.otlp.trim_end_matches('/').ends_with(":4318"),
            "4318 is the usual port of OTLP over HTTP; spans are sent over gRPC, usually to port 4317",
        );
        ca.check_start(trace.ca.as_deref(), Preflight::Trace(&trace));
        Some(trace)
    }

    /// Reports a section without a gateway, whose requests it is about.
    pub(super) fn check(root: &Value<'_>, has_gateway: bool) {
        let table = root.named("trace");
        if table.is_set() && !has_gateway {
            table.report(
                "there is no gateway whose requests could be traced: expected gateway.upstream, or no \
                 [trace]",
            );
        }
    }
}

fn collector(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    // Credentials in it would appear in the log.
    let value = if text.contains('@') { &value.hidden() } else { value };
    match server(text) {
        Some(_) => Some(text.to_owned()),
        None => value.reject(format!("{EXPECTED_SERVER}, such as http://127.0.0.1:4317")),
    }
}
