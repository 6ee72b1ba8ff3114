//! File-system events of directories.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Notifies of events in watched directories; several events are one notification.
#[derive(Debug)]
pub(super) struct Events {
    /// None if the system has no such events.
    watcher: Option<RecommendedWatcher>,
    happened: Arc<Notify>,
    watched: BTreeSet<PathBuf>,
}

impl Events {
    pub(super) fn start() -> Self {
        let happened = Arc::new(Notify::new());
        let sender = happened.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.as_ref().map_or(true, changes_something) {
                sender.notify_one();
            }
        });
        let watcher = watcher.inspect_err(|error| {
            tracing::warn!(%error, "file events are unavailable; polling the configuration");
        });
        Self { watcher: watcher.ok(), happened, watched: BTreeSet::new() }
    }

    /// As on a system without such events.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { watcher: None, happened: Arc::default(), watched: BTreeSet::new() }
    }

    /// Watches these directories and no others.
    pub(super) fn follow(&mut self, directories: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.watched.difference(&directories) {
            // It may be gone in every sense, and then it is not watched anyway.
            let _ = watcher.unwatch(gone);
        }
        let new = |directory: &PathBuf| {
            self.watched.contains(directory) || {
                let begun = watcher.watch(directory, RecursiveMode::NonRecursive);
                begun
                    .inspect_err(|error| tracing::debug!(%error, "cannot watch a directory"))
                    .is_ok()
            }
        };
        self.watched = directories.into_iter().filter(new).collect();
    }

    /// Waits until something has happened.
    pub(super) async fn next(&self) {
        self.happened.notified().await;
    }
}

/// Whether a file may be another afterwards. Reading one is an event as well, and ours would be
/// without end.
fn changes_something(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
