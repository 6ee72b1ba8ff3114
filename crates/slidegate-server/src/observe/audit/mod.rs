//! The audit trail: refusals and changes, as JSON lines in a file.
//!
//! Recording never blocks a request: records go through a bounded queue to a writer thread. Records
//! that find no room there or on the disk are counted, and the next line has the count.

mod line;
mod record;
mod rotated;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use slidegate::{Clock, Timestamp};

pub(super) use self::record::Event;
use self::record::{AuditRecord, AuditedDecision};
use self::rotated::RotatedFile;
use self::writer::AuditWriter;
use super::RequestOutcome;
use super::exposition::Page;
use super::per_thread::count;
use super::report::GateReport;
use super::verdict::VerdictLabel;
use crate::config::AuditConfig;
use crate::disk;
use crate::queue::{Queue, QueueSender};

/// The trail. When it is dropped, what was recorded before is written, if the disk takes it.
#[derive(Debug)]
pub(crate) struct Trail {
    queue: Queue<AuditRecord>,
    dropped: Arc<AtomicU64>,
    every_decision: bool,
}

/// Hands records to a trail.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    sender: QueueSender<AuditRecord>,
    dropped: Arc<AtomicU64>,
    every_decision: bool,
}

impl Trail {
    /// Opens the file and begins.
    pub(crate) fn begin(config: &AuditConfig) -> anyhow::Result<Self> {
        let file = RotatedFile::open(config)
            .with_context(|| format!("audit.file: cannot open {}", config.file.display()))?;
        let dropped = Arc::<AtomicU64>::default();
        let writer = AuditWriter::new(file, dropped.clone());
        let queue = Queue::start("audit", move |waiting| writer.write_all(waiting))?;
        Ok(Self { queue, dropped, every_decision: config.every_decision })
    }

    /// Finds out whether the file could be opened, and leaves nothing behind.
    pub(crate) fn check(config: &AuditConfig) -> anyhow::Result<()> {
        match config.file.exists() {
            true => RotatedFile::open(config).map(drop).context("cannot open"),
            false => disk::try_writing(&config.file),
        }
    }

    pub(crate) fn recorder(&self) -> Recorder {
        let (sender, dropped) = (self.queue.sender(), self.dropped.clone());
        Recorder { sender, dropped, every_decision: self.every_decision }
    }
}

impl Recorder {
    #[inline]
    pub(super) fn answered(
        &self,
        answered: &RequestOutcome<'_>,
        verdict: VerdictLabel,
        gate: &dyn GateReport,
        clock: &dyn Clock,
    ) {
        let is_wanted = match verdict {
            VerdictLabel::Deny | VerdictLabel::Block(_) | VerdictLabel::Unavailable => true,
            VerdictLabel::Allow => self.every_decision,
            VerdictLabel::None => false,
        };
        if is_wanted {
            let seen = Box::new(AuditedDecision::of(answered, verdict, gate));
            self.record(clock.wall(), Event::Decision(seen));
        }
    }

    /// Records an event of the server.
    pub(super) fn record(&self, at: Timestamp, event: Event) {
        if !self.sender.try_send(AuditRecord { at, event }) {
            count(&self.dropped);
        }
    }
}

pub(super) fn expose(recorder: Option<&Recorder>, page: &mut Page<'_>) -> fmt::Result {
    page.counter(
        "slidegate_audit_dropped",
        "Audit records dropped because the queue was full or the disk failed.",
        recorder.map_or(0, |recorder| recorder.dropped.load(Ordering::Relaxed)),
    )
}
