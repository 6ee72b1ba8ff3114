//! Where overrides are persisted.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use slidegate_redis::SharedMap;

use super::record::OverrideRecord;
use crate::config::SnapshotConfig;
use crate::disk;

/// Where overrides are persisted.
#[derive(Debug, Clone)]
pub(crate) enum Persistence {
    /// In this process only.
    Process,
    /// In a file, read at the next start.
    File(Arc<Path>),
    /// In Redis, shared by all gateways.
    SharedMap(SharedMap),
}

impl Persistence {
    /// In a file beside the snapshot of accounts, if there is one.
    pub(crate) fn beside(snapshot: Option<&SnapshotConfig>) -> Self {
        match snapshot {
            Some(snapshot) => Self::File(disk::with_suffix(&snapshot.file, ".overrides").into()),
            None => Self::Process,
        }
    }
}

/// The version of the file format.
const FORM: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    slidegate_overrides: u32,
    overrides: Vec<StoredOverride>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredOverride {
    id: String,
    until_ms: u64,
    text: String,
}

/// Replaces the file atomically.
pub(super) fn write(path: &Path, overrides: &[OverrideRecord]) -> anyhow::Result<()> {
    let keep = |record: &OverrideRecord| {
        let (id, text) = (record.id.clone(), record.text());
        StoredOverride { id, until_ms: record.until_ms, text }
    };
    let overrides = overrides.iter().map(keep).collect();
    let contents = serde_json::to_vec(&Contents { slidegate_overrides: FORM, overrides })?;
    disk::replace(path, |file| std::io::Write::write_all(file, &contents))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The overrides in the file; none if there is no file. A damaged file is an error: starting
/// without an operator's bans must not go unnoticed.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<OverrideRecord>> {
    let shown = path.display();
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.with_context(|| format!("cannot read {shown}"))?,
    };
    let damaged =
        || format!("cannot read overrides from {shown}; move the file away to start without it");
    let contents: Contents = serde_json::from_slice(&text).with_context(damaged)?;
    anyhow::ensure!(contents.slidegate_overrides == FORM, damaged());
    let read = |kept: &StoredOverride| OverrideRecord::read(&kept.id, &kept.text, kept.until_ms);
    contents.overrides.iter().map(|kept| read(kept).with_context(damaged)).collect()
}
