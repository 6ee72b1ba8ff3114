//! `[[api_key]]` and the file of `keys_file`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slidegate::Identity;
use slidegate::policy::{ApiKey, PolicyError};

use crate::config::error::{ConfigError, Location, Origin};
use crate::config::reader::{Reader, Table, Value, nearest};
use crate::config::sources;
use crate::config::tree::{Content, Node};
use crate::reload;

/// The API keys that were issued: those of the configuration, and those of the keys file.
#[derive(Default)]
pub(super) struct ApiKeys {
    pub(super) keys: Vec<IssuedKey>,
    pub(super) file: Option<KeysFileVersion>,
    /// Whether the keys file has keys, not only digests, and every user of this machine may read it.
    pub(super) shows_secrets: bool,
}

/// An API key that was issued.
pub(super) struct IssuedKey {
    pub(super) key: ApiKey,
    /// Its table's.
    pub(super) location: Location,
    name_location: Option<Location>,
    pub(super) plan: String,
    plan_location: Location,
    /// Whether the key itself, not its digest, is in the file.
    pub(super) is_secret: bool,
}

/// A file of API keys as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeysFileVersion {
    pub(crate) path: PathBuf,
    /// Changes with the contents.
    pub(crate) fingerprint: u64,
}

/// A file with a hundred thousand keys has about 10 MiB.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

const COLUMNS: [&str; 4] = ["name", "key", "digest", "plan"];

impl ApiKeys {
    pub(super) fn read(root: &Table<'_>) -> Self {
        let mut all = Self { keys: tables(root), ..Self::default() };
        root.read("keys_file", |value| all.read_file(value));
        all
    }

    /// Adds the keys of a CSV or TOML file.
    fn read_file(&mut self, value: &Value<'_>) -> Option<()> {
        let path = value.file()?;
        let parse = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => parse_csv,
            Some("toml") => parse_toml,
            _ => {
                value.report("expected a file whose name ends in .csv or .toml");
                return None;
            }
        };
        let read = sources::read_bytes(&path, MAX_BYTES)
            .map_err(|error| format!("the file cannot be read: {error}"));
        let read = read.and_then(|(bytes, is_open_to_all)| {
            if bytes.len() as u64 > MAX_BYTES {
                return Err(format!("the file is too large: expected at most {MAX_BYTES} bytes"));
            }
            let fingerprint = reload::fingerprint(&bytes);
            let text = String::from_utf8(bytes).map_err(|_| "the file is not UTF-8 text");
            Ok((text?, fingerprint, is_open_to_all))
        });
        let (text, fingerprint, is_open_to_all) =
            read.map_err(|expected| value.report(expected)).ok()?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let reader = Reader { folder, ..Reader::default() };
        let (root, syntax_errors) = parse(&path, &text, &reader);
        let keys = tables(&reader.root(&root));
        value.report_elsewhere(reader.into_errors(syntax_errors));
        self.shows_secrets = is_open_to_all && keys.iter().any(|key| key.is_secret);
        // The warning about secrets in the configuration is not about these.
        self.keys.extend(keys.into_iter().map(|key| IssuedKey { is_secret: false, ..key }));
        self.file = Some(KeysFileVersion { path, fingerprint });
        Some(())
    }
}

impl IssuedKey {
    fn read(table: &Table<'_>) -> Option<Self> {
        let given = ["key", "key_file", "digest"].map(|key| table.get(key));
        let identity = match given {
            [Some(key), None, None] => {
                key.secret().map(|key| Identity::api_key(key.reveal().as_bytes()))
            }
            [None, Some(file), None] => {
                file.secret_in_file().map(|key| Identity::api_key(key.reveal().as_bytes()))
            }
            [None, None, Some(digest)] => {
                let key = ApiKey::from_digest(digest.secret()?.reveal(), "");
                // It may be the key itself, by mistake.
                key.map_err(|error| digest.hidden().report(error)).ok().map(|key| *key.identity())
            }
            [None, None, None] => {
                table.missing("key", "key, key_file or digest");
                None
            }
            _ => {
                let expected = "a key is given already: expected one of key, key_file and digest";
                let second = given.iter().flatten().nth(1);
                second.iter().for_each(|value| value.hidden().report(expected));
                None
            }
        };
        let name = table.read("name", Value::string);
        let plan = table.require("plan", "the name of a plan", Value::string);
        let (identity, plan) = (identity?, plan?);
        let location_of = |key| table.get(key).map(|value| value.node.location.clone());
        let key = ApiKey::of_identity(identity, plan.clone());
        Some(Self {
            key: name.into_iter().fold(key, ApiKey::name),
            location: table.location.clone(),
            name_location: location_of("name"),
            plan,
            plan_location: location_of("plan")?,
            is_secret: given[0].is_some(),
        })
    }

