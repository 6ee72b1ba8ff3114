//! `[decisions]`, `[admin]`, `[log]` and `[audit]`.

use tracing_subscriber::EnvFilter;

use crate::config::listen::ListenAddress;
use crate::config::location::{Location, Sourced};
use crate::config::reader::{Table, Value};
use crate::config::record::{AuditConfig, LogFormat};
use crate::config::secret::Secret;
use crate::config::suggestion::nearest;
use crate::config::written::gateway::listen;

/// `[decisions]` and `[admin]`.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenEndpoint {
    pub(in crate::config) listen: Vec<Sourced<ListenAddress>>,
    pub(in crate::config) token: Option<Sourced<Secret>>,
    /// Whether the token itself is in the file.
    pub(in crate::config) is_in_file: bool,
}

/// `[log]`.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenLog {
    pub(in crate::config) format: Option<LogFormat>,
    pub(in crate::config) level: Option<String>,
    pub(in crate::config) access: Option<bool>,
}

/// `[audit]`.
#[derive(Debug, Clone)]
pub(in crate::config) struct WrittenAudit {
    pub(in crate::config) config: AuditConfig,
    pub(in crate::config) file: Location,
}

/// Some hundred thousand denials.
const ROTATE_BYTES: u64 = 100 * 1024 * 1024;
const KEEP: usize = 5;

impl WrittenEndpoint {
    pub(super) fn read(table: &Table<'_>) -> Self {
        let listen = listen(table);
        let token = table.sourced("token", Value::secret);
        let is_in_file = token.is_some();
        let from_file = table.get("token_file");
        if let Some(file) = from_file.as_ref().filter(|_| is_in_file) {
            file.report("a token is given already: expected token or token_file, not both");
            return Self { listen, token, is_in_file };
        }
        let read = |file: Value<'_>| {
            file.secret_in_file().map(|secret| file.location().with_value(secret))
        };
        Self { listen, token: token.or_else(|| from_file.and_then(read)), is_in_file }
    }
}

impl WrittenEndpoint {
    /// Takes the token that a variable has, in place of one in the file.
    pub(in crate::config) fn set_token(&mut self, variable: &'static str, token: &str) {
        self.token = Some(Location::variable(variable).with_value(Secret::new(token)));
        self.is_in_file = false;
    }
}

impl WrittenLog {
    pub(super) fn read(table: &Table<'_>) -> Self {
        let formats =
            [("auto", LogFormat::Auto), ("json", LogFormat::Json), ("pretty", LogFormat::Pretty)];
        let level = |value: Value<'_>| {
            let text = value.text()?;
            if let Some(problem) = level_problem(text) {
                value.report(problem);
            }
            Some(text.to_owned())
        };
        Self {
            format: table.get("format").and_then(|value| value.one_of(&formats)),
            level: table.get("level").and_then(level),
            access: table.get("access").and_then(|value| value.boolean()),
        }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What is wrong with a level, or with a filter such as `info,hyper=warn`.
///
/// A filter takes a word that is no level for the name of a target and silences all others, so every
/// part has to end with a level, and one of them has to be about this program.
fn level_problem(text: &str) -> Option<String> {
    let mut is_heard = false;
    for part in text.split(',') {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target.trim()), level.trim()),
            None => (None, part.trim()),
        };
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Some(unknown_level(level));
        }
        is_heard |= target.is_none_or(|target| target.starts_with("slidegate"));
    }
    if !is_heard {
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

impl WrittenAudit {
    pub(super) fn read(table: &Table<'_>) -> Option<Self> {
        let file = table.get("file");
        if file.is_none() {
            table.missing("file", "the path of a file");
        }
        let every = table.get("every_decision").and_then(|value| value.boolean());
        let rotate = table.get("rotate_bytes");
        let rotate_bytes = rotate.and_then(|value| value.number(4096..=u64::MAX >> 1));
        let keep: Option<u32> = table.get("keep").and_then(|value| value.number(0..=10_000));
        let file = file?;
        let config = AuditConfig {
            file: file.file()?,
            every_decision: every.unwrap_or_default(),
            rotate_bytes: rotate_bytes.unwrap_or(ROTATE_BYTES),
            keep: keep.map_or(KEEP, |keep| keep as usize),
        };
        Some(Self { config, file: file.location() })
    }
}
