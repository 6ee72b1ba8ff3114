//! The end of the audit trail, read again for one identity.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::path::Path;

use memchr::memmem;
use serde_json::Value;

use crate::{disk, file};

/// The most that is read: some ten thousand lines.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Lines at the end of a trail.
#[derive(Debug, Default)]
pub(crate) struct TrailLines {
    /// The newest first.
    pub(crate) lines: Vec<Value>,
    /// The time of the oldest line that was looked at.
    pub(crate) since: Option<Value>,
}

/// Finds the newest lines about an identity, written as lines have it: decisions that it took part
/// in, and what operators did to it. Looks at the last 4 MiB of the file and the one that was full
/// before it.
pub(crate) fn read_tail(file: &Path, identity: &str, limit: usize) -> io::Result<TrailLines> {
    let newest = read_end(file, MAX_BYTES)?;
    let room = MAX_BYTES.saturating_sub(newest.len() as u64);
    let before = match read_end(&disk::with_suffix(file, ".1"), room) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        before => before?,
    };
    let subject = Subject::new(identity);
    let mut found = TrailLines::default();
    let lines = [&newest, &before].into_iter().flat_map(|bytes| bytes.rsplit(|b| *b == b'\n'));
    let mut oldest = None;
    for line in lines.filter(|line| !line.is_empty()) {
        oldest = Some(line);
        if found.lines.len() == limit {
            break;
        }
        if subject.may_be_in(line)
            && let Ok(value) = serde_json::from_slice(line)
            && subject.is_in(&value)
        {
            found.lines.push(value);
        }
    }
    let oldest = oldest.and_then(|line| serde_json::from_slice::<Value>(line).ok());
    found.since = oldest.map(|mut line| line["time"].take());
    Ok(found)
}

/// The last bytes of a file, from the beginning of a line.
fn read_end(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = file::open(path)?;
    let start = file.metadata()?.len().saturating_sub(bytes);
    file.seek(SeekFrom::Start(start))?;
    let mut end = Vec::new();
    file.take(bytes).read_to_end(&mut end)?;
    if start > 0 {
        let line = memchr::memchr(b'\n', &end).map_or(end.len(), |at| at + 1);
        end.drain(..line);
    }
    Ok(end)
}

/// The identity whose lines are selected.
struct Subject<'a> {
    identity: &'a str,
    /// The line of a blocked request has no identity, because nothing was counted: only an address.
    address: Option<IpAddr>,
    /// What every such line has in it.
    needle: memmem::Finder<'a>,
}

impl<'a> Subject<'a> {
    fn new(identity: &'a str) -> Self {
        let address = identity.strip_prefix("ip:").and_then(|text| text.parse().ok());
        let kind = identity.split(':').next().unwrap_or_default();
        // Nothing in an identity but its kind is sure to be written in JSON as it is.
        let needle = if address.is_some() { &identity["ip:".len()..] } else { kind };
        Self { identity, address, needle: memmem::Finder::new(needle) }
    }

    fn may_be_in(&self, line: &[u8]) -> bool {
        self.needle.find(line).is_some()
    }

    fn is_in(&self, line: &Value) -> bool {
        let policies = line["policies"].as_array().map_or(&[][..], Vec::as_slice);
        let client = line["client"].as_str().and_then(|client| client.parse::<IpAddr>().ok());
        line["identity"] == self.identity
            || policies.iter().any(|policy| policy["identity"] == self.identity)
            || (policies.is_empty() && client.is_some() && client == self.address)
    }
}
