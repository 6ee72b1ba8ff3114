//! How proxies write addresses: lists, elements of `Forwarded`, and nodes with ports.

use std::iter::Rev;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// More bytes than an address in text: 45 for the address, a zone of 16, brackets and a port.
const MAX_NODE: usize = 80;

/// The address in the element's `for`, if the element is well formed and has exactly one.
///
/// Two things that senders get wrong are let pass, because they move no boundary: space around
/// pairs, and colons or brackets without quotes.
pub(super) fn parse_element(element: &[u8]) -> Option<IpAddr> {
    let mut address = None;
    for pair in pairs(element).map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty()) {
        let (name, value) = split_pair(pair)?;
        let is_for = name.eq_ignore_ascii_case(b"for");
        if is_for && address.replace(parse_value(value)).is_some() {
            return None;
        }
    }
    address.flatten()
}

/// The parts between semicolons outside quotes.
fn pairs(element: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let mut escaped = false;
    element.split(move |byte| {
        let literal = std::mem::take(&mut escaped);
        match byte {
            _ if literal => {}
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b';' => return !quoted,
            _ => {}
        }
        false
    })
}

fn split_pair(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = pair.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&pair[..equals], &pair[equals + 1..]);
    let well_formed = is_token(name) && (is_quoted(value) || is_unquoted(value));
    well_formed.then_some((name, value))
}

fn parse_value(value: &[u8]) -> Option<IpAddr> {
    let mut buffer = [0; MAX_NODE];
    match inside_quotes(value) {
        Some(inside) => parse_node(unescape(inside, &mut buffer)?),
        None => parse_node(value),
    }
}

/// What the quotes hold, in `buffer`; `None` if it does not fit there.
fn unescape<'b>(inside: &[u8], buffer: &'b mut [u8; MAX_NODE]) -> Option<&'b [u8]> {
    let mut len = 0;
    let mut bytes = inside.iter();
    while let Some(byte) = bytes.next() {
        let byte = if *byte == b'\\' { bytes.next()? } else { byte };
        *buffer.get_mut(len)? = *byte;
        len += 1;
    }
    Some(&buffer[..len])
}

fn inside_quotes(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Whether the value ends with the quote that closes it, and not before.
fn is_quoted(value: &[u8]) -> bool {
    let Some(inside) = inside_quotes(value) else { return false };
    let mut escaped = false;
    for byte in inside {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return false,
            _ => {}
        }
    }
    !escaped
}

fn is_unquoted(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|b| is_token_byte(*b) || b":[]/@".contains(b))
}

fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().copied().all(is_token_byte)
}

/// `tchar` of RFC 9110.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The canonical form of an address that may have brackets, a zone and a port.
///
/// Names, `unknown` and the hidden nodes of RFC 7239 are no addresses.
fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(node).ok()?;
    address(text).map(|address| address.to_canonical())
}

/// The same with quotes around it or without, as it is written where no grammar is.
pub(super) fn parse_entry(entry: &[u8]) -> Option<IpAddr> {
    let inside = entry.strip_prefix(b"\"").and_then(|quoted| quoted.strip_suffix(b"\""));
    parse_node(inside.unwrap_or(entry))
}

fn address(text: &str) -> Option<IpAddr> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, after) = bracketed.split_once(']')?;
        let whole = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return v6(inside).filter(|_| whole);
    }
    // `2001:db8::1:80` may have a port or not. Without brackets it has none.
    if text.bytes().filter(|byte| *byte == b':').count() > 1 { v6(text) } else { v4(text) }
}

fn v6(text: &str) -> Option<IpAddr> {
    let (address, zone) = text.split_once('%').unwrap_or((text, ""));
    address.parse::<Ipv6Addr>().ok().filter(|_| is_zone(zone)).map(IpAddr::V6)
}

fn v4(text: &str) -> Option<IpAddr> {
    let (address, port) = text.split_once(':').unwrap_or((text, "0"));
    address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port)).map(IpAddr::V4)
}

fn is_zone(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-~%".contains(&b))
}

/// A number, or the `_hidden` one of RFC 7239.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(hidden) => {
            !hidden.is_empty()
                && hidden.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        }
        None => (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()),
    }
}
