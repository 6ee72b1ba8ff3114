//! The accounts of a store in memory, between two lives of the server.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use slidegate::{Gate, MemoryStore, SnapshotError};

use crate::config::SnapshotConfig;
use crate::disk;
use crate::observe::Observer;

/// Saves the accounts of a gate that has all of them in memory. Clones all save the same.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gate: Arc<Gate<MemoryStore>>,
    observer: Observer,
    file: PathBuf,
    every: Option<Duration>,
    /// Held by who saves: two at once would write one file.
    saving: Mutex<()>,
}

impl Snapshot {
    /// Restores what was saved, if anything was. A file that cannot be restored is an error: to
    /// begin with empty accounts would give everybody a new quota, and nobody would notice.
    pub(crate) fn restore(
        config: &SnapshotConfig,
        gate: Arc<Gate<MemoryStore>>,
        observer: Observer,
    ) -> anyhow::Result<Self> {
        let (file, every) = (config.file.clone(), config.every);
        let inner = Inner { gate, observer, file, every, saving: Mutex::new(()) };
        for (store, path) in inner.parts() {
            restore(store, &path).context("store.snapshot.file")?;
            disk::try_writing(&path).context("store.snapshot.file")?;
        }
        Ok(Self(Arc::new(inner)))
    }

    /// Saves every so often, if it is to be.
    pub(crate) async fn save_repeatedly(self) {
        let Some(every) = self.0.every else { return };
        loop {
            tokio::time::sleep(every).await;
            self.save().await;
        }
    }

    /// Saves, on a thread that may wait for the disk. A failure is told and leaves the file as it
    /// was.
    pub(crate) async fn save(&self) {
        let inner = self.0.clone();
        let saved = tokio::task::spawn_blocking(move || inner.save()).await;
        match saved.unwrap_or_else(|panicked| Err(panicked.into())) {
            Ok(()) => self.0.observer.snapshot_saved(),
            Err(error) => {
                self.0.observer.snapshot_failed();
                tracing::error!("the accounts are not saved: {error:#}");
            }
        }
    }
}

impl Inner {
    /// The gate's two stores, each with a file of its own.
    fn parts(&self) -> [(&MemoryStore, PathBuf); 2] {
        let local = disk::with_suffix(&self.file, ".local");
        [(self.gate.store(), self.file.clone()), (self.gate.local_store(), local)]
    }

    fn save(&self) -> anyhow::Result<()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        for (store, path) in self.parts() {
            disk::replace(&path, |file| store.save(file))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

fn restore(store: &MemoryStore, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::info!("{shown} is not there yet: nothing is restored");
            return Ok(());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    match store.restore(file) {
        Ok(accounts) => tracing::info!(accounts, "restored from {shown}"),
        Err(error @ SnapshotError::TooLarge { .. }) => {
            bail!("cannot restore {shown}: {error}; raise store.capacity")
        }
        Err(error) => {
            let error = anyhow::Error::from(error);
            bail!("cannot restore {shown}: {error:#}; move the file away to begin without it")
        }
    }
    Ok(())
}
