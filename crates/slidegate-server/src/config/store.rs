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

use crate::config::error::{ConfigError, Location};
use crate::config::gateway::TlsFiles;
use crate::config::reader::{Table, Value};

/// Where accounts are kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StoreConfig {
    /// In this process, for a million accounts by default.
    Memory {
        capacity: Option<usize>,
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
    pub(crate) share: Option<LocalShare>,
    /// Accounts that this process counts by itself while Redis is unavailable.
    pub(crate) capacity: Option<usize>,
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
const REDIS_KEYS: [&str; 10] = [
    "url",
    "layout",
    "score_unit",
    "deadline",
    "key_template",
    "key_templates",
    "share",
    "ca",
    "certificate",
    "key",
];
/// The default of the Redis store itself: many times what a call takes.
const DEADLINE: Duration = Duration::from_millis(50);
/// A client does not wait longer for a response.
const LONGEST_DEADLINE: Duration = Duration::from_secs(60);
const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 3600);

impl StoreConfig {
    pub(super) fn read(table: &Table<'_>) -> Option<Self> {
        let kind = table.read("kind", Value::word);
        let capacity = table.read("capacity", |value| value.number(1..=(1_u32 << 31) - 1));
        let capacity = capacity.map(|accounts| accounts as usize);
        if kind == Some(StoreKind::Redis) || (kind.is_none() && table.has("url")) {
            if table.has("snapshot") {
                let expected = "only for kind = \"memory\": Redis keeps accounts by itself";
                table.report("snapshot", expected);
            }
            return Some(Self::Redis(RedisConfig::read(table, capacity)?));
        }
        for key in REDIS_KEYS.into_iter().filter(|key| table.has(key)) {
            table.report(key, "only for kind = \"redis\": the store is in memory");
        }
        let snapshot = table.read("snapshot", |value| SnapshotConfig::read(&value.table()?));
        Some(Self::Memory { capacity, snapshot })
    }
}

impl SnapshotConfig {
    fn read(table: &Table<'_>) -> Option<Self> {
        let file = table.require("file", "the path of a file", Value::file);
        let every = table.read("every", |value| value.period(LONGEST_INTERVAL));
        Some(Self { file: file?, every })
    }
}

impl RedisConfig {
    fn read(table: &Table<'_>, capacity: Option<usize>) -> Option<Self> {
        let template = |(name, value): (&str, Value<'_>)| Some((name.to_owned(), value.parsed()?));
        let (certificate, key) =
            (table.read("certificate", Value::file), table.read("key", Value::file));
        for (alone, other) in [("certificate", "key"), ("key", "certificate")] {
            if table.has(alone) && !table.has(other) {
                table.report(alone, format!("expected its {other} too"));
            }
        }
        if !table.has("url") {
            let expected = "missing: expected where Redis is, such as redis://127.0.0.1:6379";
            // At the kind, which asks for it.
            let origin = table.node.map(|node| node.location(&["kind"]).origin);
            let location = Location { origin: origin?, key: "store.url".to_owned() };
            table.reader.report(ConfigError::new(location, expected));
        }
        let url = table.read("url", Value::secret);
        let config = Self {
            url: url.as_ref().map(|url| url.reveal().to_owned()).unwrap_or_default(),
            layout: table.read("layout", Value::parsed).unwrap_or_default(),
            score_unit: table.read("score_unit", Value::parsed),
            deadline: table
                .read("deadline", |value| value.period(LONGEST_DEADLINE))
                .unwrap_or(DEADLINE),
            key_template: table.read("key_template", Value::parsed),
            key_templates: table.names("key_templates").into_iter().filter_map(template).collect(),
            share: table.read("share", Value::parsed),
            capacity,
            ca: table.read("ca", Value::file),
            client: certificate.zip(key).map(|(certificate, key)| TlsFiles { certificate, key }),
        };
        url?;
        config.check(table);
        Some(config)
    }

    /// Builds the store, which connects to nothing, to check the keys together.
    fn check(&self, table: &Table<'_>) {
        let mut builder = self.builder();
        if self.ca.is_some() || self.client.is_some() {
            builder = builder.tls(RedisTls::new());
        }
        let Err(error) = builder.build() else { return };
        let keys: &[&'static str] = match error {
            BuildError::ClusterTemplate(_) => &["key_template", "key_templates"],
            BuildError::UnusedCertificates => &["ca", "certificate"],
            BuildError::NoScores(_) => &["score_unit"],
            _ => &[],
        };
        table.report(keys.iter().find(|key| table.has(key)).unwrap_or(&"url"), error);
    }

    /// Reports templates of policies that there are not, and those by which two ledgers would share
    /// a key.
    pub(super) fn check_policies(
        &self,
        table: &Table<'_>,
        names: &[&str],
        policies: Option<&Policies>,
    ) {
        let report = |value: &Value<'_>, expected: &dyn fmt::Display| {
            table.reader.report(ConfigError::new(value.node.location.clone(), expected));
        };
        let templates = table.names("key_templates");
        for (_, value) in templates.iter().filter(|(name, _)| !names.contains(name)) {
            report(value, &"there is no such policy");
        }
        // A store that cannot be built has been reported.
        let (Some(policies), Ok(store)) = (policies, self.builder().build()) else { return };
        let Err(collisions) = store.check_policies(policies) else { return };
        for collision in collisions.as_slice() {
            // At the later policy's own template, if one of the two has its own.
            let own = |name: &&Name| templates.iter().find(|(policy, _)| **policy == ***name);
            match collision.policies().iter().rev().find_map(own) {
                Some((_, template)) => report(template, collision),
                None => table.report("key_template", collision),
            }
        }
    }

    /// The store, but for its certificates.
    pub(crate) fn builder(&self) -> RedisStoreBuilder {
        let builder = RedisStore::builder(&self.url).layout(self.layout).deadline(self.deadline);
        let builder = self.score_unit.iter().fold(builder, |b, unit| b.score_unit(*unit));
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

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig").field("layout", &self.layout).finish_non_exhaustive()
    }
}
