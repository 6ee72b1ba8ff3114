//! The file that the configuration is in.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::fs;
use tokio::time;

use super::Pace;
use super::directories::directories_of;
use super::events::Events;

/// A file, and what was in it.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    pace: Pace,
    events: Events,
    /// As it was at rest before it was last read. None if it was not: the clock of file systems is
    /// coarse, so a file that was written just now can change and look the same.
    stamp: Option<FileVersion>,
    /// A hash, as there may be secrets in it.
    contents: Option<u64>,
}

/// What changes if the file does, without reading it: which file it is, its size and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    file: (u64, u64),
    bytes: u64,
    written: (i64, i64),
    touched: (i64, i64),
}

/// A file that is being written all the time is read as it is at last.
const MOST_ROUNDS: u32 = 25;

impl WatchedFile {
    pub(super) async fn new(path: PathBuf, pace: Pace, events: Events) -> Self {
        let mut file = Self { path, pace, events, stamp: None, contents: None };
        file.follow_links();
        file.has_changed().await;
        file
    }

    /// A file that was read before it is watched. If it has changed in between, the next look at it
    /// tells.
    pub(super) fn known(path: PathBuf, contents: u64, pace: Pace, events: Events) -> Self {
        let mut file = Self { path, pace, events, stamp: None, contents: Some(contents) };
        file.follow_links();
        file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until there is something else in the file.
    pub(super) async fn changed(&mut self) {
        loop {
            tokio::select! {
                () = self.events.next() => {}
                () = self.looks_different() => {}
            }
            let stamp = self.settle().await;
            self.follow_links();
            let changed = self.has_changed().await;
            self.stamp = stamp;
            if changed {
                return;
            }
        }
    }

    /// Reads the file and returns whether its contents have changed. If it cannot be
    /// read, what was in it stays known: it may be on its way.
    pub(super) async fn has_changed(&mut self) -> bool {
        let Ok(bytes) = fs::read(&self.path).await else { return false };
        let contents = Some(fingerprint(&bytes));
        std::mem::replace(&mut self.contents, contents) != contents
    }

    /// Looks now and then, until it is not what it was.
    async fn looks_different(&self) {
        loop {
            time::sleep(self.pace.poll).await;
            if self.look().await != self.stamp {
                return;
            }
        }
    }

    /// Waits until the file stops changing.
    async fn settle(&self) -> Option<FileVersion> {
        let mut before = self.look().await;
        for _ in 0..MOST_ROUNDS {
            time::sleep(self.pace.settle).await;
            let now = self.look().await;
            if now == before {
                return now;
            }
            before = now;
        }
        None
    }

    async fn look(&self) -> Option<FileVersion> {
        fs::metadata(&self.path).await.ok().as_ref().map(FileVersion::of)
    }

    fn follow_links(&mut self) {
        self.events.follow(directories_of(&self.path));
    }
}

/// A hash of a file's contents.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            touched: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
