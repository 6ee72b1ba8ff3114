//! What the server is to do, checked: from a file, flags and the environment.
//!
//! ```text
//! config::load(&Sources) -> Result<Loaded, Problems>
//! Sources { file: Option<File>, flags: Flags, environment: Environment }       Clone
//! Loaded { config: Config, warnings: Vec<Warning> }
//! ```
//!
//! A flag outweighs the environment, which outweighs the file, which outweighs the defaults.
//! [`ConfigErrors`] has everything that is wrong, a line each. A reload calls [`load`] again with
//! the same sources. The way of a file is: text, tree with lines (`document`, `reader`), what is
//! written (`written`), what is said on top (`settle::overlay`), what it means (`settle`), what is
//! probably not meant (`lint`).

mod document;
mod endpoints;
mod environment;
mod error;
mod flags;
mod gateway;
mod limiter;
mod lint;
mod listen;
mod location;
mod period;
mod profile;
mod reader;
mod record;
mod secret;
mod settle;
mod sources;
mod store;
mod suggestion;
mod summary;
mod warning;
mod written;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use self::document::Document;
pub(crate) use self::endpoints::{AdminConfig, DecisionsConfig};
pub(crate) use self::environment::Environment;
use self::error::ConfigError;
pub(crate) use self::error::ConfigErrors;
pub(crate) use self::flags::Flags;
pub(crate) use self::gateway::{
    Bounds, GatewayConfig, HeaderRules, HostRule, RouteConfig, Timeouts, TlsFiles,
};
pub(crate) use self::limiter::LimiterConfig;
pub(crate) use self::listen::ListenAddress;
pub(crate) use self::period::Period;
pub(crate) use self::profile::Profile;
pub(crate) use self::record::{AuditConfig, LogConfig, LogFormat};
pub(crate) use self::secret::Secret;
use self::sources::FileText;
pub(crate) use self::sources::{File, Sources};
pub(crate) use self::store::{RedisConfig, SnapshotConfig, StoreConfig};
pub(crate) use self::summary::{ConfigSummary, PolicySummary, QuotaSummary};
pub(crate) use self::warning::ConfigWarning;
use self::written::Written;

/// The whole configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// The proxying endpoint, if there is an upstream.
    pub(crate) gateway: Option<GatewayConfig>,
    /// The endpoint for programs that ask and do the rest themselves.
    pub(crate) decisions: Option<DecisionsConfig>,
    /// Metrics, health and the admin endpoint.
    pub(crate) admin: AdminConfig,
    /// Where accounts are kept.
    pub(crate) store: StoreConfig,
    /// Policies, responses and client addresses: the part that a reload can change.
    pub(crate) rules: LimiterConfig,
    /// What is logged.
    pub(crate) log: LogConfig,
    /// The trail of what was denied and done, if there is to be one.
    pub(crate) audit: Option<AuditConfig>,
    /// The file that API keys were read from, which is to be watched.
    pub(crate) keys_file: Option<KeysFileVersion>,
}

/// A file of API keys as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeysFileVersion {
    pub(crate) path: PathBuf,
    /// Changes with the contents.
    pub(crate) fingerprint: u64,
}

/// The configuration and its warnings.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) warnings: Vec<ConfigWarning>,
}

/// Reads and validates the configuration; the error lists all problems.
pub(crate) fn load(sources: &Sources) -> Result<Loaded, ConfigErrors> {
    load_with(sources, |_, _, _| {})
}

/// The same, and also checks the files and folders that the server needs to start. A reload does
/// without: policies can be changed while a disk is full or a certificate is being replaced.
pub(crate) fn load_to_start(sources: &Sources) -> Result<Loaded, ConfigErrors> {
    load_with(sources, settle::files::check)
}

fn load_with(
    sources: &Sources,
    check: impl FnOnce(&Written, Option<&Config>, &mut Vec<ConfigError>),
) -> Result<Loaded, ConfigErrors> {
    let mut problems = Vec::new();
    let file = sources.read().unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let mut written = file.as_ref().map_or_else(Written::default, |file| read(file, &mut problems));
    let config = settle::settle(&mut written, &sources.flags, &sources.environment, &mut problems);
    check(&written, config.as_ref(), &mut problems);
    match config {
        Some(config) if problems.is_empty() => {
            let is_open_to_all = file.is_some_and(|file| file.is_open_to_all);
            let warnings = lint::lint(&written, &sources.environment, is_open_to_all);
            Ok(Loaded { config, warnings })
        }
        _ => Err(ConfigErrors::new(problems)),
    }
}

fn read(file: &FileText, problems: &mut Vec<ConfigError>) -> Written {
    let document = Document::new(&file.name, &file.folder, &file.text);
    let written = document.read(&file.text, Written::read);
    problems.extend(document.into_problems());
    written
}
