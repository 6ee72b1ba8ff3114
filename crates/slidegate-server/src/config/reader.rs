//! Reads values from the tree one by one: what is wrong with one does not hide another.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use crate::calendar::Rfc3339;
use crate::config::error::{Diagnostic, Location, Origin};
use crate::config::preflight::{Preflight, PreflightCheck};
use crate::config::tree::{Content, Node};
use crate::config::values::Secret;
use crate::file::{self, FileContents};
use slidegate::Timestamp;
use slidegate::limit::Period;

/// No secret has a hundredth of it.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// Collects the errors and warnings of a tree that is read.
#[derive(Default)]
pub(super) struct Reader {
    /// Checks what a server needs to start. There is none for a reload: policies can be changed while a
    /// disk is full.
    preflight: Option<PreflightCheck>,
    /// Whether no file is read that the configuration names.
    skips_files: bool,
    errors: RefCell<Vec<Diagnostic>>,
    /// Those of a text itself.
    syntax_errors: RefCell<Vec<Diagnostic>>,
    warnings: RefCell<Vec<Diagnostic>>,
    /// Whether there was a warning about a secret in a file.
    pub(super) has_secrets: Cell<bool>,
    /// The files whose contents are a part of the configuration.
    pub(super) files: RefCell<BTreeSet<PathBuf>>,
    /// Those of them that are watched for changes.
    pub(super) watched: RefCell<Vec<DataFile>>,
    /// The only ones that may be read; none for any.
    allowed_files: Option<BTreeSet<PathBuf>>,
}

/// A file of keys or networks as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataFile {
    pub(crate) path: PathBuf,
    pub(crate) max_bytes: u64,
    /// Changes with the contents.
    pub(crate) fingerprint: u64,
}

/// A value, or the place of one that is missing. What is missing reads as `None`, as does what is
/// wrong, which is reported.
#[derive(Clone)]
pub(crate) struct Value<'t> {
    reader: &'t Reader,
    pub(super) location: Location,
    pub(super) node: Option<&'t Node>,
    is_secret: bool,
}

impl Reader {
    /// For a server that is to start.
    pub(super) fn for_start(preflight: PreflightCheck) -> Self {
        Self { preflight: Some(preflight), ..Self::default() }
    }

    /// For a text whose author may not know what is in other files than these.
    pub(super) fn for_files(allowed: BTreeSet<PathBuf>) -> Self {
        Self { allowed_files: Some(allowed), ..Self::default() }
    }

    /// For a configuration whose files may be on another machine.
    pub(super) fn skipping_files() -> Self {
        Self { skips_files: true, ..Self::default() }
    }

    pub(super) fn root<'t>(&'t self, node: &'t Node) -> Value<'t> {
        Value { node: Some(node), ..self.nothing() }
    }

    /// A value that is missing, so that all below it is as by default.
    pub(super) fn nothing(&self) -> Value<'_> {
        Value { reader: self, location: Origin::Default.into(), node: None, is_secret: false }
    }

    pub(crate) fn report(&self, error: Diagnostic) {
        self.errors.borrow_mut().push(error);
    }

    pub(super) fn warn(&self, location: impl Into<Location>, text: impl Display) {
        self.warnings.borrow_mut().push(Diagnostic::new(location, text));
    }

    /// Parses a TOML text as far as it can be parsed.
    pub(super) fn parse(&self, path: &Path, text: &str) -> Node {
        let (root, errors) = Node::parse(path, text);
        self.syntax_errors.borrow_mut().extend(errors);
        root
    }

    /// Reports unknown keys.
    pub(super) fn report_unknown(&self, node: &Node) {
        let table = match &node.content {
            Content::Table(table) => table,
            Content::List(nodes) => return nodes.iter().for_each(|node| self.report_unknown(node)),
            _ => return,
        };
        let known: Vec<&str> = table.asked.borrow().iter().copied().collect();
        for (name, node) in &table.entries {
            // The keys of a table that is asked for none are names.
            if known.is_empty() || known.contains(&name.as_str()) {
                self.report_unknown(node);
                continue;
            }
            let expected = match nearest(name, known.iter().copied()) {
                Some(meant) => format!("unknown key: did you mean {meant}?"),
                None => format!("unknown key: expected {}", any_of(&known)),
            };
            self.report(Diagnostic::new(node.location.clone(), expected));
        }
    }

    /// All errors and all warnings. Of a text that is not TOML, parts may have been lost or torn
    /// apart: what is reported about a value of another line is true, the rest may not be.
    pub(super) fn finish(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let (mut errors, syntax_errors) =
            (self.errors.into_inner(), self.syntax_errors.into_inner());
        errors.retain(|error| {
            let mut torn = syntax_errors.iter().map(|torn| &torn.location);
            !torn.any(|torn| match error.value {
                Some(_) => torn.origin == error.location.origin,
                None => torn.file() == error.location.file(),
            })
        });
        errors.extend(syntax_errors);
        (errors, self.warnings.into_inner())
    }
}

