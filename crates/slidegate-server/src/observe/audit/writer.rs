//! The thread that writes the trail.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::line;
use super::record::AuditRecord;
use super::rotated::RotatedFile;
use crate::queue::QueueReceiver;

/// Writes records, many at once when there are many.
#[derive(Debug)]
pub(super) struct AuditWriter {
    file: RotatedFile,
    /// Lines that are to be written together.
    batch: Vec<u8>,
    batch_lines: u64,
    /// All that was lost, by whomever.
    dropped: Arc<AtomicU64>,
    /// How many of those were reported in a line, and how many before this batch.
    reported: u64,
    reported_before: u64,
    /// Whether the last batch was lost.
    is_failing: bool,
}

/// Large enough that a system call for it hardly counts.
const BATCH_BYTES: usize = 64 * 1024;

impl AuditWriter {
    pub(super) fn new(file: RotatedFile, dropped: Arc<AtomicU64>) -> Self {
        let (batch, batch_lines) = (Vec::with_capacity(BATCH_BYTES), 0);
        Self {
            file,
            batch,
            batch_lines,
            dropped,
            reported: 0,
            reported_before: 0,
            is_failing: false,
        }
    }

    pub(super) fn write_all(mut self, mut waiting: QueueReceiver<AuditRecord>) {
        while let Some(record) = waiting.next() {
            self.add(&record);
            while let Some(record) = waiting.next_if_there() {
                self.add(&record);
            }
            self.flush();
        }
    }

    fn add(&mut self, record: &AuditRecord) {
        let start = self.batch.len();
        let mut reported = self.encode(record);
        if !self.file.has_room_for(self.batch.len()) {
            self.batch.truncate(start);
            self.flush();
            self.rotate();
            // Again, because the others may have been lost since.
            reported = self.encode(record);
        }
        self.reported = reported;
        self.batch_lines += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Adds the line to the batch, and returns how many losses are reported with it.
    fn encode(&mut self, record: &AuditRecord) -> u64 {
        let dropped = self.dropped.load(Ordering::Relaxed);
        line::append(&mut self.batch, record, dropped - self.reported);
        dropped
    }

    fn rotate(&mut self) {
        // A line that is longer than a file may be has one to itself.
        if self.file.is_empty() {
            return;
        }
        if let Err(error) = self.file.rotate() {
            tracing::error!(%error, "cannot rotate the audit trail; appending to the full file");
        }
    }

    fn flush(&mut self) {
        let lines = mem::take(&mut self.batch_lines);
        if lines == 0 {
            return;
        }
        match self.file.append(&self.batch) {
            Ok(()) => {
                self.reported_before = self.reported;
                self.is_failing = false;
            }
            Err(error) => {
                self.reported = self.reported_before;
                self.dropped.fetch_add(lines, Ordering::Relaxed);
                if !mem::replace(&mut self.is_failing, true) {
                    tracing::error!(%error, "cannot write the audit trail; counting lost records");
                }
            }
        }
        self.batch.clear();
    }
}
