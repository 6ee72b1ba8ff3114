//! A TOML text as a tree in which everything knows its line.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::ConfigError;
use crate::config::location::{Location, Origin};
use crate::config::reader::Table;

/// What is being read, and what was found wrong with it so far.
#[derive(Debug)]
pub(super) struct Document {
    name: Arc<str>,
    /// Where relative paths start.
    folder: PathBuf,
    line_starts: Vec<usize>,
    problems: RefCell<Vec<ConfigError>>,
}

impl Document {
    pub(super) fn new(name: &str, folder: &Path, text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self {
            name: name.into(),
            folder: folder.to_owned(),
            line_starts: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect(),
            problems: RefCell::default(),
        }
    }

    /// Reads the text with `read`. What cannot be read as TOML is a problem, and so is every key
    /// that `read` does not ask for.
    pub(super) fn read<T>(&self, text: &str, read: impl FnOnce(&Table<'_>) -> T) -> T {
        let (tree, errors) = DeTable::parse_recoverable(text);
        let root = Spanned::new(tree.span(), DeValue::Table(tree.into_inner()));
        let result = Table::root(self, &root, read);
        if !errors.is_empty() {
            self.keep_certain(&errors);
        }
        result
    }

    /// Of a text that is not TOML, parts may have been lost or torn apart: what is said about a
    /// value that was found elsewhere is true, the rest may not be.
    fn keep_certain(&self, errors: &[toml::de::Error]) {
        let line = |error: &toml::de::Error| error.span().map(|span| self.line(span.start));
        let torn: Vec<Option<usize>> = errors.iter().map(line).collect();
        let mut problems = self.problems.borrow_mut();
        problems.retain(|problem| {
            let Origin::File { line, .. } = &problem.location().origin else { return true };
            problem.has_value() && !torn.contains(line)
        });
        for error in errors {
            let origin = Origin::File { name: self.name.clone(), line: line(error) };
            let what = format!("this is not TOML: {}", error.message());
            problems.push(ConfigError::new(Location { origin, key: String::new() }, what));
        }
    }

    /// The location of a key whose value begins so many bytes into the text.
    pub(super) fn location(&self, at: usize, key: &str) -> Location {
        let origin = Origin::File { name: self.name.clone(), line: Some(self.line(at)) };
        Location { origin, key: key.to_owned() }
    }

    pub(super) fn report(&self, problem: ConfigError) {
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn into_problems(self) -> Vec<ConfigError> {
        self.problems.into_inner()
    }

    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }
}
