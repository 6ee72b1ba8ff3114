//! Where overrides are persisted.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::record::OverrideRecord;
use crate::config::SnapshotConfig;
use crate::disk;
use crate::shared::exchange::Exchange;

/// Where overrides are persisted.
#[derive(Debug, Clone)]
pub(crate) enum Persistence {
    /// In this process only.
    Process,
    /// In a file, read at the next start.
    File(Arc<Path>),
    /// In Redis, shared by all gateways.
    Redis(Arc<Exchange>),
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
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideFile {
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
    let stored = |record: &OverrideRecord| StoredOverride {
        id: record.id.clone(),
        until_ms: record.until_ms,
        text: record.text(),
    };
    let overrides = overrides.iter().map(stored).collect();
    disk::replace_json(path, &OverrideFile { slidegate_overrides: FORMAT, overrides })
}

/// The overrides in the file; none if there is no file. A damaged file is an error: starting
/// without an operator's bans must not go unnoticed.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<OverrideRecord>> {
    let Some(file) = disk::read_json::<OverrideFile>(path)? else { return Ok(Vec::new()) };
    ensure!(file.slidegate_overrides == FORMAT, disk::damaged(path));
    let parse = |stored: &StoredOverride| {
        OverrideRecord::parse(&stored.id, &stored.text, stored.until_ms)
            .with_context(|| disk::damaged(path))
    };
    file.overrides.iter().map(parse).collect()
}
