//! Files that outlive the process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Writes beside the file and puts the new one in its place when all of it is on the disk.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let beside = with_suffix(path, ".new");
    let mut file = create(&beside)?;
    write(&mut file)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder(path))?.sync_all()
}

/// Finds out now, not when it is too late, that there is no place to write. The file that it makes
/// for that is its own, so that it can be tried beside a running server.
pub(crate) fn try_writing(path: &Path) -> anyhow::Result<()> {
    let beside = with_suffix(path, &format!(".try-{}", std::process::id()));
    let tried = create(&beside).and_then(|_| fs::remove_file(&beside));
    tried.with_context(|| format!("cannot write {}", path.display()))
}

/// The path with this after it.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// A file that only its owner can read: it has identities and their spending.
fn create(path: &Path) -> io::Result<File> {
    // One that an end without a farewell left behind may have other permissions.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}
