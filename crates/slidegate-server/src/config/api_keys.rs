//! `[[api_key]]` and the file of `keys_file`.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use slidegate::policy::{ApiKey, KeyHash, PolicyError};
use slidegate::{AccessList, Identity};

use crate::config::error::{Diagnostic, Location, Origin};
use crate::config::reader::{Reader, Value, nearest};
use crate::config::tree::{Content, Node, Table};
use crate::config::values::Secret;
use crate::file::FileContents;

/// An API key that was issued.
pub(super) struct IssuedKey<'t> {
    pub(super) key: ApiKey,
    pub(super) table: Value<'t>,
}

/// The keys that were issued, by the names and identities that lists may refer to them by.
pub(super) struct IssuedKeys<'k, 't> {
    keys: &'k [IssuedKey<'t>],
    /// Made for the first entry of a list: most configurations have none, and some many keys.
    index: OnceCell<KeyIndex<'k>>,
    /// Whether there are others, in files that were not read.
    pub(super) are_incomplete: bool,
}

struct KeyIndex<'k> {
    by_name: HashMap<&'k str, Identity>,
    identities: HashSet<Identity>,
}

/// An entry of `api_keys` in `[exempt]`, `[blocked]` or the exemptions of a policy.
pub(super) enum ListedKey {
    /// The name or the digest of a key that was issued.
    Issued(Identity),
    /// The key itself.
    Raw(Secret),
}

/// A file with a hundred thousand keys has about 10 MiB.
const MAX_KEYS_BYTES: u64 = 256 * 1024 * 1024;

const COLUMNS: [&str; 7] = ["name", "customer", "key", "digest", "hash", "plan", "expires"];

impl<'t> IssuedKey<'t> {
    /// Every `[[api_key]]`, of the configuration and of the keys file.
    pub(super) fn read_all(root: &Value<'t>) -> Vec<Self> {
        let tables = root.key("api_key").hidden().each(Value::table);
        let keys_file = root.key("keys_file").file();
        let is_secret = |table: &&Value<'_>| {
            // The warning is not about those of the keys file.
            let is_elsewhere = table.location.file().map(|file| &**file) == keys_file.as_deref();
            !is_elsewhere && table.named("key").is_set()
        };
        let mut secrets = tables.iter().filter(is_secret);
        if let Some(first) = secrets.next() {
            let others = match secrets.count() {
                0 => String::new(),
                1 => ", and another API key".to_owned(),
                more => format!(", and {more} more API keys"),
            };
            first.warn_of_secret(format!(
                "a secret in the file{others}: give its digest, which `slidegate digest` makes, or \
                 name a key_file"
            ));
        }
        tables.into_iter().filter_map(Self::read).collect()
    }

    fn read(table: Value<'t>) -> Option<Self> {
        let all = ["key", "key_file", "digest"].map(|key| table.key(key));
        let name = table.key("name").string();
        let customer = table.key("customer").string();
        let plan = table.key("plan");
        // A customer's key may have the default of each policy.
        let plan = if customer.is_some() { plan } else { plan.required("the name of a plan") };
        let has_plan = plan.is_set();
        let plan = plan.string();
        let expires = table.key("expires").instant();
        let hash = table.key("hash").parsed::<KeyHash>();
        let mut given = all.iter().filter(|value| value.is_set());
        if given.next().is_none() {
            all[0].report("missing: expected key, key_file or digest");
        }
        if let Some(second) = given.next() {
            let expected = "a key is given already: expected one of key, key_file and digest";
            second.hidden().report(expected);
            return None;
        }
        let [key, file, digest] = all;
        let secret = key.secret().or_else(|| file.secret_in_file());
        let own = KeyHash::default();
        let known = secret.map(|key| (own, own.digest(key.reveal().as_bytes())));
        let known = known.or_else(|| {
            let text = digest.secret()?;
            let hash = hash.unwrap_or_else(|| KeyHash::of_digest(text.reveal()));
            // It may be the key itself, by mistake.
            let parsed = hash.parse(text.reveal());
            Some((hash, parsed.map_err(|error| digest.hidden().report(error)).ok()?))
        });
        let (hash, digest) = known?;
        let mut key = ApiKey::of_digest(hash, digest);
        key = name.into_iter().fold(key, ApiKey::name);
        key = customer.into_iter().fold(key, ApiKey::customer);
        key = expires.into_iter().fold(key, ApiKey::expires);
        // A plan that is not a string is already reported.
        let key = if has_plan { key.plan(plan?) } else { key };
        Some(Self { key, table })
    }

    fn name(&self) -> Option<&'t str> {
        self.table.node?.get(&["name"])?.text()
    }

    /// The customer who has it.
    pub(super) fn customer(&self) -> Option<&'t str> {
        self.table.node?.get(&["customer"])?.text()
    }

    /// What an error is about, if it is about this key.
    pub(super) fn find(&self, error: &PolicyError) -> Option<Value<'t>> {
        match error.value.as_str() {
            "" => Some(self.table.clone()),
            value => self.table.named(error.key).find(value),
        }
    }
}

