//! What is written down: logs and the audit trail.

use std::path::PathBuf;

/// What is logged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogConfig {
    pub(crate) format: LogFormat,
    /// A filter such as `info` or `slidegate=debug`.
    pub(crate) level: String,
    /// A line for every request.
    pub(crate) access: bool,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Pretty on a terminal, JSON elsewhere
    #[default]
    Auto,
    /// A JSON object a line
    Json,
    /// For people
    Pretty,
}

/// The trail of what was denied and done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AuditConfig {
    pub(crate) file: PathBuf,
    /// Also what was allowed.
    pub(crate) every_decision: bool,
    /// How large the file may become before another is begun.
    pub(crate) rotate_bytes: u64,
    /// How many full files are kept.
    pub(crate) keep: usize,
}