impl<'t> Value<'t> {
    /// The value of a key of this table.
    pub(crate) fn key(&self, key: &'static str) -> Self {
        if let Some(Node { content: Content::Table(table), .. }) = self.node {
            table.asked.borrow_mut().insert(key);
        }
        self.named(key)
    }

    /// The value of a name in this table.
    pub(crate) fn named(&self, name: &str) -> Self {
        match self.node.and_then(|node| node.get(&[name])) {
            Some(node) => self.at(node),
            None => Self { location: self.location.below(name), node: None, ..self.clone() },
        }
    }

    fn at(&self, node: &'t Node) -> Self {
        let location = node.location.clone();
        Self { reader: self.reader, location, node: Some(node), is_secret: self.is_secret }
    }

    /// The same value, which no error shows.
    pub(crate) fn hidden(&self) -> Self {
        Self { is_secret: true, ..self.clone() }
    }

    /// The line of the file, counted from 1; 0 if it is in none.
    pub(crate) fn line(&self) -> usize {
        match self.location.origin {
            Origin::File { line: Some(line), .. } => line,
            _ => 0,
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.node.is_some()
    }

    pub(crate) fn is_text(&self) -> bool {
        self.node.is_some_and(|node| node.text().is_some())
    }

    pub(super) fn is_table(&self) -> bool {
        self.node.is_some_and(|node| matches!(node.content, Content::Table(_)))
    }

    /// This value, if it is a table. What is in it is shown again.
    pub(crate) fn table(&self) -> Option<Self> {
        let table = self.is_table().then(|| Self { is_secret: false, ..self.clone() });
        table.or_else(|| self.reject_kind("a table"))
    }

    /// The table of a key, or the place of one.
    pub(super) fn section(&self, key: &'static str) -> Self {
        let value = self.key(key);
        value.table().unwrap_or(Self { node: None, ..value })
    }

    /// The entries of a table whose keys are names.
    pub(crate) fn names(&self) -> Vec<(&'t str, Self)> {
        let entries = self.table().and_then(|table| table.node).map_or(&[][..], Node::entries);
        entries.iter().map(|(name, node)| (name.as_str(), self.at(node))).collect()
    }

    /// The elements of a list; anything else is its own only element.
    pub(crate) fn elements(&self) -> Vec<Self> {
        let nodes = self.node.map_or(&[][..], Node::elements);
        nodes.iter().map(|node| self.at(node)).collect()
    }

    /// What `read` makes of each element.
    pub(crate) fn each<T>(&self, read: impl Fn(&Self) -> Option<T>) -> Vec<T> {
        self.elements().iter().filter_map(read).collect()
    }

    /// The last string in this value, at any depth, that is this one.
    pub(super) fn find(&self, text: &str) -> Option<Self> {
        let node = self.node?;
        let below = match &node.content {
            Content::Table(_) => self.names().into_iter().map(|(_, value)| value).collect(),
            Content::List(_) => self.elements(),
            _ => return (node.text() == Some(text)).then(|| self.clone()),
        };
        below.iter().rev().find_map(|value| value.find(text))
    }

    /// This value, which must be there.
    pub(crate) fn required(self, expected: impl Display) -> Self {
        if !self.is_set() {
            self.report(format!("missing: expected {expected}"));
        }
        self
    }

    /// The value as JSON, whatever it is. All keys of its tables are names.
    pub(crate) fn json(&self) -> serde_json::Value {
        self.node.map_or(serde_json::Value::Null, Node::json)
    }

    pub(crate) fn text(&self) -> Option<&'t str> {
        self.node?.text().or_else(|| self.reject_kind("a string"))
    }

    pub(crate) fn string(&self) -> Option<String> {
        self.text().map(str::to_owned)
    }

