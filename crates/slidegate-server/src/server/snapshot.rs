//! The accounts of a store in memory, between two lives of the server.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use slidegate::{Gate, MemoryStore, SnapshotError};

use crate::config::SnapshotConfig;
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
            try_writing(&path).context("store.snapshot.file")?;
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
        let local = with_suffix(&self.file, ".local");
        [(self.gate.store(), self.file.clone()), (self.gate.local_store(), local)]
    }

    fn save(&self) -> anyhow::Result<()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        for (store, path) in self.parts() {
            save(store, &path).with_context(|| format!("cannot write {}", path.display()))?;
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

/// Writes beside the file and puts the new one in its place when all of it is on the disk.
fn save(store: &MemoryStore, path: &Path) -> io::Result<()> {
    let beside = with_suffix(path, ".new");
    let mut file = create(&beside)?;
    store.save(&mut file)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder(path))?.sync_all()
}

/// Finds out now, not when the server stops, that there is no place to write.
fn try_writing(path: &Path) -> anyhow::Result<()> {
    let beside = with_suffix(path, ".new");
    let tried = create(&beside).and_then(|_| fs::remove_file(&beside));
    tried.with_context(|| format!("cannot write {}", beside.display()))
}

/// A file for nobody else's eyes: it tells who spent what.
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

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
