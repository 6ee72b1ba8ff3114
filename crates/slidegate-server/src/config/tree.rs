//! The configuration as a tree of values, each of which knows where it comes from.
//!
//! A TOML file is parsed into it; flags and environment variables are set in it on top.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::slice;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::{Diagnostic, Location, Origin};

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
    Table(Table),
}

#[derive(Clone, Default)]
pub(super) struct Table {
    /// In the order of the file.
    pub(super) entries: Vec<(String, Node)>,
    /// The keys that were asked for, whether they are there or not: all that this table can have.
    pub(super) asked: RefCell<BTreeSet<&'static str>>,
}

impl Node {
    /// A table without entries.
    pub(super) fn empty(location: impl Into<Location>) -> Self {
        Content::Table(Table::default()).at(location)
    }

    /// The same value as JSON.
    pub(super) fn json(&self) -> serde_json::Value {
        match &self.content {
            Content::Text(text) | Content::Other(text) => text.as_str().into(),
            Content::Integer(number) => {
                i64::try_from(*number).map_or(serde_json::Value::Null, Into::into)
            }
            Content::Boolean(value) => (*value).into(),
            Content::List(nodes) => nodes.iter().map(Self::json).collect(),
            Content::Table(table) => {
                table.entries.iter().map(|(name, node)| (name.clone(), node.json())).collect()
            }
        }
    }

    /// Parses a TOML text as far as it can be parsed; the errors are about the rest.
    pub(super) fn parse(path: &Path, text: &str) -> (Self, Vec<Diagnostic>) {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let source = SourceText { path: path.into(), line_starts };
        let (table, errors) = DeTable::parse_recoverable(text);
        let error = |error: toml::de::Error| {
            let line = error.span().map(|span| source.line(span.start));
            let origin = Origin::File { path: source.path.clone(), line };
            Diagnostic::new(origin, format!("this is not TOML: {}", error.message()))
        };
        let root = source.table(table.get_ref(), Origin::Default.into());
        (root, errors.into_iter().map(error).collect())
    }

    /// The value below this one, if it is there.
    pub(super) fn get(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| {
            node.entries().iter().find(|(name, _)| name == key).map(|(_, node)| node)
        })
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Content::Table(table) = &mut self.content else { return None };
        table.entries.iter_mut().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// The entries of a table; none of anything else.
    pub(super) fn entries(&self) -> &[(String, Self)] {
        if let Content::Table(table) = &self.content { &table.entries } else { &[] }
    }

    /// The elements of a list; anything else is its own only element.
    pub(super) fn elements(&self) -> &[Self] {
        if let Content::List(nodes) = &self.content { nodes } else { slice::from_ref(self) }
    }

    pub(super) fn elements_mut(&mut self) -> &mut [Self] {
        match self.content {
            Content::List(ref mut nodes) => nodes,
            _ => slice::from_mut(self),
        }
    }

    /// The elements of a key's value, if it is there.
    pub(super) fn all(&self, key: &str) -> &[Self] {
        self.get(&[key]).map_or(&[], Self::elements)
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Content::Text(text) = &self.content { Some(text) } else { None }
    }

    /// Sets a value below this one, and makes the tables on the way to it.
    pub(super) fn set(&mut self, path: &[&str], node: Self) {
        let [key, rest @ ..] = path else {
            *self = node;
            return;
        };
        if let Some(below) = self.get_mut(key) {
            below.set(rest, node);
        } else if let Content::Table(table) = &mut self.content {
            let mut below = Self::empty(node.location.clone());
            below.set(rest, node);
            table.entries.push(((*key).to_owned(), below));
        }
        // What is no table is reported when it is read.
    }

    /// Appends to the list of a key.
    pub(super) fn extend(&mut self, key: &str, more: Vec<Self>) {
        let Some(first) = more.first() else { return };
        let location = self.get(&[key]).unwrap_or(first).location.clone();
        let mut nodes = self.all(key).to_vec();
        nodes.extend(more);
        self.set(&[key], Content::List(nodes).at(location));
    }
}

impl Content {
    pub(super) fn at(self, location: impl Into<Location>) -> Node {
        Node { location: location.into(), content: self }
    }
}

/// The file of a text, and where its lines begin.
struct SourceText {
    path: Arc<Path>,
    line_starts: Vec<usize>,
}

impl SourceText {
    fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    fn location(&self, at: usize, key: String) -> Location {
        Location {
            origin: Origin::File { path: self.path.clone(), line: Some(self.line(at)) },
            key,
        }
    }

    fn table(&self, table: &DeTable<'_>, location: Location) -> Node {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            let location = self.location(key.span().start, location.below(name).key);
            (name.to_string(), self.node(value.get_ref(), location))
        };
        let entries = entries.into_iter().map(entry).collect();
        Content::Table(Table { entries, ..Table::default() }).at(location)
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
            DeValue::Datetime(date) => Content::Other(date.to_string()),
            DeValue::Table(table) => return self.table(table, location),
            DeValue::Array(values) => {
                let element = |(i, value): (usize, &Spanned<DeValue<'_>>)| {
                    let key = format!("{}[{i}]", location.key);
                    self.node(value.get_ref(), self.location(value.span().start, key))
                };
                Content::List(values.iter().enumerate().map(element).collect())
            }
        };
        content.at(location)
    }
}
