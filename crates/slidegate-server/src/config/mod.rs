//! The configuration: a file, flags and the environment, checked together.
//!
//! A flag outweighs the environment, which outweighs the file, which outweighs the defaults: the
//! file is parsed into a `tree`, in which `overlay` sets what flags and variables say, and to which
//! the tables of the keys file are added. Each section is a struct that a `reader` builds from its
//! table, with its keys and defaults in one place. All errors are collected and reported at once,
//! each with its line. A reload calls [`load`] again with the same [`Sources`]. `schema.json` says the
//! same of a file to editors.

mod api_keys;
mod customers;
mod endpoints;
mod error;
mod flags;
mod gateway;
mod limiter;
mod lint;
mod logs;
mod overlay;
mod policy;
mod preflight;
mod reader;
mod schema;
mod sources;
mod standing;
mod store;
mod summary;
pub(crate) mod throttle;
mod trace;
mod tree;
mod values;

#[cfg(test)]
mod tests;

pub(crate) use self::customers::{
    CustomersConfig, JwtConfig, KeySetPlace, KeySourceConfig, KeySourceKind,
};
pub(crate) use self::endpoints::{EndpointConfig, RespConfig};
pub(crate) use self::error::ConfigErrors;
pub(crate) use self::flags::Flags;
pub(crate) use self::gateway::{GatewayConfig, TlsFiles};
pub(crate) use self::limiter::LimiterConfig;
pub(crate) use self::logs::{AuditConfig, LogConfig, LogFormat};
pub(crate) use self::preflight::{Preflight, PreflightCheck};
pub(crate) use self::reader::DataFile;
pub(crate) use self::reader::Value;
pub(crate) use self::schema::{SCHEMA, SCHEMA_HELP, SCHEMA_LINE};
pub(crate) use self::sources::{File, MAX_BYTES, Sources, read_named};
pub(crate) use self::standing::StandingConfig;
pub(crate) use self::store::{RedisConfig, SnapshotConfig, StoreConfig};
pub(crate) use self::summary::{ConfigSummary, LimitSummary};
pub(crate) use self::trace::TraceConfig;
pub(crate) use self::values::Secret;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::error::{Diagnostic, Origin};
use self::flags::Profile;
use self::limiter::LimiterSections;
use self::lint::Lint;
use self::reader::Reader;
use self::tree::Node;

/// The whole configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// What a server is started with.
    pub(crate) server: ServerConfig,
    /// Policies, responses and client addresses: the part that a reload can change.
    pub(crate) limiter: LimiterConfig,
    /// The files of keys and networks, which are to be watched.
    pub(crate) data_files: Vec<DataFile>,
    /// The files whose contents are a part of it.
    pub(crate) files: BTreeSet<PathBuf>,
}

/// What a server is started with. A reload applies the gateway's routes of it, and reports other changes.
#[derive(Debug)]
pub(crate) struct ServerConfig {
    /// The proxying endpoint, if there is an upstream.
    pub(crate) gateway: Option<GatewayConfig>,
    /// The decision API: returns verdicts that the caller enforces.
    pub(crate) decisions: Option<EndpointConfig>,
    /// How long what programs hold can be settled.
    pub(crate) settle_within: Duration,
    /// The endpoint for Redis clients.
    pub(crate) resp: Option<RespConfig>,
    /// The rate limit service for Envoy.
    pub(crate) rls: Option<EndpointConfig>,
    /// Metrics, health and the admin endpoint.
    pub(crate) admin: EndpointConfig,
    /// Where accounts are kept.
    pub(crate) store: StoreConfig,
    /// Where keys and tokens are looked up.
    pub(crate) customers: CustomersConfig,
    /// How many accounts of local policies this process keeps, and how many records of bans.
    pub(crate) local_capacity: usize,
    /// How long connections are still accepted after a stop signal, while `/readyz` is 503 already.
    pub(crate) drain_delay: Duration,
    /// What is logged.
    pub(crate) log: LogConfig,
    /// The audit trail, if there is to be one.
    pub(crate) audit: Option<AuditConfig>,
    /// Where spans of the gateway's requests go, if anywhere.
    pub(crate) trace: Option<TraceConfig>,
}

/// Orchestrators kill a process that takes longer to stop.
const MAX_DRAIN_DELAY: Duration = Duration::from_secs(3600);

/// The configuration and its warnings.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) warnings: Vec<Diagnostic>,
}

impl Loaded {
    /// The same, with another name for a file.
    pub(crate) fn renamed(mut self, from: &Path, to: &Path) -> Self {
        self.warnings.iter_mut().for_each(|warning| warning.rename(from, to));
        self
    }
}

/// Reads and validates the configuration; the error lists all problems.
pub(crate) fn load(sources: &Sources) -> Result<Loaded, ConfigErrors> {
    load_with(Reader::default(), sources)
}

/// The same for a text whose author may not know what is in other files than these.
pub(crate) fn load_with_files(
    sources: &Sources,
    allowed: BTreeSet<PathBuf>,
) -> Result<Loaded, ConfigErrors> {
    load_with(Reader::for_files(allowed), sources)
}

/// Reads and validates the configuration, and has what the server needs to start checked: certificates,
/// files and folders.
pub(crate) fn load_to_start(
    sources: &Sources,
    preflight: PreflightCheck,
) -> Result<Loaded, ConfigErrors> {
    load_with(Reader::for_start(preflight), sources)
}

