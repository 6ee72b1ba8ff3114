//! From what is said to what it means: flags over the environment over the file over defaults.

mod doors;
pub(super) mod files;
mod gateway;
mod overlay;
mod rules;
mod store;
mod tuning;

use crate::config::environment::Environment;
use crate::config::flags::Flags;
use crate::config::problem::Problem;
use crate::config::record::LogConfig;
use crate::config::written::Written;
use crate::config::{Config, KeysFileVersion};

/// Fills in what nobody says, and checks all of it together. What is said by whom is left in
/// `written`.
pub(super) fn settle(
    written: &mut Written,
    flags: &Flags,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) -> Option<Config> {
    overlay::overlay(written, flags, environment, problems);
    let gateway = gateway::gateway(written, problems);
    let decisions = doors::decisions(written, environment, gateway.is_some());
    let admin = doors::admin(written);
    doors::check_collisions(written, problems);
    doors::check_tokens(written, problems);
    let store = store::store(written, problems);
    let rules = rules::rules(written, store.as_ref(), problems);
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
