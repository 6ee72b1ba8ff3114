//! Files that outlive the process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::file;

/// A million bans, as many as there can be, have about 150 MB.
const MAX_JSON_BYTES: u64 = 256 * 1024 * 1024;

/// Writes a new file beside the old one, and renames it when all of it is on the disk.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> anyhow::Result<()> {
    let replace = || {
        let beside = with_suffix(path, ".new");
        let mut file = create(&beside)?;
        write(&mut file)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    replace().with_context(|| format!("cannot write {}", path.display()))
}

/// The same for JSON.
pub(crate) fn replace_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_vec(value)?;
    replace(path, |file| file.write_all(&json))
}

/// The JSON in a file; none if there is no file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    match file::read(path, MAX_JSON_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => {
            let read = read.with_context(|| format!("cannot read {}", path.display()))?;
            Ok(Some(serde_json::from_slice(&read.bytes).with_context(|| damaged(path))?))
        }
    }
}

/// What to do about a file whose contents cannot be used.
pub(crate) fn damaged(path: &Path) -> String {
    format!("cannot restore {}; move the file away to start without it", path.display())
}

/// Finds out now, not when it is too late, that the file cannot be written. Creates a file of its
/// own for that, so that it can be called beside a running server.
pub(crate) fn try_writing(path: &Path) -> anyhow::Result<()> {
    let beside = with_suffix(path, &format!(".try-{}", std::process::id()));
    let tried = create(&beside).and_then(|_| fs::remove_file(&beside));
    tried.with_context(|| format!("cannot write {}", path.display()))
}

/// The path with a suffix after its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// A file that only its owner can read: it has identities and their spending.
fn create(path: &Path) -> io::Result<File> {
    // One that a killed process left behind may have other permissions.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
