//! `[store]`.

use std::path::PathBuf;
use std::time::Duration;

use slidegate_redis::{KeyTemplate, Layout, LocalShare, ScoreUnit};

use crate::config::gateway::TlsFiles;
use crate::config::location::Sourced;
use crate::config::reader::{Table, Value};
use crate::config::secret::Secret;
use crate::config::store::SnapshotConfig;

/// `[store]`.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenStore {
    pub(in crate::config) kind: Option<Sourced<StoreKind>>,
    pub(in crate::config) url: Option<Sourced<Secret>>,
    pub(in crate::config) layout: Option<Sourced<Layout>>,
    pub(in crate::config) score_unit: Option<Sourced<ScoreUnit>>,
    pub(in crate::config) deadline: Option<Sourced<Duration>>,
    pub(in crate::config) key_template: Option<Sourced<KeyTemplate>>,
    pub(in crate::config) key_templates: Vec<(Sourced<String>, KeyTemplate)>,
    pub(in crate::config) share: Option<Sourced<LocalShare>>,
    pub(in crate::config) capacity: Option<usize>,
    pub(in crate::config) ca: Option<Sourced<PathBuf>>,
    pub(in crate::config) certificate: Option<Sourced<PathBuf>>,
    pub(in crate::config) key: Option<Sourced<PathBuf>>,
    pub(in crate::config) snapshot: Option<Sourced<SnapshotConfig>>,
}

/// The kinds of stores there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum StoreKind {
    Memory,
    Redis,
}

/// A request that waits longer is lost anyway.
const LONGEST_DEADLINE: Duration = Duration::from_secs(60);
const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 3600);

impl WrittenStore {
    pub(super) fn read(table: &Table<'_>) -> Self {
        let kinds = [("memory", StoreKind::Memory), ("redis", StoreKind::Redis)];
        let capacity = table.get("capacity");
        let capacity: Option<u32> = capacity.and_then(|value| value.number(1..=(1 << 31) - 1));
        Self {
            kind: table.sourced("kind", |value| value.one_of(&kinds)),
            url: table.sourced("url", Value::secret),
            layout: table.sourced("layout", Value::parsed),
            score_unit: table.sourced("score_unit", Value::parsed),
            deadline: table.sourced("deadline", |value| value.period(LONGEST_DEADLINE)),
            key_template: table.sourced("key_template", Value::parsed),
            key_templates: table
                .get("key_templates")
                .and_then(|value| value.names(templates))
                .unwrap_or_default(),
            share: table.sourced("share", Value::parsed),
            capacity: capacity.map(|accounts| accounts as usize),
            ca: table.sourced("ca", Value::file),
            certificate: table.sourced("certificate", Value::file),
            key: table.sourced("key", Value::file),
            snapshot: table.sourced("snapshot", |value| value.table(snapshot)?),
        }
    }

    /// The client's certificate, if both of its files are named.
    pub(in crate::config) fn client(&self) -> Option<TlsFiles> {
        let (certificate, key) = (self.certificate.as_ref()?, self.key.as_ref()?);
        Some(TlsFiles { certificate: certificate.value.clone(), key: key.value.clone() })
    }
}

fn templates(entries: Vec<(&str, Value<'_>)>) -> Vec<(Sourced<String>, KeyTemplate)> {
    let template = |(policy, value): (&str, Value<'_>)| {
        Some((value.location().with_value(policy.to_owned()), value.parsed()?))
    };
    entries.into_iter().filter_map(template).collect()
}

fn snapshot(table: &Table<'_>) -> Option<SnapshotConfig> {
    let file = table.get("file");
    if file.is_none() {
        table.missing("file", "the path of a file");
    }
    let every = table.get("every").and_then(|value| value.period(LONGEST_INTERVAL));
    Some(SnapshotConfig { file: file?.file()?, every })
}
