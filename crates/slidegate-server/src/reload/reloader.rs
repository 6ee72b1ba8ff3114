//! Loads configurations as a reload does, and says what they would change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use parking_lot::Mutex;
use slidegate::Policies;

use super::{Loader, difference, history, needs_restart};
use crate::api::{AccountsOverQuota, ReloadChanges};
use crate::config::{self, Config, ConfigErrors, Loaded, ServerConfig, Sources, StandingConfig};
use crate::live_config::LiveConfig;
use crate::observe::Observer;

/// What the server was started with, and what is in force.
#[derive(Debug)]
pub(crate) struct Reloader {
    pub(crate) live: Arc<LiveConfig>,
    pub(crate) observer: Observer,
    /// As it was at the start.
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) sources: Sources,
    /// The files that the configuration in force has been read from, besides its own.
    pub(crate) files: Mutex<BTreeSet<PathBuf>>,
    /// For reloads.
    pub(crate) loader: Loader,
    /// For plans: one that hangs does not keep a reload from being tried.
    pub(crate) plan_loader: Loader,
    /// Held while a plan is made: it may take a large file and many calls to the store, so there is
    /// one at a time.
    pub(crate) planning: tokio::sync::Mutex<()>,
}

impl Reloader {
    /// Loads the configuration again, and says what it would change.
    pub(crate) async fn load(self: &Arc<Self>) -> anyhow::Result<(Loaded, ReloadChanges)> {
        let this = self.clone();
        self.loader.run(move || this.compared(config::load(&this.sources)?)).await?
    }

    /// The same for a text in place of the file: the files that it names are found from where that one
    /// is, and errors call it by this name.
    pub(crate) async fn plan(
        self: &Arc<Self>,
        name: String,
        text: String,
    ) -> anyhow::Result<Result<(Loaded, ReloadChanges), anyhow::Error>> {
        let this = self.clone();
        self.plan_loader.run(move || this.compared(this.load_text(&name, text)?)).await
    }

    fn load_text(&self, name: &str, text: String) -> Result<Loaded, ConfigErrors> {
        let folder = self.sources.path().and_then(|path| path.parent().map(Path::to_owned));
        // A name that no file can have, so that no other file is taken for the text.
        let path: PathBuf = folder.unwrap_or_default().join("\0");
        let (given, sources) = (Path::new(name), self.sources.with_text(&path, text)?);
        if self.config.admin.token.is_some() {
            let loaded = config::load(&sources);
            return loaded.map(|l| l.renamed(&path, given)).map_err(|e| e.renamed(&path, given));
        }
        // Every user of this machine may ask, and learns nothing of what is in other files.
        let loaded = config::load_with_files(&sources, self.files.lock().clone());
        let loaded = loaded.map_err(|errors| errors.only_in(&path).renamed(&path, given))?;
        Ok(loaded.renamed(&path, given))
    }

    /// Checks that the policies can be put in force on the store as it is, whose settings a reload
    /// leaves alone, and compares them with those in force.
    fn compared(&self, loaded: Loaded) -> anyhow::Result<(Loaded, ReloadChanges)> {
        let store = self.live.gate().store();
        store
            .check_policies(&loaded.config.limiter.policies)
            .context("[store] has changed too; restart to apply it. With the store in force")?;
        let changes = self.compare(&loaded.config);
        Ok((loaded, changes))
    }

    /// Compares what is in force with a configuration that is not yet.
    fn compare(&self, new: &Config) -> ReloadChanges {
        let (old_policies, new_policies) = (self.live.gate().policies(), &new.limiter.policies);
        let mut changes = difference(&old_policies, new_policies);
        changes.extend(self.compare_reading(new));
        let restart =
            needs_restart(&self.config, &new.server).into_iter().map(str::to_owned).collect();
        let history = history(&old_policies, new_policies, &self.config.store);
        ReloadChanges { changes, history, restart }
    }

    /// How clients and paths are read.
    fn compare_reading(&self, new: &Config) -> Vec<String> {
        let (old, new, mut changes) = (self.live.settings(), &new.limiter, Vec::new());
        let (before, after) = (old.limiter.client_address.source(), new.client_address.source());
        if before != after {
            changes.push(format!("client address {before} -> {after}"));
        } else if old.limiter.client_address != new.client_address {
            changes.push("the list of trusted proxies has changed".to_owned());
        }
        let (before, after) = (old.standing.as_ref().map(|own| &own.config), &new.standing);
        if before != after.as_ref() {
            changes.push(match after {
                Some(StandingConfig { path, .. }) => format!("standing: told at {path}"),
                None => "standing: no longer told".to_owned(),
            });
        }
        if old.paths != new.policies.path_reading() {
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
