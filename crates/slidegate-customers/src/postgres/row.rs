//! A row of the operator's query.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slidegate::limit::{Name, Quota, Quotas};
use slidegate::policy::{KeyDigest, KeyHash};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::session::PgError;
use crate::key_table::{KeyExpiry, KeyRecord, Terms};

/// How many columns are asked for: digest, customer, plan, quotas, expires and changed_at.
pub(super) const COLUMNS: usize = 6;

const EXPIRES: usize = 4;
const CHANGED_AT: usize = 5;

/// Longer ones are mistakes, and would take memory for each key.
const MAX_CUSTOMER_BYTES: usize = 256;
const MAX_QUOTAS_BYTES: usize = 1024;

/// Plans and quotas of different rows, at most about 100 MB. Rows with others cannot be used.
const MAX_TERMS: usize = 100_000;

/// What a row says.
pub(super) struct KeyRow {
    pub(super) changed_at: Option<PgInstant>,
    pub(super) content: RowContent,
}

pub(super) enum RowContent {
    Key(KeyDigest, KeyRecord),
    /// The row of a key that cannot be read otherwise, apart from when it ends.
    BadKey(KeyDigest, KeyExpiry, BadColumn),
    BadDigest,
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadColumn {
    Digest,
    Customer,
    Plan,
    Quotas,
    NoneOfThree,
    TooManyTerms,
}

/// Reads rows.
pub(super) struct RowReader {
    hash: KeyHash,
    /// By plan and quotas as they are written. Plans and quotas are few, and keys share them.
    terms: HashMap<Box<str>, Arc<Terms>, RandomState>,
    buffer: String,
}

impl RowReader {
    pub(super) fn new(hash: KeyHash) -> Self {
        Self { hash, terms: HashMap::default(), buffer: String::new() }
    }

    pub(super) fn read(&mut self, row: &Row) -> Result<KeyRow, PgError> {
        let changed_at = time(row, CHANGED_AT, "changed_at")?;
        let expires = time(row, EXPIRES, "expires_at")?;
        let [digest, customer, plan, quotas] = texts(row)?;
        let digest = digest.and_then(|text| parse_digest(self.hash, text));
        let Some(digest) = digest else {
            return Ok(KeyRow { changed_at, content: RowContent::BadDigest });
        };
        let expires = expires.map_or(KeyExpiry::NEVER, PgInstant::expiry);
        let content = match self.record([customer, plan, quotas], expires) {
            Ok(record) => RowContent::Key(digest, record),
            Err(column) => RowContent::BadKey(digest, expires, column),
        };
        Ok(KeyRow { changed_at, content })
    }

    fn record(
        &mut self,
        [customer, plan, quotas]: [Option<&str>; 3],
        expires: KeyExpiry,
    ) -> Result<KeyRecord, BadColumn> {
        if customer.is_none() && plan.is_none() && quotas.is_none() {
            return Err(BadColumn::NoneOfThree);
        }
        if customer.is_some_and(|name| !is_customer(name)) {
            return Err(BadColumn::Customer);
        }
        Ok(KeyRecord::new(customer, self.terms(plan, quotas)?, expires))
    }

    fn terms(&mut self, plan: Option<&str>, quotas: Option<&str>) -> Result<Arc<Terms>, BadColumn> {
        self.buffer.clear();
        self.buffer.push_str(plan.unwrap_or_default());
        // PostgreSQL has no text with this character.
        self.buffer.push('\0');
        self.buffer.push_str(quotas.unwrap_or_default());
        if let Some(terms) = self.terms.get(self.buffer.as_str()) {
            return Ok(Arc::clone(terms));
        }
        if self.terms.len() >= MAX_TERMS {
            return Err(BadColumn::TooManyTerms);
        }
        let plan = plan.map(|plan| plan.parse::<Name>().map(|name| Arc::from(&*name)));
        let plan = plan.transpose().map_err(|_| BadColumn::Plan)?;
        let quotas = quotas.map(|text| parse_quotas(text).ok_or(BadColumn::Quotas)).transpose()?;
        let terms = Arc::new(Terms { plan, quotas });
        self.terms.insert(self.buffer.as_str().into(), Arc::clone(&terms));
        Ok(terms)
    }

    /// Forgets plans and quotas that no key has any more.
    pub(super) fn forget_unused(&mut self) {
        self.terms.retain(|_, terms| Arc::strong_count(terms) > 1);
    }
}

/// All keys with a blank one would share an account.
fn is_customer(name: &str) -> bool {
    name.len() <= MAX_CUSTOMER_BYTES && !name.trim().is_empty()
}

fn texts(row: &Row) -> Result<[Option<&str>; 4], tokio_postgres::Error> {
    let text = |column: usize| -> Result<Option<&str>, tokio_postgres::Error> {
        let text = row.try_get::<_, Option<&str>>(column)?;
        Ok(text.filter(|text| !text.is_empty()))
    };
    Ok([text(0)?, text(1)?, text(2)?, text(3)?])
}

fn time(row: &Row, at: usize, name: &'static str) -> Result<Option<PgInstant>, PgError> {
    let found = row.columns()[at].type_();
    if *found != Type::TIMESTAMPTZ {
        return Err(PgError::NotATime { column: name, found: found.to_string() });
    }
    Ok(row.try_get(at)?)
}

/// Hexadecimal digits, before which bytes that were made text have `\x`.
fn parse_digest(hash: KeyHash, text: &str) -> Option<KeyDigest> {
    hash.parse(text.strip_prefix("\\x").unwrap_or(text)).ok()
}

/// Quotas with commas between them, or an array of them as PostgreSQL or JSON writes it.
fn parse_quotas(text: &str) -> Option<Quotas> {
    if text.len() > MAX_QUOTAS_BYTES {
        return None;
    }
    let list = text.trim().trim_matches(['{', '}', '[', ']']).split(',');
    let quotas = list.map(|quota| quota.trim().trim_matches('"').parse::<Quota>().ok());
    Quotas::new(quotas.collect::<Option<Vec<_>>>()?).ok()
}

/// An instant as PostgreSQL has it: microseconds since 2000-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PgInstant(i64);

const MICROS_PER_SECOND: i64 = 1_000_000;
const UNIX_SECONDS_AT_2000: i64 = 946_684_800;

impl PgInstant {
    const INFINITY: Self = Self(i64::MAX);