    /// A string that stands for something.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(&self) -> Option<T> {
        match self.text()?.parse() {
            Ok(parsed) => Some(parsed),
            Err(error) => self.reject(error),
        }
    }

    /// The same, with an error of our own.
    pub(crate) fn parsed_as<T: FromStr>(&self, expected: &str) -> Option<T> {
        self.text()?.parse().ok().or_else(|| self.reject(expected))
    }

    /// One of some words.
    pub(crate) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        found.or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.reject(format!("expected {}", any_of(&known)))
        })
    }

    /// One of the words that a flag takes too.
    pub(super) fn word<T: ValueEnum>(&self) -> Option<T> {
        let values = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
        let words: Vec<_> = names.iter().map(String::as_str).zip(T::value_variants()).collect();
        self.one_of(&words).cloned()
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self.node?.content {
            Content::Boolean(value) => Some(value),
            _ => self.reject("expected true or false"),
        }
    }

    pub(super) fn is_true(&self) -> bool {
        self.boolean() == Some(true)
    }

    /// Whether it is the boolean, without an error if it is something else.
    pub(crate) fn is_false(&self) -> bool {
        matches!(self.node, Some(Node { content: Content::Boolean(false), .. }))
    }

    pub(crate) fn number<N>(&self, range: RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<i128> + Display + PartialOrd,
    {
        let number = match self.node?.content {
            Content::Integer(number) => N::try_from(number).ok(),
            _ => None,
        };
        number.filter(|number| range.contains(number)).or_else(|| {
            let (least, most) = (range.start(), range.end());
            self.reject(format!("expected a whole number from {least} to {most}"))
        })
    }

    /// A number from 0 to 1, of which TOML has whole ones and others.
    pub(super) fn share(&self) -> Option<f64> {
        let number = match &self.node?.content {
            Content::Integer(number) => Some(*number as f64),
            Content::Other(text) => text.parse().ok(),
            _ => None,
        };
        let share = number.filter(|number| (0.0..=1.0).contains(number));
        share.or_else(|| self.reject("expected a number from 0 to 1, such as 0.1"))
    }

    /// A length of time that is at most `most`.
    pub(super) fn period(&self, most: Duration) -> Option<Duration> {
        let Period(period) = self.parsed()?;
        let expected = || self.reject(format!("expected at most {}", Period(most)));
        Some(period).filter(|period| *period <= most).or_else(expected)
    }

    /// An instant in RFC 3339, as a string or as a date of TOML.
    pub(super) fn instant(&self) -> Option<Timestamp> {
        let text = match &self.node?.content {
            Content::Text(text) | Content::Other(text) => text.as_str(),
            _ => "",
        };
        let expected = "expected an instant such as 2027-01-01T00:00:00Z";
        let instant = text.parse::<Rfc3339>().ok();
        instant.map(|Rfc3339(at)| at).or_else(|| self.reject(expected))
    }

    /// A file; relative paths start where the file is that names it.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let text = Some(self.text()?).filter(|text| !text.is_empty());
        let text = text.or_else(|| self.reject("expected the path of a file"))?;
        let folder = self.location.file().and_then(|file| file.parent());
        Some(folder.unwrap_or(Path::new("")).join(text))
    }

    pub(super) fn secret(&self) -> Option<Secret> {
        let hidden = self.hidden();
        let secret = Secret::new(hidden.text()?);
        hidden.not_empty(secret)
    }

    /// Whether this value names a file that is not read, as it may be on another machine.
    pub(super) fn is_skipped_file(&self) -> bool {
        self.is_set() && self.reader.skips_files
    }

    /// The secret that is in a file.
    pub(super) fn secret_in_file(&self) -> Option<Secret> {
        if self.is_skipped_file() {
            // Stands for the secret: another one for each file, and long enough for a token.
            return Some(Secret::new(&format!("{:0>32}", self.file()?.display())));
        }
        let contents = self.contents(&self.file()?, MAX_SECRET_BYTES)?;
        match String::from_utf8(contents.bytes) {
            Ok(text) => self.not_empty(Secret::new(&text)),
            Err(_) => self.reject("the file is not UTF-8 text"),
        }
    }

    /// What is in the file that this value names.
    pub(super) fn contents(&self, path: &Path, max_bytes: u64) -> Option<FileContents> {
        let allowed = &self.reader.allowed_files;
        if allowed.as_ref().is_some_and(|allowed| !allowed.contains(path)) {
            return self.reject(
                "the file is not read: without admin.token, only files are that the configuration \
                 in force names too",
            );
        }
        self.reader.files.borrow_mut().insert(path.to_owned());
        let contents = file::read(path, max_bytes);
        contents.map_err(|error| self.report(format!("the file cannot be read: {error}"))).ok()
    }

    /// The same of a file that is watched for changes.
    pub(super) fn watched_contents(&self, path: &Path, max_bytes: u64) -> Option<FileContents> {
        let contents = self.contents(path, max_bytes)?;
        let fingerprint = file::fingerprint(&contents.bytes);
        let file = DataFile { path: path.to_owned(), max_bytes, fingerprint };
        let mut watched = self.reader.watched.borrow_mut();
        if watched.iter().all(|other| other.path != file.path) {
            watched.push(file);
        }
        Some(contents)
    }

    /// Reports a line of another file.
    pub(super) fn report_line(&self, path: &Arc<Path>, line: usize, expected: impl Display) {
        let origin = Origin::File { path: path.clone(), line: Some(line) };
        self.reader.report(Diagnostic::new(origin, expected));
    }

    fn not_empty(&self, secret: Secret) -> Option<Secret> {
        let secret = Some(secret).filter(|secret| !secret.is_empty());
        secret.or_else(|| self.reject("expected at least one character"))
    }

    /// Reports what was expected instead of this value, or where there is none.
    pub(crate) fn report(&self, expected: impl Display) {
        match self.node.and_then(Node::text).filter(|_| !self.is_secret) {
            Some(text) => self.report_with(expected, Some(text)),
            None => self.report_kind(expected),
        }
    }

    /// The same for a value that reads as `None` then.
    pub(crate) fn reject<T>(&self, expected: impl Display) -> Option<T> {
        self.report(expected);
        None
    }

    /// The same for a value of the wrong kind, if there is one.
    fn reject_kind<T>(&self, expected: &str) -> Option<T> {
        if self.is_set() {
            self.report_kind(format!("expected {expected}"));
        }
        None
    }

    /// Reports an error with a text in place of the value.
    pub(crate) fn report_with(&self, expected: impl Display, text: Option<&str>) {
        let error = Diagnostic::new(self.location.clone(), expected);
        self.reader.report(error.with_text(text));
    }

    /// Reports an error without a string, which may be a secret in the wrong place.
    fn report_kind(&self, expected: impl Display) {
        // A secret that the place alone identifies, such as a flag or a line of a list, has no value.
        let is_named = !(self.is_secret && self.location.key.is_empty());
        let value = self.node.filter(|_| is_named).map(|node| match &node.content {
            _ if self.is_secret => "(hidden)".to_owned(),
            Content::Integer(number) => number.to_string(),
            Content::Boolean(value) => value.to_string(),
            Content::Other(shown) => shown.clone(),
            Content::Text(_) => "(a string)".to_owned(),
            Content::List(_) => "(a list)".to_owned(),
            Content::Table(_) => "(a table)".to_owned(),
        });
        let location = self.location.clone();
        self.reader.report(Diagnostic { location, value, text: expected.to_string() });
    }

    /// Reports what would keep the server from starting, perhaps with the path of a file.
    pub(super) fn check_start(&self, file: Option<&Path>, step: Preflight<'_>) {
        if let Some(check) = self.reader.preflight
            && let Err(error) = check(step)
        {
            let file = file.map(|file| file.display().to_string());
            self.report_with(format!("{error:#}"), file.as_deref());
        }
    }

    /// Warns of a secret, if it is in a file.
    pub(super) fn warn_of_secret(&self, text: impl Display) {
        let is_in_file = self.location.file().is_some();
        self.reader.has_secrets.set(is_in_file || self.reader.has_secrets.get());
        self.warn_if(is_in_file, text);
    }

    /// Warns about this value if `condition` holds.
    pub(super) fn warn_if(&self, condition: bool, text: impl Display) {
        if condition {
            self.reader.warn(self.location.clone(), text);
        }
    }
}

/// `a, b or c`.
fn any_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [word] => (*word).to_owned(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}

/// The known word that was probably meant: two slips away, or one if it is short.
pub(super) fn nearest<'k>(
    written: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    // No key is half as long, and the distance takes time for every pair of letters.
    let written: String = written.chars().take(64).collect();
    let distance = |word: &str| strsim::osa_distance(&written, word);
    let best = known.into_iter().min_by_key(|word| distance(word))?;
    let slips = if best.len() < 5 { 1 } else { 2 };
    (distance(best) <= slips).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_and_strangers_are_not() {
        let known = ["quotas", "listen", "tls", "match", "upstream"];
        for (written, meant) in [
            ("qoutas", Some("quotas")),
            ("quota", Some("quotas")),
            ("lissten", Some("listen")),
            ("tsl", Some("tls")),
            ("ssl", None),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), meant, "{written}");
        }
        assert_eq!(nearest("x", []), None);
    }
}
