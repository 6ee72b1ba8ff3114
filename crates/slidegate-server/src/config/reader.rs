//! Values of the tree, asked for one by one: what is wrong with one does not hide another.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::document::Document;
use crate::config::error::ConfigError;
use crate::config::location::{Location, Sourced};
use crate::config::period::Period;
use crate::config::secret::Secret;
use crate::config::suggestion::nearest;

/// A table. Keys that are never read are reported as unknown.
#[derive(Debug)]
pub(super) struct Table<'d> {
    document: &'d Document,
    /// Where it is, such as `policy[2].match`; empty for the whole file.
    path: String,
    at: usize,
    entries: &'d DeTable<'d>,
    asked: RefCell<Vec<&'static str>>,
}

/// A value that is there.
#[derive(Debug, Clone)]
pub(super) struct Value<'d> {
    document: &'d Document,
    path: String,
    node: &'d Spanned<DeValue<'d>>,
    is_secret: bool,
}

impl<'d> Table<'d> {
    /// Reads all of a document.
    pub(super) fn root<T>(
        document: &'d Document,
        node: &'d Spanned<DeValue<'d>>,
        read: impl FnOnce(&Table<'_>) -> T,
    ) -> T {
        let root = Value { document, path: String::new(), node, is_secret: false };
        root.table(read).expect("a document is a table")
    }

    /// The value of a key, if there is one.
    pub(super) fn get(&self, key: &'static str) -> Option<Value<'d>> {
        self.asked.borrow_mut().push(key);
        let (_, node) = self.entries.get_key_value(key)?;
        Some(self.value(key, node))
    }

    /// The same, for values that are not to be shown.
    pub(super) fn get_secret(&self, key: &'static str) -> Option<Value<'d>> {
        self.get(key).map(|value| Value { is_secret: true, ..value })
    }

    /// What `read` makes of a key's value, and where it stands.
    pub(super) fn sourced<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Value<'d>) -> Option<T>,
    ) -> Option<Sourced<T>> {
        let value = self.get(key)?;
        read(&value).map(|read| value.location().with_value(read))
    }

    /// Every entry of a table whose keys are names.
    pub(super) fn entries(&self) -> Vec<(&'d str, Value<'d>)> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let named = |(key, node): (&'d Spanned<std::borrow::Cow<'d, str>>, _)| {
            (key.get_ref().as_ref(), self.value(key.get_ref(), node))
        };
        entries.into_iter().map(named).collect()
    }

    pub(super) fn location(&self) -> Location {
        self.document.location(self.at, &self.path)
    }

    /// Reports a missing key.
    pub(super) fn missing(&self, key: &str, expected: impl Display) {
        let location = self.document.location(self.at, &below(&self.path, key));
        self.document.report(ConfigError::new(location, format!("missing: expected {expected}")));
    }

    fn value(&self, key: &str, node: &'d Spanned<DeValue<'d>>) -> Value<'d> {
        let path = below(&self.path, key);
        Value { document: self.document, path, node, is_secret: false }
    }

    fn report_unknown(&self) {
        let mut known = self.asked.take();
        known.sort_unstable();
        known.dedup();
        for (key, _) in self.entries.iter() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let meant = nearest(name, known.iter().copied());
            let expected = match meant {
                Some(meant) => format!("unknown key: did you mean {meant}?"),
                None => format!("unknown key: expected {}", any_of(&known)),
            };
            let location = self.document.location(key.span().start, &below(&self.path, name));
            self.document.report(ConfigError::new(location, expected));
        }
    }
}

impl<'d> Value<'d> {
    /// What `read` makes of a table.
    pub(super) fn table<T>(&self, read: impl FnOnce(&Table<'d>) -> T) -> Option<T> {
        let Some(entries) = self.node.get_ref().as_table() else {
            self.report_kind("a table");
            return None;
        };
        let (document, path, at) = (self.document, self.path.clone(), self.node.span().start);
        let table = Table { document, path, at, entries, asked: RefCell::default() };
        let result = read(&table);
        table.report_unknown();
        Some(result)
    }

    /// Reads a table whose keys are names.
    pub(super) fn names<T>(&self, read: impl FnOnce(Vec<(&'d str, Value<'d>)>) -> T) -> Option<T> {
        let Some(entries) = self.node.get_ref().as_table() else {
            self.report_kind("a table");
            return None;
        };
        let (document, path, at) = (self.document, self.path.clone(), self.node.span().start);
        let table = Table { document, path, at, entries, asked: RefCell::default() };
        Some(read(table.entries()))
    }

    /// A value by itself, or the values of a list.
    pub(super) fn each<T>(&self, read: impl Fn(&Value<'d>) -> Option<T>) -> Vec<Sourced<T>> {
        let read = |value: Value<'d>| read(&value).map(|read| value.location().with_value(read));
        match self.node.get_ref() {
            DeValue::Array(nodes) => {
                let element = |(i, node)| {
                    let path = format!("{}[{i}]", self.path);
                    Value { path, node, ..self.clone() }
                };
                nodes.iter().enumerate().map(element).filter_map(read).collect()
            }
            _ => read(self.clone()).into_iter().collect(),
        }
    }

    /// How many values `each` looks at.
    pub(super) fn count(&self) -> usize {
        self.node.get_ref().as_array().map_or(1, |nodes| nodes.iter().count())
    }

    pub(super) fn is_table(&self) -> bool {
        self.node.get_ref().is_table()
    }

    pub(super) fn is_text(&self) -> bool {
        self.node.get_ref().is_str()
    }

    pub(super) fn text(&self) -> Option<&'d str> {
        let text = self.node.get_ref().as_str();
        if text.is_none() {
            self.report_kind("a string");
        }
        text
    }

    /// A string that stands for something.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self) -> Option<T> {
        let result = self.text()?.parse();
        result.map_err(|error: T::Err| self.report(error)).ok()
    }

