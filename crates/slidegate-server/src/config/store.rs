//! Where accounts are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use slidegate::Name;
use slidegate_redis::{
    Address, KeyTemplate, Layout, LocalShare, RedisStore, RedisStoreBuilder, ScoreUnit,
};

use crate::config::gateway::TlsFiles;

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

/// Where an embedded store's accounts are between two lives of the server.
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
    /// Accounts that this process knows by itself, for when Redis cannot be asked.
    pub(crate) capacity: Option<usize>,
    /// PEM files.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) client: Option<TlsFiles>,
}

impl RedisConfig {
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
