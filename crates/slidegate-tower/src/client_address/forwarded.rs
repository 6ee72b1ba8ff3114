//! The client's side of an element of `Forwarded`, RFC 7239.

use std::net::IpAddr;

use super::node;

/// More bytes than a written address has: 45 of its own, a zone of 16, brackets and a port.
const MAX_NODE: usize = 80;

/// The address in the element's `for`, if the element is well formed and has exactly one.
///
/// Two things that senders get wrong are let pass, because they move no boundary: space around
/// pairs, and colons or brackets without quotes.
pub(super) fn parse(element: &[u8]) -> Option<IpAddr> {
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
        Some(inside) => node::parse(unescape(inside, &mut buffer)?),
        None => node::parse(value),
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
