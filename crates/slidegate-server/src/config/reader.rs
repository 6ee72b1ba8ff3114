//! Reads values from the tree one by one: what is wrong with one does not hide another.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use crate::config::error::{ConfigError, Location};
use crate::config::tree::{Content, Node};
use crate::config::values::{Period, Secret};

/// Collects the errors of a tree that is read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Where relative paths start.
    pub(super) folder: PathBuf,
    /// Whether every user of this machine may read the file.
    pub(super) is_open_to_all: bool,
    pub(super) errors: RefCell<Vec<ConfigError>>,
}

/// A table, perhaps an empty one in the place of one that is missing. On drop it reports the keys
/// that were not asked for.
pub(super) struct Table<'t> {
    pub(super) reader: &'t Reader,
    pub(super) location: Location,
    /// None if the table is missing, or something else is in its place.
    pub(super) node: Option<&'t Node>,
    asked: RefCell<Vec<&'static str>>,
}

/// A value that is there.
#[derive(Clone, Copy)]
pub(super) struct Value<'t> {
    reader: &'t Reader,
    pub(super) node: &'t Node,
    is_secret: bool,
}

impl Reader {
    pub(super) fn root<'t>(&'t self, node: &'t Node) -> Table<'t> {
        Table::new(self, node.location.clone(), Some(node))
    }

    pub(super) fn report(&self, error: ConfigError) {
        self.errors.borrow_mut().push(error);
    }

    /// All errors, and those of the text itself. Of a text that is not TOML, parts may have been
    /// lost or torn apart: what is reported about a value of another line is true, the rest may not
    /// be.
    pub(super) fn into_errors(self, syntax_errors: Vec<ConfigError>) -> Vec<ConfigError> {
        let mut errors = self.errors.into_inner();
        if !syntax_errors.is_empty() {
            let is_torn = |error: &ConfigError| {
                syntax_errors.iter().any(|torn| torn.location.origin == error.location.origin)
            };
            errors.retain(|error| {
                !error.location.is_in_file() || (error.value.is_some() && !is_torn(error))
            });
            errors.extend(syntax_errors);
        }
        errors
    }
}

impl<'t> Table<'t> {
    fn new(reader: &'t Reader, location: Location, node: Option<&'t Node>) -> Self {
        Self { reader, location, node, asked: RefCell::default() }
    }

    /// The value of a key, if there is one.
    pub(super) fn get(&self, key: &'static str) -> Option<Value<'t>> {
        self.asked.borrow_mut().push(key);
        let node = self.node?.get(&[key])?;
        Some(Value { reader: self.reader, node, is_secret: false })
    }

    pub(super) fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// What `read` makes of a key's value, if there is one.
    pub(super) fn read<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Value<'t>) -> Option<T>,
    ) -> Option<T> {
        self.get(key).and_then(|value| read(&value))
    }

    /// The same, for a key that must be there.
    pub(super) fn require<T>(
        &self,
        key: &'static str,
        expected: impl Display,
        read: impl FnOnce(&Value<'t>) -> Option<T>,
    ) -> Option<T> {
        if !self.has(key) {
            self.missing(key, expected);
        }
        self.read(key, read)
    }

    /// False if the key is missing.
    pub(super) fn boolean(&self, key: &'static str) -> bool {
        self.read(key, Value::boolean).unwrap_or_default()
    }

    /// What `read` makes of each element of a list, or of a value by itself.
    pub(super) fn list<T>(
        &self,
        key: &'static str,
        read: impl Fn(&Value<'t>) -> Option<T>,
    ) -> Vec<T> {
        self.get(key).map(|value| value.each(read)).unwrap_or_default()
    }

    /// The table of a key, or an empty one.
    pub(super) fn table(&self, key: &'static str) -> Table<'t> {
        let missing = || Self::new(self.reader, self.location.below(key), None);
        self.read(key, Value::table).unwrap_or_else(missing)
    }

    /// The entries of a table whose keys are names.
    pub(super) fn names(&self, key: &'static str) -> Vec<(&'t str, Value<'t>)> {
        self.get(key).map(|value| value.names()).unwrap_or_default()
    }

    /// Reports a missing key.
    pub(super) fn missing(&self, key: &str, expected: impl Display) {
        self.report(key, format!("missing: expected {expected}"));
    }

    /// Reports an error about a key, without its value.
    pub(super) fn report(&self, key: &str, expected: impl Display) {
        let below = || self.location.below(key);
        let location = self.node.map_or_else(below, |node| node.location(&[key]));
        self.reader.report(ConfigError::new(location, expected));
    }
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        let mut known = self.asked.take();
        known.sort_unstable();
        known.dedup();
        for (name, node) in self.node.map(Node::entries).unwrap_or_default() {
            if known.contains(&name.as_str()) {
                continue;
            }
            let expected = match nearest(name, known.iter().copied()) {
                Some(meant) => format!("unknown key: did you mean {meant}?"),
                None => format!("unknown key: expected {}", any_of(&known)),
            };
            self.reader.report(ConfigError::new(node.location.clone(), expected));
        }
    }
}

impl<'t> Value<'t> {
    /// The same value, which no error shows.
    pub(super) fn hidden(self) -> Self {
        Self { is_secret: true, ..self }
    }

    pub(super) fn is_text(&self) -> bool {
        self.node.text().is_some()
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.node.content, Content::Table(_))
    }

    pub(super) fn table(&self) -> Option<Table<'t>> {
        if !self.is_table() {
            self.report_kind("a table");
            return None;
        }
        Some(Table::new(self.reader, self.node.location.clone(), Some(self.node)))
    }

