//! `[[api_key]]` and the file of `keys_file`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slidegate::Identity;
use slidegate::policy::ApiKey;

use crate::config::document::Document;
use crate::config::error::ConfigError;
use crate::config::location::{Location, Origin, Sourced};
use crate::config::reader::{Table, Value};
use crate::config::secret::Secret;
use crate::config::sources;
use crate::config::suggestion::nearest;
use crate::reload;

/// An API key that was issued.
#[derive(Debug, Clone)]
pub(in crate::config) struct WrittenApiKey {
    pub(in crate::config) identity: Identity,
    pub(in crate::config) name: Option<Sourced<String>>,
    pub(in crate::config) plan: Sourced<String>,
    /// Whether the key itself stands in the configuration file.
    pub(in crate::config) is_in_file: bool,
    pub(in crate::config) location: Location,
}

/// The file of `keys_file`, but for its keys.
#[derive(Debug, Clone)]
pub(in crate::config) struct KeysFile {
    pub(in crate::config) path: PathBuf,
    /// Changes with the contents.
    pub(in crate::config) fingerprint: u64,
    /// Whether it has keys, not only digests, and every user of this machine may read it.
    pub(in crate::config) shows_secrets: bool,
}

/// A file with a hundred thousand keys has about 10 MiB.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

const COLUMNS: [&str; 4] = ["name", "key", "digest", "plan"];

/// Every `[[api_key]]` of a file.
pub(super) fn tables(root: &Table<'_>) -> Vec<WrittenApiKey> {
    let keys = super::tables(root.get_secret("api_key"), WrittenApiKey::read);
    keys.into_iter().flatten().collect()
}

impl WrittenApiKey {
    fn read(table: &Table<'_>) -> Option<Self> {
        let given = ["key", "key_file", "digest"].map(|key| table.get_secret(key));
        let is_in_file = given[0].is_some();
        let identity = match &given {
            [Some(key), None, None] => key.secret().as_ref().map(identity),
            [None, Some(_), None] => {
                let file = table.get("key_file");
                file.and_then(|file| file.secret_in_file()).as_ref().map(identity)
            }
            [None, None, Some(digest)] => of_digest(digest),
            [None, None, None] => {
                table.missing("key", "key, key_file or digest");
                None
            }
            [key, file, digest] => {
                let second = [key, file, digest].into_iter().flatten().nth(1);
                let expected = "a key is given already: expected one of key, key_file and digest";
                second.iter().for_each(|value| value.report(expected));
                None
            }
        };
        let name = table.sourced("name", |value| value.text().map(str::to_owned));
        let plan = table.sourced("plan", |value| value.text().map(str::to_owned));
        if plan.is_none() && table.get("plan").is_none() {
            table.missing("plan", "the name of a plan");
        }
        Some(Self {
            identity: identity?,
            name,
            plan: plan?,
            is_in_file,
            location: table.location(),
        })
    }

    /// The key as the library knows it.
    pub(in crate::config) fn to_key(&self) -> ApiKey {
        let key = ApiKey::of_identity(self.identity, self.plan.value.clone());
        self.name.iter().fold(key, |key, name| key.name(name.value.clone()))
    }
}

fn identity(secret: &Secret) -> Identity {
    Identity::api_key(secret.reveal().as_bytes())
}

/// The identity of a key that is given by its digest. It may be the key itself, by mistake, so it is
/// never shown.
fn of_digest(value: &Value<'_>) -> Option<Identity> {
    let digest = value.secret()?;
    match ApiKey::from_digest(digest.reveal(), "") {
        Ok(key) => Some(*key.identity()),
        Err(error) => {
            value.report(error);
            None
        }
    }
}

