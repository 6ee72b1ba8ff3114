//! The accounts of a store in memory, between two lives of the server.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use slidegate::limit::SnapshotError;
use slidegate::policy::ActiveBan;
use slidegate::{Account, AccountError, Gate, MemoryStore, Timestamp};

use crate::config::SnapshotConfig;
use crate::disk;
use crate::observe::Observer;

/// Saves the accounts of a gate that has all of them in memory. Clones all save the same.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot(Arc<SnapshotState>);

#[derive(Debug)]
struct SnapshotState {
    gate: Arc<Gate<MemoryStore>>,
    observer: Observer,
    file: PathBuf,
    every: Option<Duration>,
    /// Held while saving: two at once would write one file.
    saving: Mutex<()>,
}

impl Snapshot {
    /// Restores what was saved, if anything was. A file that cannot be restored is an error: to
    /// start with empty accounts would silently reset everybody's quotas.
    pub(crate) fn restore(
        config: &SnapshotConfig,
        gate: Arc<Gate<MemoryStore>>,
        observer: Observer,
    ) -> anyhow::Result<Self> {
        let (file, every) = (config.file.clone(), config.every);
        let inner = SnapshotState { gate, observer, file, every, saving: Mutex::new(()) };
        for (store, path) in inner.parts() {
            restore(store, &path).context("store.snapshot.file")?;
            disk::try_writing(&path).context("store.snapshot.file")?;
        }
        let bans = inner.bans_file();
        restore_bans(&inner.gate, &bans).context("store.snapshot.file")?;
        disk::try_writing(&bans).context("store.snapshot.file")?;
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

    /// Saves on a blocking thread. A failure is logged and leaves the file as it
    /// was.
    pub(crate) async fn save(&self) {
        let inner = self.0.clone();
        let saved = tokio::task::spawn_blocking(move || inner.save()).await;
        match saved.unwrap_or_else(|panicked| Err(panicked.into())) {
            Ok(()) => self.0.observer.snapshot_saved(),
            Err(error) => {
                self.0.observer.snapshot_failed();
                tracing::error!("cannot save the snapshot: {error:#}");
            }
        }
    }
}

impl SnapshotState {
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
        let path = self.bans_file();
        let bans = serde_json::to_vec(&SavedBans::of(&self.gate))?;
        disk::replace(&path, |file| file.write_all(&bans))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn bans_file(&self) -> PathBuf {
        disk::with_suffix(&self.file, ".bans")
    }
}

/// The bans that policies began, as they are kept. Instants are Unix milliseconds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedBans {
    slidegate_bans: u32,
    bans: Vec<SavedBan>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedBan {
    policy: String,
    identity: String,
    until_ms: u64,
    retry_at_ms: u64,
}

/// The format of the file.
const BANS_FORMAT: u32 = 1;

impl SavedBans {
    fn of(gate: &Gate<MemoryStore>) -> Self {
        let now = gate.now();
        // Rounded up to a millisecond, so that no ban ends early.
        let ms = |after| (now + after + Duration::from_nanos(999_999)).as_millis();
        let keep = |ban: ActiveBan| SavedBan {
            policy: ban.account.policy.to_string(),
            identity: ban.account.identity.to_string(),
            until_ms: ms(ban.rest),
            retry_at_ms: ms(ban.retry_after),
        };
        let bans = gate.admin().active_bans().into_iter().map(keep).collect();
        Self { slidegate_bans: BANS_FORMAT, bans }
    }
}

impl SavedBan {
    fn at(&self, now: Timestamp) -> anyhow::Result<ActiveBan> {
        let rest = |ms| Timestamp::from_millis(ms).saturating_since(now);
        let account = Account { policy: self.policy.parse()?, identity: self.identity.parse()? };
        let (rest, retry_after) = (rest(self.until_ms), rest(self.retry_at_ms));
        Ok(ActiveBan { account, rest, retry_after })
    }
}

fn restore_bans(gate: &Gate<MemoryStore>, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.with_context(|| format!("cannot read {shown}"))?,
    };
    let damaged = || format!("cannot restore {shown}; move the file away to start without it");
    let contents: SavedBans = serde_json::from_slice(&text).with_context(damaged)?;
    anyhow::ensure!(contents.slidegate_bans == BANS_FORMAT, damaged());
    let now = gate.now();
    for ban in &contents.bans {
        match gate.admin().adopt_ban(&ban.at(now).with_context(damaged)?) {
            // The policy may have changed since.
            Ok(()) | Err(AccountError::UnknownPolicy(_) | AccountError::NoBan(_)) => {}
            Err(error) => bail!("cannot restore {shown}: {error}; raise store.capacity"),
        }
    }
    tracing::info!(bans = gate.admin().ban_stats().adopted, "restored from {shown}");
    Ok(())
}

fn restore(store: &MemoryStore, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::info!("no snapshot at {shown} yet; starting empty");
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
            bail!("cannot restore {shown}: {error:#}; move the file away to start without it")
        }
    }
    Ok(())
}
