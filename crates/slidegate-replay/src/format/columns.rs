//! CSV with a header.

use csv::ByteRecord;

use crate::entry::{BadLine, FieldMapping, FieldUse, LogEntry, NO_TIME};
use crate::time::TimeReader;

/// What the columns are for.
#[derive(Debug, Default)]
pub(crate) struct CsvColumns {
    uses: Vec<(usize, FieldUse)>,
    /// Whether a column may contain secrets, or has no known use.
    pub(crate) may_have_secrets: bool,
}

/// The names that columns usually have, in small letters and with `_` for `-`, `.` and spaces.
const USUAL: [(&str, &[&str]); 12] = [
    ("time", &["time", "timestamp", "ts", "datetime", "@timestamp", "time_iso8601", "time_local"]),
    ("client", &["client", "client_ip", "clientip", "remote_addr", "ip", "c_ip", "remote_ip"]),
    ("request", &["request"]),
    ("method", &["method", "request_method", "http_method", "cs_method"]),
    ("path", &["path", "uri", "url", "request_uri", "request_path", "cs_uri_stem"]),
    ("user", &["user", "user_id", "remote_user", "username"]),
    ("plan", &["plan"]),
    ("cost", &["cost"]),
    ("status", &["status", "status_code", "http_status", "response_status", "sc_status"]),
    ("response-cost", &["response_cost", "total_tokens"]),
    ("api-key", &["api_key", "apikey", "x_api_key"]),
    ("authorization", &["authorization"]),
];

impl CsvColumns {
    /// Finds the columns by the names in the header.
    pub(crate) fn new(header: &ByteRecord, mappings: &[FieldMapping]) -> Result<Self, String> {
        let names: Vec<_> =
            header.iter().map(|name| String::from_utf8_lossy(name.trim_ascii())).collect();
        let mut columns = Vec::new();
        for FieldMapping { to, field } in mappings {
            let column = names.iter().position(|name| name == field);
            let column = column.ok_or_else(|| {
                format!(
                    "--map {to}={field}: there is no such column; there are {}",
                    names.join(", ")
                )
            })?;
            columns.push((column, to.clone()));
        }
        for (to, usual) in USUAL {
            let to: FieldUse = to.parse().expect("one of the uses");
            if columns.iter().any(|(_, other)| *other == to) {
                continue;
            }
            let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '.', ' '], "_");
            let column = names.iter().position(|name| usual.contains(&&*plain(name)));
            columns.extend(column.map(|column| (column, to)));
        }
        let has = |wanted: FieldUse| columns.iter().any(|(_, to)| *to == wanted);
        if !has(FieldUse::Time) || !has(FieldUse::Path) && !has(FieldUse::Request) {
            return Err(format!(
                "expected a header with columns such as time, client, method and path, or --map \
                 time=COLUMN and so on; there are {}",
                names.join(", ")
            ));
        }
        let may_have_secrets =
            columns.len() < names.len() || columns.iter().any(|(_, to)| to.may_be_secret());
        Ok(Self { uses: columns, may_have_secrets })
    }

    pub(crate) fn read(
        &self,
        record: &ByteRecord,
        entry: &mut LogEntry,
        times: &mut TimeReader,
    ) -> Result<(), BadLine> {
        entry.clear();
        let mut has_time = false;
        for (column, to) in &self.uses {
            let text = record.get(*column).unwrap_or_default().trim_ascii();
            let Ok(text) = str::from_utf8(text) else { return Err("expected UTF-8 text".into()) };
            if !text.is_empty() && text != "-" {
                entry.set(to, text, times)?;
                has_time |= *to == FieldUse::Time;
            }
        }
        if has_time { entry.check() } else { Err(NO_TIME.into()) }
    }
}