impl KeysFile {
    /// Reads a CSV or TOML file and adds its keys to those that are known.
    pub(super) fn read(value: &Value<'_>, keys: &mut Vec<WrittenApiKey>) -> Option<Self> {
        let path = value.file()?;
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => csv,
            Some("toml") => toml,
            _ => {
                value.report("expected a file whose name ends in .csv or .toml");
                return None;
            }
        };
        let (bytes, is_open_to_all) = match read(&path) {
            Ok(read) => read,
            Err(error) => {
                value.report(format!("the file cannot be read: {error}"));
                return None;
            }
        };
        if bytes.len() as u64 > MAX_BYTES {
            value.report(format!("the file is too large: expected at most {MAX_BYTES} bytes"));
            return None;
        }
        let fingerprint = reload::fingerprint(&bytes);
        let name = path.display().to_string();
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(_) => {
                value.report("the file is not UTF-8 text");
                return None;
            }
        };
        let mut problems = Vec::new();
        let has_secrets = format(&name, &path, &text, keys, &mut problems);
        value.report_elsewhere(problems);
        Some(Self { path, fingerprint, shows_secrets: has_secrets && is_open_to_all })
    }
}

fn read(path: &Path) -> std::io::Result<(Vec<u8>, bool)> {
    let file = File::open(path)?;
    let is_open_to_all = sources::is_open_to_all(&file);
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok((bytes, is_open_to_all))
}

/// Reads `[[api_key]]` tables, as in the configuration file. Tells whether there are keys among
/// them, and not only digests.
fn toml(
    name: &str,
    path: &Path,
    text: &str,
    keys: &mut Vec<WrittenApiKey>,
    problems: &mut Vec<ConfigError>,
) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    let document = Document::new(name, folder, text);
    let read = document.read(text, tables);
    problems.extend(document.into_problems());
    let has_secrets = read.iter().any(|key| key.is_in_file);
    keys.extend(read.into_iter().map(|key| WrittenApiKey { is_in_file: false, ..key }));
    has_secrets
}

/// Reads lines of values, under a first line that names them.
fn csv(
    name: &str,
    _: &Path,
    text: &str,
    keys: &mut Vec<WrittenApiKey>,
    problems: &mut Vec<ConfigError>,
) -> bool {
    let name: Arc<str> = name.into();
    let location = |line: u64, key: &str| {
        let line = usize::try_from(line).ok();
        Location { origin: Origin::File { name: name.clone(), line }, key: key.to_owned() }
    };
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let columns = match reader.headers() {
        Ok(headers) => headers.clone(),
        Err(error) => {
            problems.push(ConfigError::new(location(1, ""), not_csv(&error)));
            return false;
        }
    };
    let first = line(text, columns.position());
    if let Some(expected) = wrong_columns(&columns) {
        problems.push(ConfigError::new(location(first, ""), expected));
        return false;
    }
    let column = |name: &str| columns.iter().position(|column| column == name);
    let [name, key, digest, plan] = COLUMNS.map(column);
    let mut has_secrets = false;
    let mut record = csv::StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return has_secrets,
            Err(error) => {
                let line = line(text, error.position());
                problems.push(ConfigError::new(location(line, ""), not_csv(&error)));
                continue;
            }
        }
        let line = line(text, record.position());
        let field = |column: Option<usize>| {
            column.and_then(|column| record.get(column)).filter(|field| !field.is_empty())
        };
        let identity = match (field(key), field(digest)) {
            (Some(key), None) => {
                has_secrets = true;
                Ok(Identity::api_key(key.as_bytes()))
            }
            (None, Some(digest)) => {
                let key = ApiKey::from_digest(digest, "");
                key.map(|key| *key.identity()).map_err(|error| error.to_string())
            }
            _ => Err("expected either a key or a digest".to_owned()),
        };
        match (identity, field(plan)) {
            (Ok(identity), Some(plan)) => keys.push(WrittenApiKey {
                identity,
                name: field(name).map(|name| location(line, "name").with_value(name.to_owned())),
                plan: location(line, "plan").with_value(plan.to_owned()),
                is_in_file: false,
                location: location(line, ""),
            }),
            (identity, plan) => {
                let wrong =
                    identity.err().map(|expected| ConfigError::new(location(line, ""), expected));
                let expected = "missing: expected the name of a plan";
                let missing =
                    plan.is_none().then(|| ConfigError::new(location(line, "plan"), expected));
                problems.extend(wrong.into_iter().chain(missing));
            }
        }
    }
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
