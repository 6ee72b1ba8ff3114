//! Networks as operators write them, with the sloppy ones refused.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::ParseError;

/// A range of addresses such as `10.0.0.0/8`, `2001:db8::/32` or `203.0.113.7`.
///
/// Host bits must be zero: `10.1.2.3/8` may be a slip for `/32`, so it is refused. IPv4-mapped
/// networks are IPv4 networks; one that holds all of the mapped range is refused, because it would
/// hold every IPv4 address. Who means that writes `0.0.0.0/0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(pub(crate) IpNet);

/// `::ffff:0:0/96`: the bits before an IPv4 address in its mapped form.
const MAPPED_PREFIX: u8 = 96;

impl Network {
    /// Whether the address, brought to its canonical form, lies in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = |problem: &str| ParseError::new(text, format!("a network: {problem}"));
        let net = parse(text).ok_or_else(|| {
            error("expected an address or a range such as 10.0.0.0/8 or 2001:db8::/32")
        })?;
        let net = canonical(net).ok_or_else(|| {
            error(
                "it has all of ::ffff:0:0/96 and would hold every IPv4 address; write it as IPv4, \
                 and 0.0.0.0/0 if that is meant",
            )
        })?;
        if net.addr() != net.network() {
            let meant = net.trunc();
            return Err(error(&format!("bits after the prefix are set; did you mean {meant}?")));
        }
        Ok(Self(net))
    }
}

/// Reads numbers as the standard library does, which refuses the leading zeros that some programs
/// take for octal.
fn parse(text: &str) -> Option<IpNet> {
    let Some((address, prefix)) = text.split_once('/') else {
        return text.parse().ok().map(|address: IpAddr| IpNet::from(address));
    };
    let bits: u8 = prefix.parse().ok().filter(|bits: &u8| bits.to_string() == prefix)?;
    IpNet::new(address.parse().ok()?, bits).ok()
}

/// The IPv4 form of a mapped network; `None` for one that would hold all of IPv4, or more.
fn canonical(net: IpNet) -> Option<IpNet> {
    let IpNet::V6(v6) = net else { return Some(net) };
    let Some(v4) = v6.addr().to_ipv4_mapped() else { return Some(net) };
    let prefix = v6.prefix_len().checked_sub(MAPPED_PREFIX).filter(|bits| *bits > 0)?;
    IpNet::new(IpAddr::V4(v4), prefix).ok()
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The network that an address counts as: IPv4 by `v4` bits, IPv6 by `v6` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefixes {
    v4: u8,
    v6: u8,
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{} of IPv4, /{} of IPv6", self.v4, self.v6)
    }
}

impl Prefixes {
    /// Counts IPv4 addresses by their first `bits`, 1 to 32.
    pub fn with_v4(self, bits: u8) -> Result<Self, PrefixError> {
        prefix(bits, 32).map(|v4| Self { v4, ..self })
    }

    /// Counts IPv6 addresses by their first `bits`, 1 to 128.
    pub fn with_v6(self, bits: u8) -> Result<Self, PrefixError> {
        prefix(bits, 128).map(|v6| Self { v6, ..self })
    }

    /// The network of an address, mapped addresses made IPv4 before they are cut.
    pub(crate) fn network(self, address: IpAddr) -> IpNet {
        let address = address.to_canonical();
        let bits = if address.is_ipv4() { self.v4 } else { self.v6 };
        IpNet::new_assert(address, bits).trunc()
    }

    /// Those by which the addresses of a network count as this network.
    pub(crate) fn of(network: IpNet) -> Result<Self, PrefixError> {
        match network {
            IpNet::V4(v4) => Self::default().with_v4(v4.prefix_len()),
            IpNet::V6(v6) => Self::default().with_v6(v6.prefix_len()),
        }
    }
}

impl Default for Prefixes {
    /// Each IPv4 address, and each IPv6 /64, which is what one customer commonly has.
    fn default() -> Self {
        Self { v4: 32, v6: 64 }
    }
}

fn prefix(bits: u8, most: u8) -> Result<u8, PrefixError> {
    if (1..=most).contains(&bits) { Ok(bits) } else { Err(PrefixError { bits, most }) }
}

/// A prefix length that the family of addresses does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bits} is not a prefix length: expected 1 to {most}")]
pub struct PrefixError {
    bits: u8,
    most: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_contains_the_addresses_from_its_first_to_its_last() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.0/23", "10.1.2.3", "255.255.255.255"] {
            let network: Network = text.parse().unwrap();
            let ends = [network.0.network(), network.0.broadcast()];
            assert!(ends.into_iter().all(|end| network.contains(end)), "{text}");
        }
        for (text, inside, outside) in [
            ("10.1.2.0/23", "10.1.3.255", "10.1.4.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("2001:db8::/33", "2001:db8:7fff:ffff::1", "2001:db8:8000::"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::"),
            ("::/0", "ffff::", "10.1.2.3"),
        ] {
            assert!(contains(text, inside) && !contains(text, outside), "{text}");
        }
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.1.2.3"));
        assert!(contains("::ffff:203.0.113.7", "203.0.113.7"));
        assert!(contains("::ffff:128.0.0.0/97", "203.0.113.7"));
        assert!(contains("0.0.0.0/0", "::ffff:203.0.113.7"), "who says so means it");
        assert!(!contains("::/0", "203.0.113.7"), "all of IPv6 is not IPv4");
    }

    #[test]
    fn sloppy_networks_are_refused_with_what_was_meant() {
        for (text, expected) in [
            ("10.1.2.3/8", "did you mean 10.0.0.0/8?"),
            ("2001:db8::1/32", "did you mean 2001:db8::/32?"),
            ("::ffff:10.0.0.0/8", "would hold every IPv4 address"),
            ("::ffff:0.0.0.0/95", "would hold every IPv4 address"),
            ("::ffff:0:0/96", "0.0.0.0/0 if that is meant"),
            ("::ffff:10.0.0.0/96", "0.0.0.0/0 if that is meant"),
            ("::ffff:10.1.2.3/104", "did you mean 10.0.0.0/8?"),
            ("10.0.0.0/33", "expected an address or a range"),
            ("localhost", "expected an address or a range"),
            ("010.0.0.1", "expected an address or a range"),
            ("010.0.0.0/8", "expected an address or a range"),
            ("10.0.0.0/08", "expected an address or a range"),
            ("10.0.0.0/+8", "expected an address or a range"),
        ] {
            let message = text.parse::<Network>().unwrap_err().to_string();
            assert!(message.contains(text) && message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn prefixes_cut_after_mapping() {
        let half = Prefixes::default().with_v4(24).unwrap();
        let cut = |address: &str| half.network(address.parse().unwrap()).to_string();
        assert_eq!(cut("203.0.113.7"), "203.0.113.0/24");
        assert_eq!(cut("::ffff:203.0.113.7"), "203.0.113.0/24");
        assert_eq!(cut("2001:db8:1:2:3::4"), "2001:db8:1:2::/64");
        assert!(Prefixes::default().with_v4(33).is_err());
        assert!(Prefixes::default().with_v6(0).is_err());
        assert!(Prefixes::default().with_v6(128).is_ok());
    }
}
