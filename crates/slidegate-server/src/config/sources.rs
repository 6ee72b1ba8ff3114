//! The sources of the configuration: a file, flags and the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use crate::config::error::{ConfigError, ConfigErrors, Location, Origin};
use crate::config::flags::Flags;

/// The sources of the configuration, kept for reloads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// The file; without it, the one that `SLIDEGATE_CONFIG` names, if it does.
    pub(crate) file: Option<File>,
    pub(crate) flags: Flags,
    pub(crate) environment: Environment,
}

/// A configuration file.
#[derive(Clone)]
pub(crate) enum File {
    /// One that is read whenever it is asked for.
    Path(PathBuf),
    /// One that was read already, as from standard input.
    Text { name: String, text: String },
}

impl fmt::Debug for File {
    /// Without the text, which may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Text { name, .. } => f.debug_tuple("Text").field(name).finish(),
        }
    }
}

/// A file as it was read.
pub(super) struct FileText {
    pub(super) name: String,
    /// Where relative paths start.
    pub(super) folder: PathBuf,
    pub(super) text: String,
    /// Whether every user of this machine may read it.
    pub(super) is_open_to_all: bool,
}

/// Hundreds of times what any team writes.
const MAX_BYTES: u64 = 1024 * 1024;

impl File {
    /// The file of a path, or for `-` what comes from standard input.
    pub(crate) fn or_stdin(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() != "-" {
            return Ok(Self::Path(path.to_owned()));
        }
        let mut bytes = Vec::new();
        let input = std::io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes);
        input.context("standard input cannot be read")?;
        let name = "standard input".to_owned();
        let text = text(&name, bytes).map_err(|problem| ConfigErrors::new(vec![problem]))?;
        Ok(Self::Text { name, text })
    }
}

impl Sources {
    /// The file to watch, if there is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match &self.file {
            Some(File::Path(path)) => Some(path.clone()),
            Some(File::Text { .. }) => None,
            None => self.environment.get(CONFIG).map(PathBuf::from),
        }
    }

    /// Reads the file, if there is one.
    pub(super) fn read(&self) -> Result<Option<FileText>, ConfigError> {
        if let Some(File::Text { name, text }) = &self.file {
            let (name, text) = (name.clone(), text.clone());
            return Ok(Some(FileText {
                name,
                folder: PathBuf::new(),
                text,
                is_open_to_all: false,
            }));
        }
        self.path().map(|path| read(&path)).transpose()
    }
}

fn read(path: &Path) -> Result<FileText, ConfigError> {
    let name = path.display().to_string();
    let problem = |what: String| whole(&name, None, what);
    let cannot = |error: std::io::Error| problem(format!("cannot be read: {error}"));
    let (bytes, is_open_to_all) = read_bytes(path, MAX_BYTES).map_err(cannot)?;
    if bytes.trim_ascii().is_empty() {
        // More likely a file in the making than a wish for defaults.
        return Err(problem("is empty: expected at least one key".to_owned()));
    }
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    Ok(FileText { text: text(&name, bytes)?, name, folder, is_open_to_all })
}

/// The text of a file that may be anything.
pub(super) fn text(name: &str, bytes: Vec<u8>) -> Result<String, ConfigError> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(whole(name, None, format!("expected at most {MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        whole(name, Some(line), "this is not UTF-8 text".to_owned())
    })
}

fn whole(name: &str, line: Option<usize>, what: String) -> ConfigError {
    let origin = Origin::File { name: Arc::from(name), line };
    ConfigError::new(Location::of(origin), what)
}

/// Reads a file up to one byte more than it may have, and whether every user of this machine may
/// read it.
pub(super) fn read_bytes(path: &Path, max_bytes: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let file = std::fs::File::open(path)?;
    let meta = file.metadata()?;
    let is_open_to_all = meta.is_file() && meta.permissions().mode() & 0o004 != 0;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    Ok((bytes, is_open_to_all))
}

/// The variables that the server looks at, with what they were when it was started.
#[derive(Clone, Default)]
pub(crate) struct Environment(BTreeMap<&'static str, String>);

pub(crate) const CONFIG: &str = "SLIDEGATE_CONFIG";
pub(crate) const ADMIN_TOKEN: &str = "SLIDEGATE_ADMIN_TOKEN";
pub(crate) const DECISIONS_TOKEN: &str = "SLIDEGATE_DECISIONS_TOKEN";
pub(crate) const ENABLED: &str = "RATE_LIMIT_ENABLED";
pub(crate) const MAX: &str = "RATE_LIMIT_MAX";
pub(crate) const POLICY: &str = "RATE_LIMIT_POLICY";
pub(crate) const TTL: &str = "RATE_LIMIT_TTL";
pub(crate) const WINDOW_MS: &str = "RATE_LIMIT_WINDOW_MS";
pub(crate) const REDIS_URL: &str = "REDIS_URL";

const KNOWN: [&str; 9] =
    [CONFIG, ADMIN_TOKEN, DECISIONS_TOKEN, ENABLED, MAX, POLICY, TTL, WINDOW_MS, REDIS_URL];

impl Environment {
    /// That of this process.
    pub(crate) fn of_this_process() -> Self {
        Self::from_lookup(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// A given one, of which the variables that are known are kept.
    #[cfg(test)]
    pub(crate) fn of<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> Self {
        let variables: BTreeMap<&str, &str> = variables.into_iter().collect();
        Self::from_lookup(|name| variables.get(name).map(|value| (*value).to_owned()))
    }

    fn from_lookup(lookup: impl Fn(&'static str) -> Option<String>) -> Self {
        Self(KNOWN.into_iter().filter_map(|name| Some((name, lookup(name)?))).collect())
    }

    /// A variable's value; one that is empty counts as not set, as in a Compose file.
    pub(super) fn get(&self, name: &'static str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Environment {
    /// Names only: some of the values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
