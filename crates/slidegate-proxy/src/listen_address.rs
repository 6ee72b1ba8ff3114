//! Listen addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// A listen address: `127.0.0.1:8080`, `[::]:80`, `localhost:8080` (127.0.0.1), or
/// `unix:/run/slidegate.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// `unix:/run/slidegate.sock`.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Whether it is reachable only from this host.
    pub fn is_of_this_machine(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// The address at which this host reaches a TCP listener: loopback for a listener on all
    /// addresses.
    pub fn reached_at(&self) -> Option<SocketAddr> {
        let Self::Tcp(address) = self else { return None };
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        Some(SocketAddr::new(ip, address.port()))
    }

    /// Whether a connection from this host to `address` is certain to reach this listener.
    pub fn is_reached_by(&self, address: &Self) -> bool {
        let (Self::Tcp(own), Self::Tcp(other)) = (self, address) else { return false };
        let is_local = other.ip().is_loopback() || other.ip().is_unspecified();
        let is_same = own.ip() == other.ip() || own.ip().is_unspecified() && is_local;
        own.port() == other.port() && is_same
    }

    /// Whether the two cannot be bound at the same time. Port 0 binds any free port.
    pub fn collides_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(two)) => {
                let everywhere = one.ip().is_unspecified() || two.ip().is_unspecified();
                one.port() != 0 && one.port() == two.port() && (everywhere || one.ip() == two.ip())
            }
            _ => self == other,
        }
    }
}

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if let Some(path) = text.strip_prefix("unix:") {
            let is_absolute = path.starts_with('/');
            return is_absolute.then(|| Self::Unix(path.into())).ok_or(EXPECTED_ADDRESS);
        }
        let address = match text.strip_prefix("localhost:") {
            Some(port) => port.parse().map(|port| (Ipv4Addr::LOCALHOST, port).into()).ok(),
            None => text.parse().ok(),
        };
        address.map(Self::Tcp).ok_or(EXPECTED_ADDRESS)
    }
}

const EXPECTED_ADDRESS: &str = "expected an address and a port such as 127.0.0.1:8080, localhost:8080 or [::]:80, or unix:/path";

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_read_back() {
        for text in ["127.0.0.1:8080", "[::]:80", "[::1]:0", "unix:/run/slidegate.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        let local: ListenAddress = "localhost:80".parse().unwrap();
        assert!(local.to_string() == "127.0.0.1:80" && local.is_of_this_machine());
        for text in ["", "8080", ":8080", "localhost", "localhost:x", "a:80", "127.0.0.1", "unix:x"]
        {
            assert_eq!(text.parse::<ListenAddress>(), Err(EXPECTED_ADDRESS), "{text}");
        }
    }

    #[test]
    fn one_place_has_room_for_one_listener() {
        for (one, two, collide) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("unix:/a", "unix:/a", true),
            ("unix:/a", "127.0.0.1:80", false),
        ] {
            let (one, two): (ListenAddress, ListenAddress) =
                (one.parse().unwrap(), two.parse().unwrap());
            assert_eq!(one.collides_with(&two), collide, "{one} {two}");
        }
    }
}