    /// Before all others.
    pub(super) const BEGINNING: Self = Self(i64::MIN);

    pub(super) fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The next instant that PostgreSQL can tell from this.
    pub(super) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    fn expiry(self) -> KeyExpiry {
        if self == Self::INFINITY {
            return KeyExpiry::NEVER;
        }
        KeyExpiry::at_second(
            self.0.div_euclid(MICROS_PER_SECOND).saturating_add(UNIX_SECONDS_AT_2000),
        )
    }
}

impl<'a> FromSql<'a> for PgInstant {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TIMESTAMPTZ
    }
}

impl ToSql for PgInstant {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

/// The rows of one reading that were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BadRows {
    counts: [usize; 6],
}

impl BadRows {
    pub(super) fn add(&mut self, column: BadColumn) {
        self.counts[column as usize] += 1;
    }

    pub(super) fn total(&self) -> usize {
        self.counts.iter().sum()
    }
}

impl fmt::Display for BadRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = [
            "whose digest is not one of the configured hash",
            "whose customer is blank or has more than 256 bytes",
            "whose plan is not a name",
            "whose quotas are not of the form \"600/min, 10000/day\"",
            "that have none of customer, plan and quotas",
            "beyond 100000 different plans and quotas",
        ];
        let mut separator = "";
        for (count, why) in self.counts.iter().zip(why).filter(|(count, _)| **count > 0) {
            write!(f, "{separator}{count} {why}")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_from_text_and_arrays() {
        let expected = parse_quotas("600/min, 10000/day");
        assert_eq!(expected.as_ref().map(|quotas| quotas.as_slice().len()), Some(2));
        for text in [
            "600/min,10000/day",
            "{600/min,10000/day}",
            r#"{"600 / min",10000/day}"#,
            r#"["600/min", "10000/day"]"#,
        ] {
            assert_eq!(parse_quotas(text), expected, "{text}");
        }
        for text in ["", "{}", "600", "600/min,", "600/min, 5/min", "{NULL}", "0/min"] {
            assert_eq!(parse_quotas(text), None, "{text}");
        }
        assert_eq!(parse_quotas(&format!("{}600/min", " ".repeat(1024))), None);
    }

    #[test]
    fn digests_are_read_from_text_and_bytes() {
        let hash = KeyHash::Sha256;
        let (digest, hex) = (hash.digest(b"k"), hash.hex(b"k"));
        for text in [hex.clone(), hex.to_uppercase(), format!("\\x{hex}")] {
            assert_eq!(parse_digest(hash, &text), Some(digest));
        }
        for text in ["", "k", &hex[..32], &format!("sha256:{hex}"), &format!("\\x\\x{hex}")] {
            assert_eq!(parse_digest(hash, text), None, "{text}");
        }
    }

    #[test]
    fn instants_are_those_of_the_calendar() {
        let new_year_2026 = PgInstant(820_540_800 * MICROS_PER_SECOND);
        assert_eq!(new_year_2026.expiry(), KeyExpiry::at_second(1_767_225_600));
        let half_a_second_before = new_year_2026.before(Duration::from_millis(500));
        assert_eq!(half_a_second_before.expiry(), KeyExpiry::at_second(1_767_225_599));
        assert_eq!(PgInstant::INFINITY.expiry(), KeyExpiry::NEVER);
        assert_eq!(PgInstant(i64::MIN).expiry(), KeyExpiry::at_second(1));
    }

    #[test]
    fn terms_are_shared_and_forgotten_with_their_last_key() {
        let mut reader = RowReader::new(KeyHash::Sha256);
        let first = reader.terms(Some("pro"), None).unwrap();
        assert!(Arc::ptr_eq(&first, &reader.terms(Some("pro"), None).unwrap()));
        assert!(!Arc::ptr_eq(&first, &reader.terms(None, Some("5/s")).unwrap()));
        reader.forget_unused();
        assert_eq!(reader.terms.len(), 1);
        assert_eq!(reader.terms(Some("no name!"), None), Err(BadColumn::Plan));
        assert_eq!(reader.terms(None, Some("five a second")), Err(BadColumn::Quotas));
        assert_eq!(reader.terms.len(), 1);
    }

    #[test]
    fn terms_are_bounded() {
        let mut reader = RowReader::new(KeyHash::Sha256);
        for units in 1..=MAX_TERMS {
            reader.terms(None, Some(&format!("{units}/day"))).unwrap();
        }
        assert_eq!(reader.terms(Some("pro"), None), Err(BadColumn::TooManyTerms));
        assert!(reader.terms(None, Some("7/day")).is_ok(), "it is shared");
        reader.forget_unused();
        assert!(reader.terms(Some("pro"), None).is_ok());
    }
}
