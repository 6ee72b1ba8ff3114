//! A file that makes room for itself when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::config::AuditConfig;

/// A file that is added to. When it is full it becomes `FILE.1`, that one `FILE.2`, and so on; the
/// oldest is deleted.
#[derive(Debug)]
pub(super) struct RotatedFile {
    path: PathBuf,
    file: File,
    /// A device or a pipe is never full.
    is_regular: bool,
    /// Since it was begun, or since it could not be rotated.
    bytes: u64,
    rotate_bytes: u64,
    keep: usize,
}

impl RotatedFile {
    pub(super) fn open(config: &AuditConfig) -> io::Result<Self> {
        let file = open(&config.file)?;
        let metadata = file.metadata()?;
        Ok(Self {
            path: config.file.clone(),
            file,
            is_regular: metadata.is_file(),
            bytes: metadata.len(),
            rotate_bytes: config.rotate_bytes,
            keep: config.keep,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether so many bytes more still fit.
    pub(super) fn has_room_for(&self, more_bytes: usize) -> bool {
        let bytes = self.bytes.saturating_add(more_bytes as u64);
        !self.is_regular || bytes <= self.rotate_bytes
    }

    /// Adds whole lines: all of them or, if the disk allows, none.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let before_bytes = self.file.metadata()?.len();
        let written = self.file.write_all(lines);
        match written {
            Ok(()) => self.bytes = self.bytes.saturating_add(lines.len() as u64),
            // Half a line would spoil the one after it.
            Err(_) if self.is_regular => self.file.set_len(before_bytes)?,
            Err(_) => {}
        }
        written
    }

    /// Begins another file. If that fails, this one goes on, and is full again only after as much
    /// as a file takes.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        self.bytes = 0;
        for number in (1..self.keep).rev() {
            rename(&self.numbered(number), &self.numbered(number + 1))?;
        }
        match self.keep {
            0 => remove(&self.path)?,
            _ => rename(&self.path, &self.numbered(1))?,
        }
        self.file = open(&self.path)?;
        Ok(())
    }

    fn numbered(&self, number: usize) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }
}

/// A new file is readable only by its owner.
fn open(path: &Path) -> io::Result<File> {
    // Opened for writing alone, a pipe would wait for its reader.
    let is_pipe = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    OpenOptions::new().read(is_pipe).append(true).create(true).mode(0o600).open(path)
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    ignoring_absence(fs::rename(from, to))
}

fn remove(path: &Path) -> io::Result<()> {
    ignoring_absence(fs::remove_file(path))
}

fn ignoring_absence(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}
