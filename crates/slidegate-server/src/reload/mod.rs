//! Notices changes of the configuration, by SIGHUP and by polling its files, and says what they are.
//!
//! A poll looks at which file the path leads to, its size and its times, so a file that is written
//! in place, renamed over or reached by another symlink, as Kubernetes swaps them, is seen on every
//! file system within about a second.

mod difference;
mod history;
mod loader;
mod over_quota;
mod reloader;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time;

use crate::config::{self, DataFile};
use crate::file::{self, FileVersion};

pub(crate) use self::loader::{Loader, free, free_unused};
pub(crate) use self::reloader::Reloader;

use self::difference::{difference, needs_restart};
use self::history::history;

/// Why the configuration is to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// SIGHUP. Files that the configuration names are read again too, such as certificates.
    Signal,
    /// The contents of a file have changed.
    File,
}

/// Waits for the next reload.
#[derive(Debug)]
pub(crate) struct Changes {
    hangups: Signal,
    config: Option<WatchedFile>,
    data_files: Vec<WatchedFile>,
}

/// A change is seen at the poll after it, and reported at the one after that, when the file is at
/// rest.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A file that is never at rest is read after so many polls.
const MAX_RESTLESS: u32 = 10;

/// Begins to watch. To be called before the file is read for the first time, so that no change is
/// missed in between. From now on, SIGHUP does not end the process.
pub(crate) async fn watch(path: Option<PathBuf>) -> io::Result<Changes> {
    let mut config = path.map(|path| WatchedFile::new(path, config::MAX_BYTES, None));
    if let Some(file) = &mut config {
        file.has_changed().await;
    }
    Ok(Changes { hangups: signal(SignalKind::hangup())?, config, data_files: Vec::new() })
}

impl Changes {
    /// Watches the files that keys and networks were last read from, and no others.
    pub(crate) fn follow(&mut self, files: &[DataFile]) {
        let mut before = std::mem::take(&mut self.data_files);
        let watched = files.iter().map(|DataFile { path, max_bytes, fingerprint }| {
            match before.iter().position(|watched| watched.path == *path) {
                Some(same) => {
                    let contents = Some(*fingerprint);
                    WatchedFile { contents, ..before.swap_remove(same) }
                }
                None => WatchedFile::new(path.clone(), *max_bytes, Some(*fingerprint)),
            }
        });
        self.data_files = watched.collect();
    }

    /// Waits until the configuration is to be read again. A signal may be forgotten if this is
    /// dropped before it ends.
    pub(crate) async fn next(&mut self) -> Cause {
        let mut files: Vec<_> = self.config.iter_mut().chain(&mut self.data_files).collect();
        tokio::select! {
            _ = self.hangups.recv() => {}
            () = changed(&mut files, POLL_INTERVAL) => return Cause::File,
        }
        // What is read now need not be read again at the next poll.
        for file in files {
            file.has_changed().await;
        }
        Cause::Signal
    }
}

async fn changed(files: &mut [&mut WatchedFile], poll: Duration) {
    loop {
        time::sleep(poll).await;
        for file in &mut *files {
            if file.poll().await {
                return;
            }
        }
    }
}

/// A file, and what was in it.
#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    max_bytes: u64,
    /// For one look at a time: on a file system that does not answer, there is no other until it has
    /// ended.
    loader: Loader,
    /// At the last poll.
    seen: Option<FileVersion>,
    /// When the contents were last read. None if that was not at rest: the clock of file systems
    /// is coarse, so a file that was written just now can change and look the same.
    read: Option<FileVersion>,
    /// Polls for which it was not at rest.
    restless: u32,
    /// A hash, as there may be secrets in it.
    contents: Option<u64>,
}

impl WatchedFile {
    /// With the fingerprint of its contents, if it was read before.
    fn new(path: PathBuf, max_bytes: u64, contents: Option<u64>) -> Self {
        let loader = Loader::new(1);
        Self { path, max_bytes, loader, seen: None, read: None, restless: 0, contents }
    }

    /// Whether there is something else in the file, which is read once it is at rest.
    async fn poll(&mut self) -> bool {
        let path = self.path.clone();
        let look = move || fs::metadata(path).ok().as_ref().map(FileVersion::of);
        let Ok(now) = self.loader.run(look).await else { return false };
        let is_at_rest = std::mem::replace(&mut self.seen, now) == now;
        if now == self.read {
            return false;
        }
        self.restless += 1;
        if !is_at_rest && self.restless < MAX_RESTLESS {
            return false;
        }
        (self.read, self.restless) = (now, 0);
        self.has_changed().await
    }

    /// Reads the file and returns whether its contents have changed. If it is gone, what was in it
    /// stays known: it may be about to be replaced. Anything else that keeps it from being read is a
    /// change, so that the reload reports it.
    async fn has_changed(&mut self) -> bool {
        let (path, max_bytes) = (self.path.clone(), self.max_bytes);
        let read = self.loader.run(move || {
            let contents = file::read(&path, max_bytes)?;
            io::Result::Ok(file::fingerprint(&contents.bytes))
        });
        let contents = match read.await {
            Ok(Ok(contents)) => contents,
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => return false,
            Ok(Err(error)) if error.kind() == ErrorKind::ResourceBusy => {
                // It is written right now, and read when it is at rest.
                self.read = None;
                return false;
            }
            Ok(Err(error)) => file::fingerprint(error.to_string().as_bytes()),
            Err(_) => return false,
        };
        self.contents.replace(contents) != Some(contents)
    }
}
