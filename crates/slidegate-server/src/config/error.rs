//! Errors and warnings, each with the place that it is about.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The source of a value: a line of a file, a flag, an environment variable, or the default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A file, at a line counted from 1; without a line, all of it.
    File {
        path: Arc<Path>,
        line: Option<usize>,
    },
    Flag(&'static str),
    Variable(&'static str),
    Default,
}

/// An origin and the key there, such as `policy[2].quotas[0]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) origin: Origin,
    /// Empty if the origin alone identifies the value.
    pub(crate) key: String,
}

impl Location {
    /// The file that this is in, if it is in one.
    pub(super) fn file(&self) -> Option<&Arc<Path>> {
        if let Origin::File { path, .. } = &self.origin { Some(path) } else { None }
    }

    /// A key below this one, at the same origin.
    pub(super) fn below(&self, key: &str) -> Self {
        let is_bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let key = match key {
            _ if !key.is_empty() && key.bytes().all(is_bare) => key.to_owned(),
            _ => quoted(key),
        };
        let key = if self.key.is_empty() { key } else { format!("{}.{key}", self.key) };
        Self { origin: self.origin.clone(), key }
    }
}

impl From<Origin> for Location {
    fn from(origin: Origin) -> Self {
        Self { origin, key: String::new() }
    }
}

/// A string in quotes, cut off after 80 characters.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Origin::File { path, line: None } => path.display().fmt(f),
            Origin::Flag(name) => write!(f, "flag {name}"),
            Origin::Variable(name) => write!(f, "environment: {name}"),
            Origin::Default => f.write_str("default"),
        }?;
        if self.key.is_empty() { Ok(()) } else { write!(f, ": {}", self.key) }
    }
}

/// An error or a warning: where, with which value, and what was expected or what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Diagnostic {
    pub(super) location: Location,
    /// As it was written; none if there is no value, or it is not to be shown.
    pub(super) value: Option<String>,
    pub(super) text: String,
}

impl Diagnostic {
    pub(super) fn new(location: impl Into<Location>, text: impl fmt::Display) -> Self {
        Self { location: location.into(), value: None, text: text.to_string() }
    }

    /// Gives a file another name.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        if let Origin::File { path, .. } = &mut self.location.origin
            && **path == *from
        {
            *path = to.into();
        }
    }

    /// With a value that is a string, if there is one.
    pub(super) fn with_text(self, text: Option<&str>) -> Self {
        Self { value: text.map(quoted), ..self }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, value, text } = self;
        match value {
            Some(value) => write!(f, "{location} = {value}: {text}"),
            None => write!(f, "{location}: {text}"),
        }
    }
}

/// All errors, a line each, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub(crate) struct ConfigErrors(Vec<Diagnostic>);

/// The most errors shown at once.
const SHOWN: usize = 100;

impl ConfigErrors {
    pub(super) fn new(mut errors: Vec<Diagnostic>) -> Self {
        errors.sort();
        errors.dedup();
        Self(errors)
    }

    /// The same errors, with another name for a file.
    pub(crate) fn renamed(mut self, from: &Path, to: &Path) -> Self {
        self.0.iter_mut().for_each(|error| error.rename(from, to));
        self
    }

    /// The errors of one file, and of others only that there are some: what is wrong with a line shows
    /// what is in it.
    pub(crate) fn only_in(self, file: &Path) -> Self {
        let errors = self.0.into_iter().map(|error| match &error.location.origin {
            Origin::File { path, .. } if **path != *file => {
                let origin = Origin::File { path: path.clone(), line: None };
                let text =
                    "what is in it does not fit; why is shown only if there is an admin.token";
                Diagnostic::new(origin, text)
            }
            _ => error,
        });
        Self::new(errors.collect())
    }

    /// The text of each error, up to the number that is shown.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.iter().take(SHOWN).map(ToString::to_string).collect()
    }

    fn text(&self) -> String {
        let (count, lines) = (self.0.len(), self.texts().join("\n"));
        match count {
            1 => lines,
            0..=SHOWN => format!("{count} problems:\n{lines}"),
            _ => format!("{count} problems:\n{lines}\nand {} more", count - SHOWN),
        }
    }
}
