//! Saves the accounts of a memory store to files, and restores them at the next start.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use slidegate::limit::SnapshotError;
use slidegate::policy::ActiveBan;
use slidegate::{Account, AccountError, Gate, MemoryStore, Timestamp};
use tokio::sync::Mutex;

use crate::config::SnapshotConfig;
use crate::observe::Observer;
use crate::store::AnyStore;
use crate::{disk, file};

/// Saves the accounts of a gate that has all of them in memory. Clones all save the same.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    gate: Arc<Gate<AnyStore>>,
    observer: Observer,
    config: SnapshotConfig,
    /// Held while saving: two at once would write one file.
    saving: Arc<Mutex<()>>,
}

impl Snapshot {
    /// Restores what was saved, if anything was. A file that cannot be restored is an error: to
    /// start with empty accounts would silently reset everybody's quotas.
    pub(crate) fn restore(
        config: &SnapshotConfig,
        gate: Arc<Gate<AnyStore>>,
        observer: Observer,
    ) -> anyhow::Result<Self> {
        let paths = paths(&config.file);
        let shared = gate
            .store()
            .memory()
            .map_or(Ok(()), |store| restore_accounts(store, &paths.shared, "store.capacity"));
        shared
            .and_then(|()| restore_accounts(gate.local_store(), &paths.local, LOCAL_CAPACITY))
            .and_then(|()| restore_bans(&gate, &paths.bans))
            .context("store.snapshot.file")?;
        Ok(Self { gate, observer, config: config.clone(), saving: Arc::default() })
    }

    /// Saves at the configured interval, if there is one.
    pub(crate) async fn save_repeatedly(self) {
        let Some(every) = self.config.every else { return };
        loop {
            tokio::time::sleep(every).await;
            self.save().await;
        }
    }

    /// Saves on a blocking thread. A failure is logged and leaves the file as it was.
    pub(crate) async fn save(&self) {
        let _saving = self.saving.lock().await;
        let (gate, paths) = (self.gate.clone(), paths(&self.config.file));
        let saved = tokio::task::spawn_blocking(move || save(&gate, &paths)).await;
        match saved.unwrap_or_else(|panicked| Err(panicked.into())) {
            Ok(()) => self.observer.snapshot_saved(),
            Err(error) => {
                self.observer.snapshot_failed();
                tracing::error!("cannot save the snapshot: {error:#}");
            }
        }
    }
}

/// The files: the accounts of the gate's two stores, and the bans that policies began.
struct SnapshotPaths {
    shared: PathBuf,
    local: PathBuf,
    bans: PathBuf,
}

fn paths(file: &Path) -> SnapshotPaths {
    SnapshotPaths {
        shared: file.to_owned(),
        local: disk::with_suffix(file, ".local"),
        bans: disk::with_suffix(file, ".bans"),
    }
}

fn save(gate: &Gate<AnyStore>, paths: &SnapshotPaths) -> anyhow::Result<()> {
    if let Some(store) = gate.store().memory() {
        disk::replace(&paths.shared, |file| store.save(file))?;
    }
    disk::replace(&paths.local, |file| gate.local_store().save(file))?;
    let now = gate.now();
    let bans = gate.admin().active_bans().iter().map(|ban| SavedBan::of(ban, now)).collect();
    disk::replace_json(&paths.bans, &SavedBans { slidegate_bans: BANS_FORMAT, bans })
}

/// The key that bounds local accounts and bans.
const LOCAL_CAPACITY: &str = "store.local_capacity";

/// Restores a store whose capacity the configuration has at this key.
fn restore_accounts(store: &MemoryStore, path: &Path, key: &str) -> anyhow::Result<()> {
    let shown = path.display();
    match file::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::info!("no snapshot at {shown} yet; starting empty");
        }
        file => match store.restore(file.with_context(|| format!("cannot read {shown}"))?) {
            Ok(accounts) => tracing::info!(accounts, "restored from {shown}"),
            Err(error @ SnapshotError::TooLarge { .. }) => {
                bail!("cannot restore {shown}: {error}; raise {key}")
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                bail!("cannot restore {shown}: {error:#}; move the file away to start without it")
            }
        },
    }
    disk::try_writing(path)
}

fn restore_bans(gate: &Gate<AnyStore>, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    if let Some(file) = disk::read_json::<SavedBans>(path)? {
        ensure!(file.slidegate_bans == BANS_FORMAT, disk::damaged(path));
        let now = gate.now();
        for ban in &file.bans {
            let ban = ban.at(now).with_context(|| disk::damaged(path))?;
            match gate.admin().adopt_ban(&ban) {
                // The policy may have changed since.
                Ok(()) | Err(AccountError::UnknownPolicy(_) | AccountError::NoBan(_)) => {}
                Err(error) => bail!("cannot restore {shown}: {error}; raise {LOCAL_CAPACITY}"),
            }
        }
        tracing::info!(bans = gate.admin().ban_stats().adopted, "restored from {shown}");
    }
    disk::try_writing(path)
}

/// The version of the bans' file.
const BANS_FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedBans {
    slidegate_bans: u32,
    bans: Vec<SavedBan>,
}

/// A ban that a policy began. Instants are Unix milliseconds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedBan {
    policy: String,
    identity: String,
    until_ms: u64,
    retry_at_ms: u64,
}

impl SavedBan {
    fn of(ban: &ActiveBan, now: Timestamp) -> Self {
        // Rounded up to a millisecond, so that no ban ends early.
        let ms = |after| (now + after + Duration::from_nanos(999_999)).as_millis();
        Self {
            policy: ban.account.policy.to_string(),
            identity: ban.account.identity.to_string(),
            until_ms: ms(ban.rest),
            retry_at_ms: ms(ban.retry_after),
        }
    }

    fn at(&self, now: Timestamp) -> anyhow::Result<ActiveBan> {
        let rest = |ms| Timestamp::from_millis(ms).saturating_since(now);
        let account = Account { policy: self.policy.parse()?, identity: self.identity.parse()? };
        let (rest, retry_after) = (rest(self.until_ms), rest(self.retry_at_ms));
        Ok(ActiveBan { account, rest, retry_after })
    }
}
