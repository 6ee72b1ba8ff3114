//! The audit trail: refusals and changes, as JSON lines in a file.
//!
//! Recording never blocks a request: lines go through a bounded queue to a writer thread. Lines that
//! find no room there or on the disk are counted, and the next line has the count.

mod file;
mod line;
mod tail;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use slidegate::Timestamp;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, WorkerGuard};

use self::file::AuditFile;
pub(super) use self::line::{AuditEvent, DecisionEvent, SettledPolicy};
pub(crate) use self::tail::{TrailLines, read_tail};
use crate::config::AuditConfig;
use crate::{disk, logs};

/// The trail. Clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    lines: NonBlocking,
    losses: Arc<Losses>,
    pub(super) every_decision: bool,
    pub(super) file: Arc<Path>,
}

impl Trail {
    /// Opens the file and begins. When the guard is dropped, what was recorded before has a second to
    /// be written.
    pub(crate) fn begin(config: &AuditConfig) -> anyhow::Result<(Self, WorkerGuard)> {
        let losses = Arc::<Losses>::default();
        let file = AuditFile::open(config, losses.clone())
            .with_context(|| format!("audit.file: cannot open {}", config.file.display()))?;
        let (lines, worker) = logs::non_blocking("audit", file);
        let _ = losses.in_queue.set(lines.error_counter());
        let (every_decision, file) = (config.every_decision, config.file.as_path().into());
        Ok((Self { lines, losses, every_decision, file }, worker))
    }

    /// Finds out whether the file could be opened, and leaves nothing behind.
    pub(crate) fn check(config: &AuditConfig) -> anyhow::Result<()> {
        match config.file.exists() {
            true => AuditFile::open(config, Arc::default()).map(drop).context("cannot open"),
            false => disk::try_writing(&config.file),
        }
    }

    pub(super) fn record(&self, at: Timestamp, event: &AuditEvent<'_>) {
        // It cannot fail: what finds no room in the queue is counted.
        let _ = self.lines.clone().write_all(&event.to_line(at));
    }

    /// How many records are not in the trail.
    pub(super) fn dropped(&self) -> u64 {
        self.losses.total()
    }
}

/// Counts records that are not in the trail.
#[derive(Debug, Default)]
struct Losses {
    in_queue: OnceLock<ErrorCounter>,
    on_disk: AtomicU64,
}

impl Losses {
    fn total(&self) -> u64 {
        let in_queue = self.in_queue.get().map_or(0, |queue| queue.dropped_lines() as u64);
        in_queue + self.on_disk.load(Ordering::Relaxed)
    }
}
