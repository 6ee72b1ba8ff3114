//! What a start depends on outside of the text.

use std::path::Path;

use crate::config::{AuditConfig, CustomersConfig, RedisConfig, TlsFiles, TraceConfig};

/// Something outside of the configuration that a server needs to start. Who starts one checks it; a
/// failure is reported where the configuration names it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Preflight<'c> {
    /// A file that snapshots are written to.
    Snapshot(&'c Path),
    /// Certificates of the Redis store.
    Redis(&'c RedisConfig),
    /// Certificate and key of a listener.
    Tls(&'c TlsFiles),
    /// The file of the audit trail.
    Audit(&'c AuditConfig),
    /// The sources of keys and tokens.
    Customers(&'c CustomersConfig),
    /// The certificate authority of the collector of spans.
    Trace(&'c TraceConfig),
}

/// Checks one of them.
pub(crate) type PreflightCheck = fn(Preflight<'_>) -> anyhow::Result<()>;
