//! The file of the audit trail, which is rotated when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Losses;
use crate::config::AuditConfig;
use crate::disk;

/// Takes whole lines and writes them, many at once when there are many.
///
/// A full file becomes `FILE.1`, that one `FILE.2`, and so on; the oldest is deleted.
#[derive(Debug)]
pub(super) struct AuditFile {
    config: AuditConfig,
    file: File,
    /// A device or a pipe is never full.
    is_regular: bool,
    /// Since it was begun, or since it could not be rotated.
    bytes: u64,
    /// Lines that are to be written together.
    batch: Vec<u8>,
    losses: Arc<Losses>,
    /// How many lost records are reported in the file.
    reported: u64,
    /// Whether the last batch was lost.
    is_failing: bool,
}

/// Large enough that a system call for it hardly counts.
const BATCH_BYTES: usize = 64 * 1024;
/// The count of losses takes no more of a line than this.
const MAX_DROPPED_BYTES: usize = ",\"dropped\":18446744073709551615".len();

/// Neither reports an error: what cannot be written is counted.
impl Write for AuditFile {
    /// Adds a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let bytes = self.batch.len() + line.len() + MAX_DROPPED_BYTES;
        if self.is_regular && self.bytes.saturating_add(bytes as u64) > self.config.rotate_bytes {
            self.write_batch();
            self.rotate();
        }
        self.batch.extend_from_slice(line);
        if self.batch.len() >= BATCH_BYTES {
            self.write_batch();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_batch();
        Ok(())
    }
}

impl AuditFile {
    pub(super) fn open(config: &AuditConfig, losses: Arc<Losses>) -> io::Result<Self> {
        let file = open(&config.file)?;
        let metadata = file.metadata()?;
        Ok(Self {
            config: config.clone(),
            file,
            is_regular: metadata.is_file(),
            bytes: metadata.len(),
            batch: Vec::new(),
            losses,
            reported: 0,
            is_failing: false,
        })
    }

    /// Writes the batch. Its first line gets the number of records that are missing as its last
    /// field.
    fn write_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let lost = self.losses.total();
        let first_end = memchr::memmem::find(&self.batch, b"}\n");
        if let Some(end) = first_end.filter(|_| lost > self.reported) {
            let dropped = format!(",\"dropped\":{}", lost - self.reported);
            self.batch.splice(end..end, dropped.into_bytes());
        }
        match self.append_batch() {
            Ok(()) => {
                self.bytes = self.bytes.saturating_add(self.batch.len() as u64);
                self.reported = lost;
                self.is_failing = false;
            }
            Err(error) => {
                let lines = memchr::memchr_iter(b'\n', &self.batch).count() as u64;
                self.losses.on_disk.fetch_add(lines, Ordering::Relaxed);
                if !mem::replace(&mut self.is_failing, true) {
                    tracing::error!(%error, "cannot write the audit trail; counting lost records");
                }
            }
        }
        self.batch.clear();
    }

    /// All of the batch or, if the disk allows, nothing: half a line would spoil the one after it.
    fn append_batch(&mut self) -> io::Result<()> {
        let bytes_before = self.file.metadata()?.len();
        let written = self.file.write_all(&self.batch);
        if written.is_err() && self.is_regular {
            self.file.set_len(bytes_before)?;
        }
        written
    }

    /// Begins another file. If that fails, this one goes on, and is full again only after as much
    /// as a file takes. A line that is longer than a file may be has one to itself.
    fn rotate(&mut self) {
        if mem::take(&mut self.bytes) == 0 {
            return;
        }
        if let Err(error) = self.try_rotate() {
            tracing::error!(%error, "cannot rotate the audit trail; appending to the full file");
        }
    }

    fn try_rotate(&mut self) -> io::Result<()> {
        let AuditConfig { file: path, keep, .. } = &self.config;
        let numbered = |number| disk::with_suffix(path, &format!(".{number}"));
        for number in (1..*keep).rev() {
            ignoring_absence(fs::rename(numbered(number), numbered(number + 1)))?;
        }
        match keep {
            0 => ignoring_absence(fs::remove_file(path))?,
            _ => ignoring_absence(fs::rename(path, numbered(1)))?,
        }
        self.file = open(path)?;
        Ok(())
    }
}

/// A new file is readable only by its owner.
fn open(path: &Path) -> io::Result<File> {
    // Opened for writing alone, a pipe would wait for its reader.
    let is_pipe = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    OpenOptions::new().read(is_pipe).append(true).create(true).mode(0o600).open(path)
}

fn ignoring_absence(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
