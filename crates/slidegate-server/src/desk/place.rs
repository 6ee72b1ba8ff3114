//! Where orders are kept.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use slidegate_redis::SharedMap;

use super::filed::Filed;
use crate::config::SnapshotConfig;
use crate::disk;

/// Where orders are kept.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In this process, and nowhere else.
    Here,
    /// In a file too, from which another life of the process has them.
    File(Arc<Path>),
    /// Where all gateways on one Redis read them.
    SharedMap(SharedMap),
}

impl Place {
    /// Beside the accounts, if those outlive the process.
    pub(crate) fn beside(snapshot: Option<&SnapshotConfig>) -> Self {
        match snapshot {
            Some(snapshot) => Self::File(disk::with_suffix(&snapshot.file, ".orders").into()),
            None => Self::Here,
        }
    }
}

/// The form of the file.
const FORM: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    slidegate_orders: u32,
    orders: Vec<Kept>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    id: String,
    until_ms: u64,
    text: String,
}

/// Puts these orders in the file's place, in one step.
pub(super) fn write(path: &Path, orders: &[Filed]) -> anyhow::Result<()> {
    let keep = |order: &Filed| {
        let (id, text) = (order.id.clone(), order.text());
        Kept { id, until_ms: order.until_ms, text }
    };
    let orders = orders.iter().map(keep).collect();
    let contents = serde_json::to_vec(&Contents { slidegate_orders: FORM, orders })?;
    disk::replace(path, |file| std::io::Write::write_all(file, &contents))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The orders in the file; none if there is no file. A damaged one is an error: to begin without
/// bans that somebody has given is nothing to do in silence.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Filed>> {
    let shown = path.display();
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.with_context(|| format!("cannot read {shown}"))?,
    };
    let damaged =
        || format!("cannot read orders from {shown}; move the file away to begin without");
    let contents: Contents = serde_json::from_slice(&text).with_context(damaged)?;
    anyhow::ensure!(contents.slidegate_orders == FORM, damaged());
    let read = |kept: &Kept| Filed::read(&kept.id, &kept.text, kept.until_ms);
    contents.orders.iter().map(|kept| read(kept).with_context(damaged)).collect()
}