    /// One of some words.
    pub(super) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.report(format!("expected {}", any_of(&known)));
        }
        found.map(|(_, meaning)| *meaning)
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        let value = self.node.get_ref().as_bool();
        if value.is_none() {
            self.report("expected true or false");
        }
        value
    }

    pub(super) fn number<N: TryFrom<i128> + Display + Copy>(
        &self,
        range: RangeInclusive<N>,
    ) -> Option<N>
    where
        i128: From<N>,
    {
        let integer = self.node.get_ref().as_integer();
        let number = integer.and_then(|int| i128::from_str_radix(int.as_str(), int.radix()).ok());
        let whole = i128::from(*range.start())..=i128::from(*range.end());
        let number = number.filter(|number| whole.contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        if number.is_none() {
            let (least, most) = (range.start(), range.end());
            self.report(format!("expected a whole number from {least} to {most}"));
        }
        number
    }

    /// A length of time that is at most `most`.
    pub(super) fn period(&self, most: Duration) -> Option<Duration> {
        let Period(period) = self.parsed()?;
        if period > most {
            self.report(format!("expected at most {}", Period(most)));
            return None;
        }
        Some(period)
    }

    /// A file; relative paths start where the configuration is.
    pub(super) fn file(&self) -> Option<PathBuf> {
        let text = self.text()?;
        if text.is_empty() {
            self.report("expected the path of a file");
            return None;
        }
        Some(self.document.resolve(text))
    }

    /// A secret.
    pub(super) fn secret(&self) -> Option<Secret> {
        let hidden = Self { is_secret: true, ..self.clone() };
        let secret = Secret::new(hidden.text()?);
        hidden.not_empty(secret)
    }

    /// The first line of a file with a secret.
    pub(super) fn secret_in_file(&self) -> Option<Secret> {
        let path = self.file()?;
        match std::fs::read_to_string(&path) {
            Ok(text) => self.not_empty(Secret::new(&text)),
            Err(error) => {
                self.report(format!("the file cannot be read: {error}"));
                None
            }
        }
    }

    fn not_empty(&self, secret: Secret) -> Option<Secret> {
        if secret.is_empty() {
            self.report("expected at least one character");
        }
        Some(secret).filter(|secret| !secret.is_empty())
    }

    pub(super) fn location(&self) -> Location {
        self.document.location(self.node.span().start, &self.path)
    }

    /// Reports what was expected instead of this value.
    pub(super) fn report(&self, expected: impl Display) {
        let problem = ConfigError::new(self.location(), expected).with_value(self.shown());
        self.document.report(problem);
    }

    /// Reports a problem in another file that this value names.
    pub(super) fn report_elsewhere(&self, problems: Vec<ConfigError>) {
        problems.into_iter().for_each(|problem| self.document.report(problem));
    }

    /// The same without the value.
    pub(super) fn report_hidden(&self, expected: impl Display) {
        Self { is_secret: true, ..self.clone() }.report(expected);
    }

    /// The same for a value of the wrong kind, which may be a secret in the wrong place.
    fn report_kind(&self, expected: &str) {
        let problem = ConfigError::new(self.location(), format!("expected {expected}"));
        self.document.report(problem.with_value(self.kind()));
    }

    fn shown(&self) -> String {
        match self.node.get_ref() {
            _ if self.is_secret => self.kind(),
            DeValue::String(text) => shortened(text),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            _ => self.kind(),
        }
    }

    fn kind(&self) -> String {
        match self.node.get_ref() {
            _ if self.is_secret => "(hidden)",
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => return self.shown(),
            DeValue::String(_) => "(a string)",
            DeValue::Datetime(_) => "(a date)",
            DeValue::Array(_) => "(a list)",
            DeValue::Table(_) => "(a table)",
        }
        .to_owned()
    }
}

/// A string in quotes, with its end cut off if it is very long.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
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

fn below(path: &str, key: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let key = match key {
        _ if !key.is_empty() && key.bytes().all(bare) => key.to_owned(),
        _ => shortened(key),
    };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
