//! The operator's query, as it is sent.

use tokio_postgres::SimpleQueryMessage;

use super::session::{PgError, PgSession};
use super::{OVERLAP_SECONDS, POLL_STALL, row};

/// The columns of a query by name, and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeySelect {
    /// Reads everything.
    pub(super) all: String,
    /// Reads what has changed since `$1`; none if the query does not say when a row changed.
    pub(super) changed: Option<String>,
    /// The columns that are there, of those that are understood.
    columns: Vec<&'static str>,
}

/// Their names, in the order in which a row is read.
const COLUMNS: [(ReadAs, &[&str]); row::COLUMNS] = [
    (ReadAs::Text, &["digest"]),
    (ReadAs::Text, &["customer"]),
    (ReadAs::Text, &["plan"]),
    (ReadAs::Text, &["quotas"]),
    (ReadAs::Time, &["expires_at", "expires"]),
    (ReadAs::PastTime, &["changed_at"]),
];

#[derive(Clone, Copy)]
enum ReadAs {
    /// Numbers, UUIDs, enumerations and arrays are made text by the database.
    Text,
    /// A time is not converted: without a zone it would depend on the session's.
    Time,
    /// A time that is ahead of the database's clock is left out: as the newest one it would hide all
    /// changes until then, and rows are often dated by clocks of several machines.
    PastTime,
}

impl KeySelect {
    /// Asks the database which columns the query has. No statement is prepared by name here or
    /// elsewhere: behind PgBouncer in transaction mode the next query may meet another connection.
    pub(super) async fn describe(session: &PgSession, query: &str) -> Result<Self, PgError> {
        let nothing = format!("select * from (\n{query}\n) as slidegate_keys limit 0");
        let answer = session.within(POLL_STALL, session.client.simple_query(&nothing)).await?;
        let columns = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::RowDescription(columns) => Some(columns),
            _ => None,
        });
        let columns = columns.ok_or(PgError::NotASelect)?;
        let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
        Self::of_columns(query, &names)
    }

    fn of_columns(query: &str, names: &[&str]) -> Result<Self, PgError> {
        if !names.contains(&"digest") {
            return Err(PgError::NoDigest(names.join(", ")));
        }
        let mut selected = Vec::new();
        let mut columns = Vec::new();
        for (read_as, known_as) in COLUMNS {
            let name = known_as.iter().copied().find(|name| names.contains(name));
            columns.extend(name);
            selected.push(match (read_as, name) {
                (ReadAs::Text, name) => format!("{}::text", name.unwrap_or("null")),
                (ReadAs::Time, Some(name)) => name.to_owned(),
                // The conversion is none, but lets a text through to be reported as one.
                (ReadAs::PastTime, Some(name)) => {
                    format!("case when {name}::timestamptz <= now() then {name} end as {name}")
                }
                (ReadAs::Time | ReadAs::PastTime, None) => "null::timestamptz".to_owned(),
            });
        }
        let all = format!("select {} from (\n{query}\n) as slidegate_keys", selected.join(", "));
        // Where the database's clock was set back, the newest row may be ahead of it.
        let since = format!("least($1, now() - interval '{OVERLAP_SECONDS} s')");
        let changed =
            columns.contains(&"changed_at").then(|| format!("{all} where changed_at >= {since}"));
        Ok(Self { all, changed, columns })
    }

    /// Fails if a column has gone since the query was described before: what the keys have from it
    /// would be lost with it.
    pub(super) fn check_after(&self, before: &Self) -> Result<(), PgError> {
        let gone = before.columns.iter().find(|column| !self.columns.contains(column));
        gone.map_or(Ok(()), |column| Err(PgError::ColumnGone(column)))
    }
}

/// The query without the semicolons at its end, which it must not have inside another.
pub(super) fn trimmed(query: &str) -> &str {
    query.trim_end_matches(|c: char| c == ';' || c.is_whitespace()).trim_start()
}