fn load_with(reader: Reader, sources: &Sources) -> Result<Loaded, ConfigErrors> {
    let reader = if sources.skip_files { Reader::skipping_files() } else { reader };
    let file = sources.read().unwrap_or_else(|error| {
        reader.report(error);
        None
    });
    let mut root = match &file {
        Some(file) => reader.parse(&file.path, &file.text),
        None => Node::empty(Origin::Default),
    };
    api_keys::add_keys_file(&mut root, &reader);
    overlay::overlay(&mut root, &sources.flags, &sources.environment, &reader);
    let enforced = overlay::enforced(&sources.environment, &reader);
    let config = read(&reader.root(&root), enforced);
    reader.report_unknown(&root);
    if let Some(file) = file.filter(|file| file.is_open_to_all && reader.has_secrets.get()) {
        let text = "every user of this machine may read the file, and it has secrets: chmod o-r";
        reader.warn(Origin::File { path: file.path.into(), line: None }, text);
    }
    let (files, data_files) = (reader.files.take(), reader.watched.take());
    let (errors, mut warnings) = reader.finish();
    warnings.sort_by(|a, b| a.location.cmp(&b.location));
    let config = config.filter(|_| errors.is_empty()).ok_or_else(|| ConfigErrors::new(errors))?;
    Ok(Loaded { config: Config { data_files, files, ..config }, warnings })
}

/// Reads another TOML file as the configuration is read: unknown keys are errors, and the error lists
/// all problems with their lines.
pub(crate) fn read_toml<T>(
    path: &Path,
    read: impl FnOnce(&Value<'_>) -> Option<T>,
) -> Result<T, ConfigErrors> {
    let reader = Reader::default();
    let file = sources::read_file(path).map_err(|error| ConfigErrors::new(vec![error]))?;
    let root = reader.parse(&file.path, &file.text);
    let value = read(&reader.root(&root));
    reader.report_unknown(&root);
    let (mut errors, _) = reader.finish();
    for error in &mut errors {
        // What is missing from the file is missing from all of it.
        if error.location.origin == Origin::Default {
            error.location.origin = Origin::File { path: path.into(), line: None };
        }
    }
    value.filter(|_| errors.is_empty()).ok_or_else(|| ConfigErrors::new(errors))
}

/// Reads every section, and checks what is between them. None if there are errors that leave no
/// configuration; there may be others.
fn read(root: &Value<'_>, enforced: bool) -> Option<Config> {
    // The overlay has made a policy of it.
    root.key("profile").word::<Profile>();
    let (gateway_table, store_table) = (root.section("gateway"), root.section("store"));
    let gateway = GatewayConfig::read(&gateway_table);
    let decisions = root.section("decisions");
    // It is there if it is configured, or if no other endpoint would be public.
    let resp = root.key("resp").table().map(|table| RespConfig::read(&table));
    let rls = EndpointConfig::read_rls(&root.section("rls"));
    let is_other_public = gateway.is_some() || resp.is_some() || rls.is_some();
    let has_decisions = decisions.is_set() || !is_other_public;
    let settle_within = endpoints::read_settle_within(&decisions);
    let decisions = EndpointConfig::read(&decisions, "127.0.0.1:8081", sources::DECISIONS_TOKEN);
    let decisions = has_decisions.then_some(decisions);
    let admin =
        EndpointConfig::read(&root.section("admin"), "127.0.0.1:9090", sources::ADMIN_TOKEN);
    let store = StoreConfig::read(&store_table);
    let customers = CustomersConfig::read(root);
    root.check_start(None, Preflight::Customers(&customers));
    let local_capacity = store::read_capacity(&store_table.key("local_capacity"));
    let drain_delay = root.key("drain_delay").period(MAX_DRAIN_DELAY).unwrap_or_default();
    let log = LogConfig::read(&root.section("log"));
    let audit = root.key("audit").table().and_then(|table| AuditConfig::read(&table));
    let trace = TraceConfig::read(root);
    let limiter = LimiterSections::read(root, resp.as_ref(), enforced);

    let policies = limiter.check(root);
    let resp_endpoint = resp.as_ref().map(|resp| &resp.endpoint);
    let endpoints = [decisions.as_ref(), resp_endpoint, rls.as_ref(), Some(&admin)];
    endpoints::check(root, gateway.as_ref(), endpoints);
    StandingConfig::check(root, gateway.is_some());
    TraceConfig::check(root, gateway.is_some());
    if let Some(StoreConfig::Redis(redis)) = &store {
        let mut names: Vec<&str> = limiter.policies.iter().map(|policy| &*policy.name).collect();
        names.extend(resp.iter().flat_map(|_| throttle::POLICIES));
        redis.check_policies(&store_table, &names, policies.as_ref());
    }
    if let (Some(gateway), Some(policies)) = (&gateway, &policies) {
        gateway.check_headers(&gateway_table, policies);
    }

    let policies = policies?;
    // Redis clients name policies, so a gateway beside them may be what the keys are meant for.
    let blind = [
        ("[decisions]", has_decisions),
        ("[rls]", rls.is_some()),
        ("[resp]", resp.is_some() && gateway.is_none()),
    ];
    let blind: Vec<&str> =
        blind.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    Lint {
        root,
        limiter: &limiter,
        policies: &policies,
        gateway: gateway.as_ref(),
        // Redis clients can name users and plans too.
        has_decisions: has_decisions || resp.is_some(),
        has_rls: rls.is_some(),
        blind: &blind,
        has_redis: matches!(store, Some(StoreConfig::Redis(_))),
        customers: &customers,
    }
    .run();
    let limiter = limiter.finish(root, policies)?;
    let (store, data_files, files) = (store?, Vec::new(), BTreeSet::new());
    let server = ServerConfig {
        gateway,
        decisions,
        settle_within,
        resp,
        rls,
        admin,
        store,
        customers,
        local_capacity,
        drain_delay,
        log,
        audit,
        trace,
    };
    Some(Config { server, limiter, data_files, files })
}
