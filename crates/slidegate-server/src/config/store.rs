//! `[store]`: where accounts are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use slidegate::{Name, Policies};
use slidegate_redis::{
    Address, BuildError, KeyTemplate, Layout, LocalShare, RedisStore, RedisStoreBuilder, RedisTls,
    ScoreUnit,
};

use crate::config::error::Origin;
use crate::config::gateway::TlsFiles;
use crate::config::preflight::Preflight;
use crate::config::reader::Value;
use crate::config::tree::Node;

/// Where accounts are kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StoreConfig {
    /// In this process.
    Memory {
        capacity: usize,
        snapshot: Option<SnapshotConfig>,
    },
    Redis(RedisConfig),
}

/// The file in which a memory store's accounts outlive a restart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SnapshotConfig {
    pub(crate) file: PathBuf,
    /// How often it is written while the server runs; without, only when the server stops.
    pub(crate) every: Option<Duration>,
}

/// How Redis is reached.
#[derive(Clone, PartialEq)]
pub(crate) struct RedisConfig {
    /// It may have a password in it.
    pub(crate) url: String,
    pub(crate) layout: Layout,
    pub(crate) score_unit: Option<ScoreUnit>,
    pub(crate) deadline: Duration,
    pub(crate) key_template: Option<KeyTemplate>,
    /// By policy.
    pub(crate) key_templates: BTreeMap<String, KeyTemplate>,
    /// Before every key.
    pub(crate) namespace: Option<Name>,
    pub(crate) share: Option<LocalShare>,
    /// Accounts that this process counts by itself while Redis is unavailable.
    pub(crate) capacity: usize,
    /// PEM files.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) client: Option<TlsFiles>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StoreKind {
    Memory,
    Redis,
}

/// The keys that mean nothing to a store in memory.
const REDIS_KEYS: [&str; 11] = [
    "url",
    "layout",
    "score_unit",
    "deadline",
    "key_template",
    "key_templates",
    "namespace",
    "share",
    "ca",
    "certificate",
    "key",
];
/// That of the stores themselves.
const DEFAULT_CAPACITY: usize = 1_000_000;
/// The default of the Redis store itself: many times what a call takes.
const DEADLINE: Duration = Duration::from_millis(50);
/// A client does not wait longer for a response.
const MAX_DEADLINE: Duration = Duration::from_secs(60);
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);

impl StoreConfig {
    /// Where accounts in memory outlive a restart, if they do.
    pub(crate) fn snapshot(&self) -> Option<&SnapshotConfig> {
        match self {
            Self::Memory { snapshot, .. } => snapshot.as_ref(),
            Self::Redis(_) => None,
        }
    }

    pub(super) fn read(table: &Value<'_>) -> Option<Self> {
        let kind = table.key("kind").word();
        let (url, snapshot) = (table.key("url"), table.key("snapshot"));
        let capacity = read_capacity(&table.key("capacity"));
        if kind == Some(StoreKind::Redis) || (kind.is_none() && url.is_set()) {
            if snapshot.is_set() {
                let expected = "only for kind = \"memory\": Redis keeps accounts by itself";
                snapshot.report_with(expected, None);
            }
            return RedisConfig::read(table, capacity).map(Self::Redis);
        }
        for value in REDIS_KEYS.map(|key| table.key(key)).iter().filter(|value| value.is_set()) {
            value.report_with("only for kind = \"redis\": the store is in memory", None);
        }
        let snapshot = snapshot.table().and_then(|table| SnapshotConfig::read(&table));
        Some(Self::Memory { capacity, snapshot })
    }
}

/// How many accounts a store in this process holds.
pub(super) fn read_capacity(value: &Value<'_>) -> usize {
    value.number(1..=(1_usize << 31) - 1).unwrap_or(DEFAULT_CAPACITY)
}

impl SnapshotConfig {
    fn read(table: &Value<'_>) -> Option<Self> {
        let value = table.key("file").required("the path of a file");
        let every = table.key("every").period(MAX_INTERVAL);
        let file = value.file()?;
        value.check_start(Some(&file), Preflight::Snapshot(&file));
        Some(Self { file, every })
    }
}

