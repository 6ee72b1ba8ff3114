//! `[log]` and `[audit]`.

use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

use crate::config::preflight::Preflight;
use crate::config::reader::{Value, nearest};

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

/// The audit trail: what was denied, and what operators did.
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

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl LogConfig {
    pub(super) fn read(table: &Value<'_>) -> Self {
        let level = table.key("level");
        let text = level.text().unwrap_or("info");
        level_error(text).iter().for_each(|expected| level.report(expected));
        Self {
            format: table.key("format").word().unwrap_or_default(),
            level: text.to_owned(),
            access: table.key("access").is_true(),
        }
    }
}

/// What is wrong with a level, or with a filter such as `info,hyper=warn`.
///
/// A filter takes a word that is no level for the name of a target and silences all others, so every
/// part has to end with a level, and one of them has to be about this program.
fn level_error(text: &str) -> Option<String> {
    let mut logs_us = false;
    for part in text.split(',') {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target.trim()), level.trim()),
            None => (None, part.trim()),
        };
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Some(unknown_level(level));
        }
        logs_us |= target.is_none_or(|target| target.starts_with("slidegate"));
    }
    if !logs_us {
        return Some(format!(
            "nothing of slidegate itself would be logged: expected a level too, such as info,{text}"
        ));
    }
    let expected = "expected a level, or a filter such as info,hyper=warn or slidegate=debug";
    EnvFilter::try_new(text).is_err().then(|| expected.to_owned())
}

fn unknown_level(word: &str) -> String {
    let begins =
        |level: &&str| !word.is_empty() && (word.starts_with(*level) || level.starts_with(word));
    let meant = LEVELS.into_iter().find(begins).or_else(|| nearest(word, LEVELS));
    let meant = meant.map(|level| format!("; did you mean {level}?")).unwrap_or_default();
    format!("{word:?} is no level: expected off, error, warn, info, debug or trace{meant}")
}

impl AuditConfig {
    pub(super) fn read(table: &Value<'_>) -> Option<Self> {
        let value = table.key("file").required("the path of a file");
        let rotate_bytes = table.key("rotate_bytes").number(4096..=u64::MAX >> 1);
        let keep = table.key("keep").number(0..=10_000);
        let every_decision = table.key("every_decision").is_true();
        let audit = Self {
            file: value.file()?,
            every_decision,
            // Some hundred thousand denials.
            rotate_bytes: rotate_bytes.unwrap_or(100 * 1024 * 1024),
            keep: keep.unwrap_or(5),
        };
        value.check_start(Some(&audit.file), Preflight::Audit(&audit));
        Some(audit)
    }
}
