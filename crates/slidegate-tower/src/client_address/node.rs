//! An address as proxies write it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The canonical form of an address that may have brackets, a zone and a port.
///
/// Names, `unknown` and the hidden nodes of RFC 7239 are no addresses.
pub(super) fn parse(node: &[u8]) -> Option<IpAddr> {
    if let Some(address) = plain_v4(node) {
        return Some(address.into());
    }
    let text = std::str::from_utf8(node).ok()?;
    address(text).map(|address| address.to_canonical())
}

/// The same with quotes around it or without, as it is written where no grammar is.
pub(super) fn parse_bare(entry: &[u8]) -> Option<IpAddr> {
    let inside = entry.strip_prefix(b"\"").and_then(|quoted| quoted.strip_suffix(b"\""));
    parse(inside.unwrap_or(entry))
}

/// An IPv4 address and nothing else, as nearly every node is: the general way takes several times
/// as long.
pub(super) fn plain_v4(node: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut digits = node.iter();
    for (place, octet) in octets.iter_mut().enumerate() {
        let end = if place == 3 { None } else { Some(b'.') };
        *octet = plain_octet(&mut digits, end)?;
    }
    Some(octets.into())
}

/// The digits before `end`, without zeros in front, which some programs take for octal.
fn plain_octet<'n>(node: &mut impl Iterator<Item = &'n u8>, end: Option<u8>) -> Option<u8> {
    let digit = |byte: u8| Some(byte.wrapping_sub(b'0')).filter(|digit| *digit < 10);
    let mut value = digit(*node.next()?)?;
    for _ in 0..3 {
        let next = node.next().copied();
        if next == end {
            return Some(value);
        }
        // A zero in front would be followed by another digit.
        let digit = digit(next?).filter(|_| value != 0)?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_address_is_read_as_the_standard_library_reads_it() {
        let octets =
            ["0", "1", "9", "10", "99", "100", "255", "256", "999", "00", "01", "1000", ""];
        for (one, other) in octets.iter().flat_map(|one| octets.map(|other| (*one, other))) {
            for text in [format!("{one}.7.0.{other}"), format!("7.{one}.{other}.0")] {
                assert_eq!(plain_v4(text.as_bytes()), text.parse().ok(), "{text}");
            }
        }
        let odd = ["", ".", "1", "1.2.3", "1.2.3.4.", "1.2.3.4.5", ".1.2.3", "1..2.3", "1.2.3.4:5"];
        for text in odd.into_iter().chain(["1.2.3.4 ", " 1.2.3.4", "+1.2.3.4", "1.2.3.x", "::1"]) {
            assert_eq!(plain_v4(text.as_bytes()), None, "{text}");
        }
    }
}