impl<'k, 't> IssuedKeys<'k, 't> {
    pub(super) fn new(keys: &'k [IssuedKey<'t>], root: &Value<'_>) -> Self {
        Self { keys, index: OnceCell::new(), are_incomplete: are_skipped(root) }
    }

    fn index(&self) -> &KeyIndex<'k> {
        let named = |issued: &'k IssuedKey<'_>| Some((issued.name()?, *issued.key.identity()));
        self.index.get_or_init(|| KeyIndex {
            by_name: self.keys.iter().filter_map(named).collect(),
            identities: self.keys.iter().map(|issued| *issued.key.identity()).collect(),
        })
    }

    /// The key that an entry of a list means: by name, by digest, or as it is sent. A name or a digest
    /// is no secret, so it does not count as the key that has the same text.
    pub(super) fn find(&self, value: &Value<'_>) -> Option<ListedKey> {
        let secret = value.secret()?;
        let (text, index) = (secret.reveal(), self.index());
        let by_digest = || {
            let digest = KeyHash::of_digest(text).parse(text).ok()?;
            index.identities.get(&digest.identity()).copied()
        };
        if let Some(issued) = index.by_name.get(text).copied().or_else(by_digest) {
            return Some(ListedKey::Issued(issued));
        }
        let is_issued = index.identities.contains(&Identity::api_key(text.as_bytes()));
        let text = "no API key has this name or digest, and it is none of the listed keys";
        let are_known = !self.keys.is_empty() && !self.are_incomplete;
        value.warn_if(are_known && !is_issued, text);
        Some(ListedKey::Raw(secret))
    }
}

impl ListedKey {
    pub(super) fn is_secret(&self) -> bool {
        matches!(self, Self::Raw(_))
    }

    pub(super) fn add_to(self, list: AccessList) -> AccessList {
        match self {
            Self::Issued(identity) => list.api_key_digest(identity.value()),
            Self::Raw(key) => {
                let key = key.reveal();
                // Without a list of keys, a digest looks like a key of 32 or 64 hexadecimal digits.
                let is_digest = KeyHash::of_digest(key).parse(key).is_ok();
                let list = if is_digest { list.api_key_digest(key) } else { list };
                list.api_key(key)
            }
        }
    }
}

/// Whether there may be keys in files that were not read.
pub(super) fn are_skipped(root: &Value<'_>) -> bool {
    ["keys_file", "api_key"].iter().any(|key| root.named(key).is_skipped_file())
}

/// Adds the tables of the keys file to those of the configuration.
pub(super) fn add_keys_file(root: &mut Node, reader: &Reader) -> Option<()> {
    let value = reader.root(root).key("keys_file");
    let path = value.file()?;
    let is_csv = match path.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => true,
        Some("toml") => false,
        _ => return value.reject("expected a file whose name ends in .csv or .toml"),
    };
    if value.is_skipped_file() {
        return None;
    }
    let FileContents { bytes, is_open_to_all } = value.watched_contents(&path, MAX_KEYS_BYTES)?;
    let Ok(text) = String::from_utf8(bytes) else {
        return value.reject("the file is not UTF-8 text");
    };
    let keys = if is_csv {
        parse_csv(&path, &text, reader)
    } else {
        let file = reader.parse(&path, &text);
        reader.root(&file).key("api_key");
        reader.report_unknown(&file);
        file.all("api_key").to_vec()
    };
    let shows_secrets = is_open_to_all && keys.iter().any(|key| key.get(&["key"]).is_some());
    value.warn_if(
        shows_secrets,
        "every user of this machine may read the API keys in it: chmod o-r, or give their digests, \
         which `slidegate digest` makes",
    );
    root.extend("api_key", keys);
    Some(())
}

/// The tables of a keys file from lines of values, under a first line that names them.
fn parse_csv(path: &Path, text: &str, reader: &Reader) -> Vec<Node> {
    let path: Arc<Path> = path.into();
    let location = |line: u64, key: &str| {
        let origin = Origin::File { path: path.clone(), line: usize::try_from(line).ok() };
        Location { origin, key: key.to_owned() }
    };
    let report =
        |line, expected: &str| reader.report(Diagnostic::new(location(line, ""), expected));
    let mut records = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let columns = match records.headers() {
        Ok(columns) => columns.clone(),
        Err(error) => {
            report(1, &not_csv(&error));
            return Vec::new();
        }
    };
    if let Some(expected) = wrong_columns(&columns) {
        report(line(text, columns.position()), &expected);
        return Vec::new();
    }
    let mut tables = Vec::new();
    for record in records.records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                report(line(text, error.position()), &not_csv(&error));
                continue;
            }
        };
        let line = line(text, record.position());
        // A secret is not named by its column: it may be in the wrong one.
        let is_secret = |column: &str| matches!(column, "key" | "digest");
        let fields = columns.iter().zip(&record).filter(|(_, field)| !field.is_empty());
        if fields.clone().filter(|(column, _)| is_secret(column)).count() != 1 {
            report(line, "expected either a key or a digest");
            continue;
        }
        let entry = |(column, field): (&str, &str)| {
            let location = location(line, if is_secret(column) { "" } else { column });
            (column.to_owned(), Content::Text(field.to_owned()).at(location))
        };
        let table = Table { entries: fields.map(entry).collect(), ..Table::default() };
        tables.push(Content::Table(table).at(location(line, "")));
    }
    tables
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
    let expected = "expected a first line with the columns plan or customer, key or digest, and \
                    perhaps name, hash and expires";
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
    let is_whole = (has("plan") || has("customer")) && (has("key") || has("digest"));
    (!is_whole).then(|| expected.to_owned())
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
