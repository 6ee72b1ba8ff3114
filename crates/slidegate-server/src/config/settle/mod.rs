//! Resolves the configuration: flags over environment over file over defaults.

mod endpoints;
pub(super) mod files;
mod gateway;
mod limiter;
mod overlay;
mod store;
mod tuning;

use crate::config::environment::Environment;
use crate::config::error::ConfigError;
use crate::config::flags::Flags;
use crate::config::record::LogConfig;
use crate::config::written::Written;
use crate::config::{Config, KeysFileVersion};

/// Fills in defaults and validates everything together. Origins are left in
/// `written`.
pub(super) fn settle(
    written: &mut Written,
    flags: &Flags,
    environment: &Environment,
    problems: &mut Vec<ConfigError>,
) -> Option<Config> {
    overlay::overlay(written, flags, environment, problems);
    let gateway = gateway::gateway(written, problems);
    let decisions = endpoints::decisions(written, environment, gateway.is_some());
    let admin = endpoints::admin(written);
    endpoints::check_collisions(written, problems);
    endpoints::check_tokens(written, problems);
    let store = store::store(written, problems);
    let rules = limiter::rules(written, store.as_ref(), problems);
    if let (Some(gateway), Some(rules)) = (&gateway, &rules) {
        gateway::check_dropped_headers(written, gateway, rules, problems);
    }
    Some(Config {
        gateway,
        decisions,
        admin,
        store: store?,
        rules: rules?,
        log: log(written),
        keys_file: written
            .keys_file
            .as_ref()
            .map(|file| KeysFileVersion { path: file.path.clone(), fingerprint: file.fingerprint }),
        audit: written.audit.as_ref().map(|audit| audit.config.clone()),
    })
}

fn log(written: &Written) -> LogConfig {
    let log = &written.log;
    LogConfig {
        format: log.format.unwrap_or_default(),
        level: log.level.clone().unwrap_or_else(|| "info".to_owned()),
        access: log.access.unwrap_or_default(),
    }
}
