//! The sources of the configuration: a file, flags and the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use slidegate::Quota;

use crate::config::error::{ConfigErrors, Diagnostic, Origin};
use crate::config::flags::Flags;
use crate::file::{self, FileContents};

/// The sources of the configuration, kept for reloads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// The file; without it, the one that `SLIDEGATE_CONFIG` names, if it does.
    pub(crate) file: Option<File>,
    pub(crate) flags: Flags,
    pub(crate) environment: Environment,
    /// Whether files and folders that the configuration names are left out, as they may be on another
    /// machine.
    pub(crate) skip_files: bool,
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
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Whether every user of this machine may read it.
    pub(super) is_open_to_all: bool,
}

/// Hundreds of times what any team writes.
pub(crate) const MAX_BYTES: u64 = 1024 * 1024;

impl File {
    /// The file of a path, or for `-` and `/dev/stdin` what comes from standard input.
    fn or_stdin(path: &Path) -> anyhow::Result<Self> {
        // Named as a file, it may be a pipe.
        if path.as_os_str() != "-" && path != Path::new("/dev/stdin") {
            return Ok(Self::Path(path.to_owned()));
        }
        let mut bytes = Vec::new();
        let input = io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes);
        input.context("standard input cannot be read")?;
        let name = "standard input".to_owned();
        let text = text(name.as_ref(), bytes).map_err(|error| ConfigErrors::new(vec![error]))?;
        Ok(Self::Text { name, text })
    }
}

impl Sources {
    /// Those of a command: the file of a path, or standard input, its flags and the environment.
    pub(crate) fn of_command(path: Option<&Path>, flags: Flags) -> anyhow::Result<Self> {
        let file = path.map(File::or_stdin).transpose()?;
        let environment = Environment::of_this_process();
        Ok(Self { file, flags, environment, skip_files: false })
    }

    /// The same, without the files and folders that the configuration names, if it is so.
    pub(crate) fn skipping_files(self, skip_files: bool) -> Self {
        Self { skip_files, ..self }
    }

    /// The same, but with these quotas in place of those of one policy.
    pub(crate) fn with_quotas(&self, policy: &str, quotas: Vec<Quota>) -> Self {
        let flags = Flags { quota: quotas, profile: None, ..self.flags.clone() };
        let mut environment = self.environment.clone();
        environment.0.insert(POLICY.to_owned(), policy.to_owned());
        Self { file: self.file.clone(), flags, environment, skip_files: self.skip_files }
    }

    /// The file to watch, if there is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match &self.file {
            Some(File::Path(path)) => Some(path.clone()),
            Some(File::Text { .. }) => None,
            None => self.environment.get(CONFIG).map(PathBuf::from),
        }
    }

    /// The same with this text in place of the file.
    pub(crate) fn with_text(&self, path: &Path, text: String) -> Result<Self, ConfigErrors> {
        let text = self::text(path, text.into_bytes());
        let text = text.map_err(|error| ConfigErrors::new(vec![error]))?;
        let file = File::Text { name: path.display().to_string(), text };
        Ok(Self { file: Some(file), ..self.clone() })
    }

    /// What the file is called; empty if there is none.
    pub(crate) fn name(&self) -> String {
        match &self.file {
            Some(File::Text { name, .. }) => name.clone(),
            _ => self.path().map(|path| path.display().to_string()).unwrap_or_default(),
        }
    }

    /// Reads the file, if there is one.
    pub(super) fn read(&self) -> Result<Option<FileText>, Diagnostic> {
        if let Some(File::Text { name, text }) = &self.file {
            let (path, text) = (PathBuf::from(name), text.clone());
            return Ok(Some(FileText { path, text, is_open_to_all: false }));
        }
        self.path().as_deref().map(read_file).transpose()
    }
}

/// The name and the text of a configuration file, or of standard input for `-`.
pub(crate) fn read_named(path: &Path) -> anyhow::Result<(String, String)> {
    let sources = Sources { file: Some(File::or_stdin(path)?), ..Sources::default() };
    let file = sources.read().map_err(|error| ConfigErrors::new(vec![error]))?;
    Ok((sources.name(), file.map(|file| file.text).unwrap_or_default()))
}

/// Reads a file of which something is expected.
pub(super) fn read_file(path: &Path) -> Result<FileText, Diagnostic> {
    let error = |text: String| Diagnostic::new(in_file(path, None), text);
    let read = file::read(path, MAX_BYTES);
    let FileContents { bytes, is_open_to_all } =
        read.map_err(|e| error(format!("cannot be read: {e}")))?;
    if bytes.trim_ascii().is_empty() {
        // Probably still being written.
        return Err(error("is empty: expected at least one key".to_owned()));
    }
    Ok(FileText { text: text(path, bytes)?, path: path.to_owned(), is_open_to_all })
}

/// The text of a file that may be anything.
pub(super) fn text(path: &Path, bytes: Vec<u8>) -> Result<String, Diagnostic> {
    if bytes.len() as u64 > MAX_BYTES {
        let expected = format!("expected at most {MAX_BYTES} bytes");
        return Err(Diagnostic::new(in_file(path, None), expected));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Diagnostic::new(in_file(path, Some(line)), "this is not UTF-8 text")
    })
}

fn in_file(path: &Path, line: Option<usize>) -> Origin {
    Origin::File { path: path.into(), line }
}

/// Environment variables, with what they were when the server was started.
#[derive(Clone, Default)]
pub(crate) struct Environment(pub(super) BTreeMap<String, String>);

pub(super) const CONFIG: &str = "SLIDEGATE_CONFIG";
pub(super) const ADMIN_TOKEN: &str = "SLIDEGATE_ADMIN_TOKEN";
pub(super) const DECISIONS_TOKEN: &str = "SLIDEGATE_DECISIONS_TOKEN";
pub(super) const RESP_TOKEN: &str = "SLIDEGATE_RESP_TOKEN";
pub(super) const RLS_TOKEN: &str = "SLIDEGATE_RLS_TOKEN";
pub(super) const ENABLED: &str = "RATE_LIMIT_ENABLED";
pub(super) const MAX: &str = "RATE_LIMIT_MAX";
pub(super) const POLICY: &str = "RATE_LIMIT_POLICY";
pub(super) const TTL: &str = "RATE_LIMIT_TTL";
pub(super) const WINDOW_MS: &str = "RATE_LIMIT_WINDOW_MS";
pub(super) const REDIS_URL: &str = "REDIS_URL";

impl Environment {
    /// That of this process.
    fn of_this_process() -> Self {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self(std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect())
    }

    /// A variable's value; one that is empty counts as not set, as in a Compose file.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// An error about a variable's value.
    pub(super) fn error(&self, name: &'static str, expected: &str) -> Diagnostic {
        Diagnostic::new(Origin::Variable(name), expected).with_text(self.get(name))
    }
}

impl fmt::Debug for Environment {
    /// Names only: some of the values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
