//! An address as proxies write it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The canonical form of an address that may have brackets, a zone and a port.
///
/// Names, `unknown` and the hidden nodes of RFC 7239 are no addresses.
pub(super) fn parse(node: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(node).ok()?;
    address(text).map(|address| address.to_canonical())
}

/// The same with quotes around it or without, as it is written where no grammar is.
pub(super) fn parse_bare(entry: &[u8]) -> Option<IpAddr> {
    let inside = entry.strip_prefix(b"\"").and_then(|quoted| quoted.strip_suffix(b"\""));
    parse(inside.unwrap_or(entry))
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