    /// Where an error about this key is, if it is about this one.
    pub(super) fn location_of(&self, error: &PolicyError) -> Option<Location> {
        if error.value.is_empty() {
            return Some(self.location.clone());
        }
        match error.key {
            "name" => self.name_location.clone(),
            "plan" if self.plan == error.value => Some(self.plan_location.clone()),
            _ => None,
        }
    }
}

/// Every `[[api_key]]` of a file.
fn tables(root: &Table<'_>) -> Vec<IssuedKey> {
    let Some(value) = root.get("api_key") else { return Vec::new() };
    value.hidden().each(|value| IssuedKey::read(&value.table()?))
}

/// A file of `[[api_key]]` tables, as in the configuration.
fn parse_toml(path: &Path, text: &str, _: &Reader) -> (Node, Vec<ConfigError>) {
    Node::parse(&path.display().to_string(), text)
}

/// The same tables from lines of values, under a first line that names them.
fn parse_csv(path: &Path, text: &str, reader: &Reader) -> (Node, Vec<ConfigError>) {
    let name: Arc<str> = path.display().to_string().into();
    let location = |line: u64, key: &str| {
        let origin = Origin::File { name: name.clone(), line: usize::try_from(line).ok() };
        Location { origin, key: key.to_owned() }
    };
    let mut root = Node::empty();
    let mut records = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let columns = records.headers().cloned();
    let first = columns.as_ref().map_or(1, |columns| line(text, columns.position()));
    let checked = columns
        .map_err(|error| not_csv(&error))
        .and_then(|columns| wrong_columns(&columns).map_or(Ok(columns), Err));
    let columns = match checked {
        Ok(columns) => columns,
        Err(expected) => {
            reader.report(ConfigError::new(location(first, ""), expected));
            return (root, Vec::new());
        }
    };
    let mut tables = Vec::new();
    for record in records.records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let line = line(text, error.position());
                reader.report(ConfigError::new(location(line, ""), not_csv(&error)));
                continue;
            }
        };
        let line = line(text, record.position());
        let mut entries = Vec::with_capacity(columns.len());
        let mut secrets = 0;
        for (column, field) in columns.iter().zip(&record) {
            if field.is_empty() {
                continue;
            }
            // A secret is not named by its column: it may be in the wrong one.
            let is_secret = matches!(column, "key" | "digest");
            secrets += usize::from(is_secret);
            let location = location(line, if is_secret { "" } else { column });
            let content = Content::Text(field.to_owned());
            entries.push((column.to_owned(), Node { location, content }));
        }
        let location = location(line, "");
        if secrets == 1 {
            tables.push(Node { location, content: Content::Table(entries) });
        } else {
            reader.report(ConfigError::new(location, "expected either a key or a digest"));
        }
    }
    root.set(&["api_key"], Content::List(tables).at(&location(first, "")));
    (root, Vec::new())
}

/// The line of a record. The reader's own position is that of the empty lines and comments before.
fn line(text: &str, position: Option<&csv::Position>) -> u64 {
    let Some(position) = position else { return 1 };
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let lines = text.get(start..).unwrap_or_default().lines();
    let skipped = lines.take_while(|line| line.is_empty() || line.starts_with('#')).count();
    position.line() + skipped as u64
}

fn wrong_columns(columns: &csv::StringRecord) -> Option<String> {
    let expected = "expected a first line with the columns plan, key or digest, and perhaps name";
    for (i, column) in columns.iter().enumerate() {
        if !COLUMNS.contains(&column) {
            // A file without such a line would have a key here, which is not to be shown.
            return Some(match nearest(column, COLUMNS) {
                Some(meant) => format!("unknown column: did you mean {meant}? {expected}"),
                None => expected.to_owned(),
            });
        }
        if columns.iter().take(i).any(|other| other == column) {
            return Some(format!("the column {column} is there twice: {expected}"));
        }
    }
    let has = |name: &str| columns.iter().any(|column| column == name);
    (!has("plan") || !(has("key") || has("digest"))).then(|| expected.to_owned())
}

/// What is wrong with the text, without any of it.
fn not_csv(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("expected {expected_len} values, as in the first line, not {len}")
        }
        _ => "this is not CSV".to_owned(),
    }
}
