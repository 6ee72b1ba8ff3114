//! Reads files that an operator names: regular ones, whole, and no larger than they may be.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// A file as it was read.
#[derive(Debug)]
pub(crate) struct FileContents {
    pub(crate) bytes: Vec<u8>,
    /// Whether every user of this machine may read it.
    pub(crate) is_open_to_all: bool,
}

/// What changes if the file does: which file it is, its size and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileVersion {
    file: (u64, u64),
    bytes: u64,
    written: (i64, i64),
    touched: (i64, i64),
}

/// How often a file that changes while it is read is read: one that is written in place is complete
/// by the second time, and one that is replaced by a rename never changes.
const ATTEMPTS: usize = 3;

/// All certificate authorities of a system have a quarter of a MiB.
const MAX_PEM_BYTES: u64 = 4 * 1024 * 1024;

/// Reads a regular file that has at most so many bytes. A file that changes meanwhile is read again,
/// and is an error if it does not come to rest. Never waits for a writer, as a read of a pipe does,
/// but may wait for a disk or a network: not to be called on a thread that serves.
pub(crate) fn read(path: &Path, max_bytes: u64) -> io::Result<FileContents> {
    read_with(path, max_bytes, || {})
}

/// The same, with something that happens after each time that the file was read, for tests.
fn read_with(path: &Path, max_bytes: u64, mut then: impl FnMut()) -> io::Result<FileContents> {
    for _ in 0..ATTEMPTS {
        let mut file = open(path)?;
        let before = file.metadata()?;
        if before.len() > max_bytes {
            return Err(too_large(max_bytes));
        }
        let mut bytes = Vec::new();
        file.by_ref().take(max_bytes + 1).read_to_end(&mut bytes)?;
        then();
        if bytes.len() as u64 > max_bytes {
            return Err(too_large(max_bytes));
        }
        if FileVersion::of(&file.metadata()?) == FileVersion::of(&before) {
            let is_open_to_all = before.permissions().mode() & 0o004 != 0;
            return Ok(FileContents { bytes, is_open_to_all });
        }
    }
    let text = "it changes while it is read: write another file and rename it over this one";
    Err(io::Error::new(ErrorKind::ResourceBusy, text))
}

/// Reads a file with certificates or a key.
pub(crate) fn read_pem(path: &Path) -> io::Result<FileContents> {
    read(path, MAX_PEM_BYTES)
}

/// Opens a regular file. Anything else is an error at once, where a pipe without a writer would block.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let text = format!("it is {}: expected a regular file", name_of(kind));
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

impl FileVersion {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            touched: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn too_large(max_bytes: u64) -> io::Error {
    let text = format!("it is too large: expected at most {max_bytes} bytes");
    io::Error::new(ErrorKind::FileTooLarge, text)
}

fn name_of(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// A hash of a file's contents, the same in this process alone.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn only_regular_files_are_read_and_no_more_of_them_than_allowed() {
        for (path, expected) in [
            ("/dev/zero", "it is a device: expected a regular file"),
            ("/dev", "it is a directory: expected a regular file"),
            ("/does/not/exist", "No such file or directory (os error 2)"),
        ] {
            assert_eq!(read(path.as_ref(), 10).unwrap_err().to_string(), expected);
        }
        let path = std::env::temp_dir().join(format!("slidegate-file-{}", std::process::id()));
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).unwrap().bytes, b"0123456789");
        let error = read(&path, 9).unwrap_err().to_string();
        assert_eq!(error, "it is too large: expected at most 9 bytes");
        // A file of the kernel has no size that is known before.
        assert!(read("/proc/self/status".as_ref(), 100).is_err());
        assert!(!read("/proc/self/status".as_ref(), 100_000).unwrap().bytes.is_empty());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again() {
        let path = std::env::temp_dir().join(format!("slidegate-written-{}", std::process::id()));
        fs::write(&path, "half").unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        let mut reads = 0;
        let contents = read_with(&path, 100, || {
            reads += 1;
            if reads == 1 {
                file.write_all(b" and half").unwrap();
            }
        });
        assert_eq!((contents.unwrap().bytes, reads), (b"half and half".to_vec(), 2));
        let error = read_with(&path, 100, || file.write_all(b".").unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        fs::remove_file(path).unwrap();
    }
}