impl RedisConfig {
    fn read(table: &Value<'_>, capacity: usize) -> Option<Self> {
        let [certificate, key] = ["certificate", "key"].map(|key| table.key(key));
        for (one, other, name) in [(&certificate, &key, "key"), (&key, &certificate, "certificate")]
        {
            if one.is_set() && !other.is_set() {
                one.report_with(format!("expected its {name} too"), None);
            }
        }
        let mut url = table.key("url");
        if !url.is_set() {
            // It is missing at the kind, which asks for it.
            url.location.origin = table.key("kind").location.origin;
        }
        let url = url.required("where Redis is, such as redis://127.0.0.1:6379");
        if url.node.and_then(Node::text).is_some_and(has_password) {
            url.warn_of_secret("a password in the file: set REDIS_URL instead");
            let is_flag = matches!(url.location.origin, Origin::Flag(_));
            let text = "other users of this machine see the password: set REDIS_URL instead";
            url.warn_if(is_flag, text);
        }
        let url = url.secret();
        let client = certificate.file().zip(key.file());
        let templates = table.key("key_templates").names();
        let template = |(name, value): (&str, Value<'_>)| Some((name.to_owned(), value.parsed()?));
        let config = Self {
            url: url.as_ref().map(|url| url.reveal().to_owned()).unwrap_or_default(),
            layout: table.key("layout").parsed().unwrap_or_default(),
            score_unit: table.key("score_unit").parsed(),
            deadline: table.key("deadline").period(MAX_DEADLINE).unwrap_or(DEADLINE),
            key_template: table.key("key_template").parsed(),
            key_templates: templates.into_iter().filter_map(template).collect(),
            namespace: table.key("namespace").parsed(),
            share: table.key("share").parsed(),
            capacity,
            ca: table.key("ca").file(),
            client: client.map(|(certificate, key)| TlsFiles { certificate, key, client_ca: None }),
        };
        url?;
        config.check(table);
        Some(config)
    }

    /// Builds the store, which connects to nothing, to check the keys together.
    fn check(&self, table: &Value<'_>) {
        let first_of = |keys: &[&'static str]| {
            let mut values = keys.iter().map(|key| table.key(key));
            values.find(Value::is_set).unwrap_or(table.key("url"))
        };
        let certificates = &["ca", "certificate"];
        let mut builder = self.builder();
        if self.ca.is_some() || self.client.is_some() {
            builder = builder.tls(RedisTls::new());
        }
        let result = builder.build();
        if matches!(result, Ok(_) | Err(BuildError::UnusedCertificates)) {
            first_of(certificates).check_start(None, Preflight::Redis(self));
        }
        let Err(error) = result else { return };
        let value = match error {
            BuildError::ClusterTemplate(_) => first_of(&["key_template", "key_templates"]),
            BuildError::UnusedCertificates => first_of(certificates),
            BuildError::NoScores(_) => table.key("score_unit"),
            _ => table.key("url"),
        };
        value.report_with(error, None);
    }

    /// Reports templates of policies that there are not, and those by which two ledgers would share
    /// a key.
    pub(super) fn check_policies(
        &self,
        table: &Value<'_>,
        names: &[&str],
        policies: Option<&Policies>,
    ) {
        let templates = table.key("key_templates");
        for (_, value) in templates.names().iter().filter(|(name, _)| !names.contains(name)) {
            value.report_with("there is no such policy", None);
        }
        // A store that cannot be built has been reported.
        let (Some(policies), Ok(store)) = (policies, self.builder().build()) else { return };
        let Err(collisions) = store.check_policies(policies) else { return };
        for collision in collisions.as_slice() {
            // At the later policy's own template, if one of the two has its own.
            let mut own = collision.policies().map(|name| templates.named(name)).into_iter().rev();
            let value = own.find(Value::is_set).unwrap_or(table.key("key_template"));
            value.report_with(collision, None);
        }
    }

    /// The store, but for its certificates.
    pub(crate) fn builder(&self) -> RedisStoreBuilder {
        let builder = RedisStore::builder(&self.url).layout(self.layout).deadline(self.deadline);
        let builder = self.score_unit.iter().fold(builder, |b, unit| b.score_unit(*unit));
        let builder = self.namespace.iter().fold(builder, |b, name| b.namespace(name.clone()));
        let builder = self.key_template.iter().fold(builder, |b, t| b.key_template(t.clone()));
        let named = |(policy, template): (&String, &KeyTemplate)| {
            Some((policy.parse::<Name>().ok()?, template.clone()))
        };
        let templates = self.key_templates.iter().filter_map(named);
        templates.fold(builder, |b, (policy, template)| b.key_template_of(policy, template))
    }

    /// Where Redis is, without a password.
    pub(crate) fn shown(&self) -> String {
        let address = self.url.parse::<Address>();
        address.map_or_else(|_| "Redis".to_owned(), |address| address.to_string())
    }
}

fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let login = rest.rsplit_once('@').map(|(login, _)| login);
    let is_queried = ["pass=", "password="].iter().any(|key| rest.contains(key));
    is_queried || login.is_some_and(|login| login.contains(':'))
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig").field("layout", &self.layout).finish_non_exhaustive()
    }
}
