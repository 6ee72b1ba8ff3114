//! The entries of a list header, from the right.

use std::iter::Rev;

use http::header::ValueIter;
use http::{HeaderMap, HeaderName, HeaderValue};

/// More hops than any honest request has.
const MAX_ENTRIES: usize = 64;
/// As much as common servers take in one header line.
const MAX_BYTES: usize = 8 * 1024;

/// The entries of all lines of a header, the last one first, without the space around them.
///
/// It ends early after 64 entries, and at an entry that begins more than 8 KiB from the end.
pub(super) struct ListEntries<'a> {
    lines: Rev<ValueIter<'a, HeaderValue>>,
    /// What is left of the line that is being read.
    line: Option<&'a [u8]>,
    entries_left: usize,
    bytes_left: usize,
}

impl<'a> ListEntries<'a> {
    pub(super) fn of(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        let lines = headers.get_all(name).into_iter().rev();
        Self { lines, line: None, entries_left: MAX_ENTRIES, bytes_left: MAX_BYTES }
    }
}

impl<'a> Iterator for ListEntries<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.entries_left = self.entries_left.checked_sub(1)?;
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next()?.as_bytes(),
        };
        let unseen = line.len().saturating_sub(self.bytes_left);
        let entry = match last_comma(&line[unseen..]) {
            Some(comma) => {
                self.line = Some(&line[..unseen + comma]);
                &line[unseen + comma + 1..]
            }
            None if unseen == 0 => line,
            None => return None,
        };
        self.bytes_left = self.bytes_left.saturating_sub(entry.len() + 1);
        Some(entry.trim_ascii())
    }
}

/// The last comma outside quotes.
///
/// It is looked for from the right, so that what a proxy appended is read alike whatever stands
/// before it: a client's open quote cannot swallow the proxy's entry.
fn last_comma(text: &[u8]) -> Option<usize> {
    let last = text.iter().rposition(|byte| matches!(byte, b',' | b'"'))?;
    let mut quoted = false;
    for (i, byte) in text[..=last].iter().enumerate().rev() {
        match byte {
            b'"' if quoted => quoted = is_escaped(text, i),
            b'"' => quoted = true,
            b',' if !quoted => return Some(i),
            _ => {}
        }
    }
    None
}

/// Whether an odd number of backslashes stands before the byte.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}
