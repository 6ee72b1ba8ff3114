//! `[decisions]`, `[admin]`, `[log]` and `[audit]`.

use tracing_subscriber::EnvFilter;

use crate::config::listen::ListenAddress;
use crate::config::reader::{Table, Value};
use crate::config::record::{AuditConfig, LogFormat};
use crate::config::secret::Secret;
use crate::config::spot::Said;
use crate::config::written::gateway::listen;

/// A door with nothing but an address.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenDoor {
    pub(in crate::config) listen: Vec<Said<ListenAddress>>,
}

/// `[admin]`.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenAdmin {
    pub(in crate::config) listen: Vec<Said<ListenAddress>>,
    pub(in crate::config) token: Option<Said<Secret>>,
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
pub(in crate::config) type WrittenAudit = AuditConfig;

/// Some hundred thousand denials.
const ROTATE_BYTES: u64 = 100 * 1024 * 1024;
const KEEP: usize = 5;

impl WrittenDoor {
    pub(super) fn read(table: &Table<'_>) -> Self {
        Self { listen: listen(table) }
    }
}

impl WrittenAdmin {
    pub(super) fn read(table: &Table<'_>) -> Self {
        let listen = listen(table);
        let token = table.said("token", Value::secret);
        let is_in_file = token.is_some();
        let from_file = table.get("token_file");
        if let Some(file) = from_file.as_ref().filter(|_| is_in_file) {
            file.report("a token is given already: expected token or token_file, not both");
            return Self { listen, token, is_in_file };
        }
        let read = |file: Value<'_>| file.secret_in_file().map(|secret| file.spot().says(secret));
        Self { listen, token: token.or_else(|| from_file.and_then(read)), is_in_file }
    }
}

impl WrittenLog {
    pub(super) fn read(table: &Table<'_>) -> Self {
        let formats =
            [("auto", LogFormat::Auto), ("json", LogFormat::Json), ("pretty", LogFormat::Pretty)];
        let level = |value: Value<'_>| {
            let text = value.text()?;
            if text.is_empty() || EnvFilter::try_new(text).is_err() {
                value.report("expected a level or filter such as info or slidegate=debug");
            }
            Some(text.to_owned())
        };
        Self {
            format: table.get("format").and_then(|value| value.word(&formats)),
            level: table.get("level").and_then(level),
            access: table.get("access").and_then(|value| value.boolean()),
        }
    }
}

impl AuditConfig {
    pub(super) fn read(table: &Table<'_>) -> Option<Self> {
        let file = table.get("file");
        if file.is_none() {
            table.missing("file", "the path of a file");
        }
        let every = table.get("every_decision").and_then(|value| value.boolean());
        let rotate = table.get("rotate_bytes");
        let rotate_bytes = rotate.and_then(|value| value.number(4096..=u64::MAX >> 1));
        let keep: Option<u32> = table.get("keep").and_then(|value| value.number(0..=10_000));
        Some(Self {
            file: file?.file()?,
            every_decision: every.unwrap_or_default(),
            rotate_bytes: rotate_bytes.unwrap_or(ROTATE_BYTES),
            keep: keep.map_or(KEEP, |keep| keep as usize),
        })
    }
}
