//! Notices changes of the configuration.
//!
//! The file is watched by the directories that decide what its path means, so that a file that is
//! renamed over it is seen, and so is a link that is swapped, as Kubernetes does it. Now and then
//! it is polled as well: no system reports every change.

mod difference;
mod directories;
mod events;
mod file;
mod fixed;
#[cfg(test)]
mod tests;

use std::future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use self::events::Events;
use self::file::WatchedFile;
use crate::config::KeysFileVersion;

pub(crate) use self::difference::difference;
pub(crate) use self::file::fingerprint;
pub(crate) use self::fixed::Fixed;

/// Why the configuration is to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// SIGHUP. Files that the configuration names are read again too, such as
    /// certificates.
    Signal,
    /// The file's contents have changed.
    File,
}

/// Waits for the next reload.
#[derive(Debug)]
pub(crate) struct Changes {
    hangups: Signal,
    file: Option<WatchedFile>,
    keys: Option<WatchedFile>,
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// For a file to come to rest after an event.
    settle: Duration,
    /// Before looking at the file without an event.
    poll: Duration,
}

const PACE: Pace = Pace { settle: Duration::from_millis(200), poll: Duration::from_secs(5) };

/// Begins to watch. To be called before the file is read for the first time, so that no change is
/// missed in between. From now on, SIGHUP does not end the process.
pub(crate) async fn watch(path: Option<PathBuf>) -> io::Result<Changes> {
    let file = match path {
        Some(path) => Some(WatchedFile::new(path, PACE, Events::start()).await),
        None => None,
    };
    Ok(Changes { hangups: signal(SignalKind::hangup())?, file, keys: None })
}

impl Changes {
    /// Watches the file that API keys were last read from, and no other.
    pub(crate) fn follow_keys(&mut self, file: Option<&KeysFileVersion>) {
        let Some(file) = file else {
            self.keys = None;
            return;
        };
        if self.keys.as_ref().is_none_or(|watched| watched.path() != file.path) {
            let (path, contents) = (file.path.clone(), file.fingerprint);
            self.keys = Some(WatchedFile::known(path, contents, PACE, Events::start()));
        }
    }

    /// Waits until the configuration is to be read again. A signal may be forgotten if this is
    /// dropped before it ends.
    pub(crate) async fn next(&mut self) -> Cause {
        tokio::select! {
            _ = self.hangups.recv() => {}
            () = changed(self.file.as_mut()) => return Cause::File,
            () = changed(self.keys.as_mut()) => return Cause::File,
        }
        // What is read now need not be read again because its event comes late.
        for file in self.file.iter_mut().chain(&mut self.keys) {
            file.has_changed().await;
        }
        Cause::Signal
    }
}

async fn changed(file: Option<&mut WatchedFile>) {
    match file {
        Some(file) => file.changed().await,
        None => future::pending().await,
    }
}