    /// The entries of a table whose keys are names.
    pub(super) fn names(&self) -> Vec<(&'t str, Self)> {
        if !self.is_table() {
            self.report_kind("a table");
        }
        let entries = self.node.entries().iter();
        entries.map(|(name, node)| (name.as_str(), Self { node, ..*self })).collect()
    }

    pub(super) fn each<T>(&self, read: impl Fn(&Self) -> Option<T>) -> Vec<T> {
        let elements = self.node.elements().iter();
        elements.filter_map(|node| read(&Self { node, ..*self })).collect()
    }

    pub(super) fn text(&self) -> Option<&'t str> {
        let text = self.node.text();
        if text.is_none() {
            self.report_kind("a string");
        }
        text
    }

    pub(super) fn string(&self) -> Option<String> {
        self.text().map(str::to_owned)
    }

    /// A string that stands for something.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self) -> Option<T> {
        let result = self.text()?.parse();
        result.map_err(|error: T::Err| self.report(error)).ok()
    }

    /// The same, with an error of our own.
    pub(super) fn parsed_as<T: FromStr>(&self, expected: &str) -> Option<T> {
        let result = self.text()?.parse().ok();
        if result.is_none() {
            self.report(expected);
        }
        result
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

    /// One of the words that a flag takes too.
    pub(super) fn word<T: ValueEnum>(&self) -> Option<T> {
        let values = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
        let words: Vec<_> = names.iter().map(String::as_str).zip(T::value_variants()).collect();
        self.one_of(&words).cloned()
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        if let Content::Boolean(value) = self.node.content {
            return Some(value);
        }
        self.report("expected true or false");
        None
    }

    pub(super) fn number<N>(&self, range: RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<i128> + Display + PartialOrd,
    {
        let number = match self.node.content {
            Content::Integer(number) => N::try_from(number).ok(),
            _ => None,
        };
        let number = number.filter(|number| range.contains(number));
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
        Some(self.reader.folder.join(text))
    }

    pub(super) fn secret(&self) -> Option<Secret> {
        let hidden = self.hidden();
        let secret = Secret::new(hidden.text()?);
        hidden.not_empty(secret)
    }

    /// The secret that is in a file.
    pub(super) fn secret_in_file(&self) -> Option<Secret> {
        match std::fs::read_to_string(self.file()?) {
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
            return None;
        }
        Some(secret)
    }

    /// Reports what was expected instead of this value.
    pub(super) fn report(&self, expected: impl Display) {
        let error = ConfigError::new(self.node.location.clone(), expected);
        self.reader.report(match &self.node.content {
            // The place alone, such as a flag or a line of a list.
            _ if self.is_secret && self.node.location.key.is_empty() => error,
            Content::Text(text) if !self.is_secret => error.with_text(Some(text)),
            _ => error.with_value(self.kind()),
        });
    }

    /// The same for a value of the wrong kind: a string may be a secret in the wrong place.
    fn report_kind(&self, expected: &str) {
        let error = ConfigError::new(self.node.location.clone(), format!("expected {expected}"));
        self.reader.report(error.with_value(self.kind()));
    }

    /// Reports errors of another file, which this value names.
    pub(super) fn report_elsewhere(&self, errors: Vec<ConfigError>) {
        self.reader.errors.borrow_mut().extend(errors);
    }

    fn kind(&self) -> String {
        match &self.node.content {
            _ if self.is_secret => "(hidden)".to_owned(),
            Content::Integer(number) => number.to_string(),
            Content::Boolean(value) => value.to_string(),
            Content::Other(shown) => shown.clone(),
            Content::Text(_) => "(a string)".to_owned(),
            Content::List(_) => "(a list)".to_owned(),
            Content::Table(_) => "(a table)".to_owned(),
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
