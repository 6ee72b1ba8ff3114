//! The configuration: a file, flags and the environment, checked together.
//!
//! A flag outweighs the environment, which outweighs the file, which outweighs the defaults: the
//! file is parsed into a `tree`, in which `overlay` sets what flags and variables say. Each section
//! is a struct that a `reader` builds from its table, with its keys and defaults in one place. All
//! errors are collected and reported at once, each with its line. A reload calls [`load`] again
//! with the same [`Sources`].

mod access_list;
mod api_keys;
mod endpoints;
mod error;
mod flags;
mod gateway;
mod limiter;
mod lint;
mod logs;
mod overlay;
mod policy;
mod reader;
mod responses;
mod sources;
mod store;
mod summary;
mod tree;
mod values;

#[cfg(test)]
mod tests;

pub(crate) use self::api_keys::KeysFileVersion;
pub(crate) use self::endpoints::{AdminConfig, DecisionsConfig};
pub(crate) use self::error::{ConfigErrors, ConfigWarning};
pub(crate) use self::flags::Flags;
pub(crate) use self::gateway::{
    Bounds, GatewayConfig, HeaderRules, HostRule, RouteConfig, Timeouts, TlsFiles,
};
pub(crate) use self::limiter::LimiterConfig;
pub(crate) use self::logs::{AuditConfig, LogConfig, LogFormat};
pub(crate) use self::sources::{Environment, File, Sources};
pub(crate) use self::store::{RedisConfig, SnapshotConfig, StoreConfig};
pub(crate) use self::summary::{ConfigSummary, PolicySummary};
pub(crate) use self::values::{ListenAddress, Period, Secret};

use std::path::Path;

use self::error::ConfigError;
use self::flags::Profile;
use self::limiter::LimiterSections;
use self::lint::Lint;
use self::reader::{Reader, Value};
use self::tree::Node;
use crate::net::Tls;
use crate::observe::Trail;
use crate::{disk, server};

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
    /// The audit trail, if there is to be one.
    pub(crate) audit: Option<AuditConfig>,
    /// The file that API keys were read from, which is to be watched.
    pub(crate) keys_file: Option<KeysFileVersion>,
}

/// The configuration and its warnings.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) warnings: Vec<ConfigWarning>,
}

/// What a configuration is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The files and folders that the server needs are checked too.
    Start,
    /// They are not: policies can be changed while a disk is full or a certificate is replaced.
    Reload,
}

/// Reads and validates the configuration; the error lists all problems.
pub(crate) fn load(sources: &Sources) -> Result<Loaded, ConfigErrors> {
    load_for(Purpose::Reload, sources)
}

/// The same, and also checks the files and folders that the server needs to start.
pub(crate) fn load_to_start(sources: &Sources) -> Result<Loaded, ConfigErrors> {
    load_for(Purpose::Start, sources)
}

fn load_for(purpose: Purpose, sources: &Sources) -> Result<Loaded, ConfigErrors> {
    let mut reader = Reader::default();
    let file = sources.read().unwrap_or_else(|error| {
        reader.report(error);
        None
    });
    let (mut root, syntax_errors) = match &file {
        Some(file) => Node::parse(&file.name, &file.text),
        None => (Node::empty(), Vec::new()),
    };
    if let Some(file) = file {
        (reader.folder, reader.is_open_to_all) = (file.folder, file.is_open_to_all);
    }
    overlay::overlay(&mut root, &sources.flags, &sources.environment, &reader);
    let loaded = read(&root, &reader, purpose, &sources.environment);
    let errors = reader.into_errors(syntax_errors);
    loaded.filter(|_| errors.is_empty()).ok_or_else(|| ConfigErrors::new(errors))
}

/// Reads every section, and checks what is between them. None if there are errors that leave no
/// configuration; there may be others.
fn read(
    root: &Node,
    reader: &Reader,
    purpose: Purpose,
    environment: &Environment,
) -> Option<Loaded> {
    let table = reader.root(root);
    // The overlay has made a policy of it.
    table.read("profile", Value::word::<Profile>);
    let (gateway_table, store_table) = (table.table("gateway"), table.table("store"));
    let gateway = GatewayConfig::read(&gateway_table);
    let decisions = DecisionsConfig::read(&table.table("decisions"), gateway.is_some());
    let admin = AdminConfig::read(&table.table("admin"));
    let store = StoreConfig::read(&store_table);
    let log = LogConfig::read(&table.table("log"));
    let audit = table.read("audit", |value| AuditConfig::read(&value.table()?));
    let limiter = LimiterSections::read(&table, &gateway_table);
    let enforced = overlay::enforced(environment, reader);

    let policies = limiter.check(root, reader);
    endpoints::check(root, gateway.as_ref(), decisions.as_ref(), &admin, reader);
    if let Some(StoreConfig::Redis(redis)) = &store {
        let names: Vec<&str> = limiter.policies.iter().map(|policy| &*policy.name).collect();
        redis.check_policies(&store_table, &names, policies.as_ref());
    }
    if let (Some(gateway), Some(policies)) = (&gateway, &policies) {
        gateway.check_headers(&gateway_table, policies);
    }
    if purpose == Purpose::Start {
        check_files(root, gateway.as_ref(), store.as_ref(), audit.as_ref(), reader);
    }

    let policies = policies?;
    let lint = Lint {
        root,
        limiter: &limiter,
        policies: &policies,
        has_gateway: gateway.is_some(),
        has_decisions: decisions.is_some(),
        is_open_to_all: reader.is_open_to_all,
        warnings: Vec::new(),
    };
    let warnings = lint.run(environment, enforced);
    let keys_file = limiter.api_keys.file.clone();
    let rules = limiter.finish(policies, enforced)?;
    let store = store?;
    let config = Config { gateway, decisions, admin, store, rules, log, audit, keys_file };
    Some(Loaded { config, warnings })
}

/// Reports what would keep the server from starting: certificates that cannot be used, and folders
/// in which the audit trail or a snapshot cannot be written.
fn check_files(
    root: &Node,
    gateway: Option<&GatewayConfig>,
    store: Option<&StoreConfig>,
    audit: Option<&AuditConfig>,
    reader: &Reader,
) {
    let report = |path: &[&str], file: Option<&Path>, result: anyhow::Result<()>| {
        let Err(error) = result else { return };
        let error = ConfigError::new(root.location(path), format!("{error:#}"));
        let file = file.map(|file| file.display().to_string());
        reader.report(error.with_text(file.as_deref()));
    };
    if let Some(tls) = gateway.and_then(|gateway| gateway.tls.as_ref()) {
        report(&["gateway", "tls"], None, Tls::load(tls).map(drop));
    }
    if let Some(audit) = audit {
        report(&["audit", "file"], Some(&audit.file), Trail::check(audit));
    }
    match store {
        Some(StoreConfig::Memory { snapshot: Some(snapshot), .. }) => {
            let file = &snapshot.file;
            report(&["store", "snapshot", "file"], Some(file), disk::try_writing(file));
        }
        Some(StoreConfig::Redis(redis)) => {
            let keys = ["ca", "certificate"].into_iter();
            let key = keys.clone().find(|key| root.get(&["store", key]).is_some());
            report(&["store", key.unwrap_or("url")], None, server::check_redis(redis));
        }
        _ => {}
    }
}
