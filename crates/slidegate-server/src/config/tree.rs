//! The configuration as a tree of values, each of which knows where it comes from.
//!
//! A TOML file is parsed into it; flags and environment variables are set in it on top.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::{ConfigError, Location, Origin};

/// A value and its location.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) location: Location,
    pub(super) content: Content,
}

/// What a node holds. It has no `Debug`: it may be a secret.
#[derive(Clone)]
pub(super) enum Content {
    Text(String),
    Integer(i128),
    Boolean(bool),
    /// Floats and dates, which no key takes, as they are shown.
    Other(String),
    List(Vec<Node>),
    /// In the order of the file.
    Table(Vec<(String, Node)>),
}

impl Node {
    /// A configuration in which nothing is set.
    pub(super) fn empty() -> Self {
        Content::Table(Vec::new()).at(&Location::of(Origin::Default))
    }

    /// Parses a TOML text as far as it can be parsed; the errors are about the rest.
    pub(super) fn parse(name: &str, text: &str) -> (Self, Vec<ConfigError>) {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let source = SourceText { name: name.into(), line_starts };
        let (table, errors) = DeTable::parse_recoverable(text);
        let error = |error: toml::de::Error| {
            let line = error.span().map(|span| source.line(span.start));
            let origin = Origin::File { name: source.name.clone(), line };
            let expected = format!("this is not TOML: {}", error.message());
            ConfigError::new(Location::of(origin), expected)
        };
        let mut root = Self::empty();
        root.content = source.table(table.get_ref(), &root.location);
        (root, errors.into_iter().map(error).collect())
    }

    /// The value below this one, if it is there.
    pub(super) fn get(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| {
            node.entries().iter().find(|(name, _)| name == key).map(|(_, node)| node)
        })
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Content::Table(entries) = &mut self.content else { return None };
        entries.iter_mut().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// Where the value below this one is, or would be.
    pub(super) fn location(&self, path: &[&str]) -> Location {
        let Some((key, rest)) = path.split_first() else { return self.location.clone() };
        match self.get(&[key]) {
            Some(node) => node.location(rest),
            None => path.iter().fold(self.location.clone(), |location, key| location.below(key)),
        }
    }

    /// The entries of a table; none of anything else.
    pub(super) fn entries(&self) -> &[(String, Self)] {
        if let Content::Table(entries) = &self.content { entries } else { &[] }
    }

    /// The elements of a list; anything else is its own only element.
    pub(super) fn elements(&self) -> &[Self] {
        if let Content::List(nodes) = &self.content { nodes } else { std::slice::from_ref(self) }
    }

    /// The elements of a value below this one, if it is there.
    pub(super) fn all(&self, path: &[&str]) -> &[Self] {
        self.get(path).map_or(&[], Self::elements)
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Content::Text(text) = &self.content { Some(text) } else { None }
    }

    pub(super) fn is_true(&self) -> bool {
        matches!(self.content, Content::Boolean(true))
    }

    /// Sets a value below this one, and makes the tables on the way to it.
    pub(super) fn set(&mut self, path: &[&str], node: Self) {
        let [key, rest @ ..] = path else {
            *self = node;
            return;
        };
        if self.get(&[key]).is_none() {
            // What is no table is reported when it is read.
            let Content::Table(entries) = &mut self.content else { return };
            entries.push(((*key).to_owned(), Content::Table(Vec::new()).at(&node.location)));
        }
        if let Some(below) = self.get_mut(key) {
            below.set(rest, node);
        }
    }

    pub(super) fn set_text(&mut self, path: &[&str], text: &str, location: &Location) {
        self.set(path, Content::Text(text.to_owned()).at(location));
    }

    /// Appends to the list of a key.
    pub(super) fn push(&mut self, key: &str, node: Self) {
        let mut nodes = self.all(&[key]).to_vec();
        let location = self.get(&[key]).unwrap_or(&node).location.clone();
        nodes.push(node);
        self.set(&[key], Content::List(nodes).at(&location));
    }

    pub(super) fn remove(&mut self, path: &[&str]) {
        match path {
            [] => {}
            [key] => {
                if let Content::Table(entries) = &mut self.content {
                    entries.retain(|(name, _)| name != key);
                }
            }
            [key, rest @ ..] => {
                if let Some(below) = self.get_mut(key) {
                    below.remove(rest);
                }
            }
        }
    }
}

impl Content {
    pub(super) fn at(self, location: &Location) -> Node {
        Node { location: location.clone(), content: self }
    }
}

/// The name of a text, and where its lines begin.
struct SourceText {
    name: Arc<str>,
    line_starts: Vec<usize>,
}

impl SourceText {
    fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    fn location(&self, at: usize, key: String) -> Location {
        let origin = Origin::File { name: self.name.clone(), line: Some(self.line(at)) };
        Location { origin, key }
    }

    fn table(&self, table: &DeTable<'_>, location: &Location) -> Content {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            let location = self.location(key.span().start, location.below(name).key);
            (name.to_string(), self.node(value.get_ref(), location))
        };
        Content::Table(entries.into_iter().map(entry).collect())
    }

    fn node(&self, value: &DeValue<'_>, location: Location) -> Node {
        let content = match value {
            DeValue::String(text) => Content::Text(text.to_string()),
            DeValue::Integer(number) => {
                let integer = i128::from_str_radix(number.as_str(), number.radix());
                integer.map_or_else(|_| Content::Other(number.to_string()), Content::Integer)
            }
            DeValue::Boolean(value) => Content::Boolean(*value),
            DeValue::Float(number) => Content::Other(number.to_string()),
            DeValue::Datetime(_) => Content::Other("(a date)".to_owned()),
            DeValue::Table(table) => self.table(table, &location),
            DeValue::Array(values) => {
                let element = |(i, value): (usize, &Spanned<DeValue<'_>>)| {
                    let key = format!("{}[{i}]", location.key);
                    self.node(value.get_ref(), self.location(value.span().start, key))
                };
                Content::List(values.iter().enumerate().map(element).collect())
            }
        };
        Node { location, content }
    }
}
