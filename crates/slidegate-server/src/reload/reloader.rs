//! Loads configurations as a reload does, and says what they would change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use slidegate::{Policies, Store};
use tokio::sync::Mutex;

use super::{AccountsOverQuota, difference, history, needs_restart};
use crate::config::{self, Config, ConfigErrors, Loaded, Sources};
use crate::live_config::LiveConfig;
use crate::observe::{Observer, StoreReport};

/// What the server was started with, and what is in force.
#[derive(Debug)]
pub(crate) struct Reloader<S> {
    pub(crate) live: Arc<LiveConfig<S>>,
    pub(crate) observer: Observer,
    /// As it was at the start, without policies.
    pub(crate) config: Arc<Config>,
    pub(crate) sources: Sources,
    /// Held while a plan is made: it may take a large file and many calls to the store, so there is
    /// one at a time.
    pub(crate) planning: Mutex<()>,
}

/// What a reload changes, what becomes of the history of accounts, and the sections that only a
/// restart changes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReloadChanges {
    pub(crate) changes: Vec<String>,
    pub(crate) history: Vec<String>,
    pub(crate) restart: Vec<String>,
}

impl<S: Store + StoreReport> Reloader<S> {
    /// Loads the configuration again.
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        self.load_from(&self.sources)
    }

    /// Loads a text in place of the file: the files that it names are found from where that one is,
    /// and errors call it by this name.
    pub(crate) fn load_text(&self, name: &str, text: String) -> anyhow::Result<Loaded> {
        let folder = self.sources.path().and_then(|path| path.parent().map(Path::to_owned));
        let base = Path::new(name).file_name().unwrap_or_default();
        let path: PathBuf = folder.unwrap_or_default().join(base);
        let (given, sources) = (Path::new(name), self.sources.with_text(&path, text)?);
        match self.load_from(&sources) {
            Ok(mut loaded) => {
                loaded.warnings.iter_mut().for_each(|warning| warning.rename(&path, given));
                Ok(loaded)
            }
            Err(error) => Err(match error.downcast::<ConfigErrors>() {
                Ok(errors) => errors.renamed(&path, given).into(),
                Err(error) => error,
            }),
        }
    }

    /// Loads a configuration whose policies can be put in force on the store as it is: a reload
    /// leaves the store's settings alone.
    fn load_from(&self, sources: &Sources) -> anyhow::Result<Loaded> {
        let loaded = config::load(sources)?;
        let store = self.live.gate().store();
        store
            .check_policies(&loaded.config.rules.policies)
            .context("[store] has changed too; restart to apply it. With the store in force")?;
        Ok(loaded)
    }

    /// Compares what is in force with a configuration that is not yet.
    pub(crate) fn compare(&self, new: &Config) -> ReloadChanges {
        let (old_policies, new_policies) = (self.live.gate().policies(), &new.rules.policies);
        let mut changes = difference(&old_policies, new_policies);
        changes.extend(self.compare_reading(new));
        let restart = needs_restart(&self.config, new).into_iter().map(str::to_owned).collect();
        let history = history(&old_policies, new_policies, &self.config.store);
        ReloadChanges { changes, history, restart }
    }

    /// How clients and paths are read.
    fn compare_reading(&self, new: &Config) -> Vec<String> {
        let (old, new, mut changes) = (self.live.settings(), &new.rules, Vec::new());
        let (before, after) = (old.client_address.source(), new.client_address.source());
        if before != after {
            changes.push(format!("client address {before} -> {after}"));
        } else if old.client_address != new.client_address {
            changes.push("the list of trusted proxies has changed".to_owned());
        }
        if old.paths != new.paths {
            changes.push("how paths are read has changed".to_owned());
        }
        changes
    }

    /// Accounts that have spent more than new policies allow, whether these are in force or not.
    pub(crate) async fn accounts_over(&self, old: &Policies, new: &Policies) -> AccountsOverQuota {
        AccountsOverQuota::find(self.live.gate(), &self.observer, old, new).await
    }
}

impl ReloadChanges {
    /// Logs what a reload has changed.
    pub(crate) fn log(&self) {
        if self.changes.is_empty() {
            tracing::info!("reloaded: no change of policies");
        }
        for line in self.changes.iter().chain(&self.history) {
            tracing::info!("reloaded: {line}");
        }
        for section in &self.restart {
            tracing::warn!("[{section}] has changed; restart to apply it");
        }
    }
}
