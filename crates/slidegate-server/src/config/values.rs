//! Values that are written as strings: addresses, lengths of time and secrets.

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use slidegate::Quota;

/// Where to listen: `127.0.0.1:8080`, `[::]:80`, `localhost:8080`, which is 127.0.0.1, or
/// `unix:/run/slidegate.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    /// `unix:/run/slidegate.sock`.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Whether only this machine can reach it.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Where this machine connects to, to reach a TCP listener: one on all addresses is on loopback
    /// too.
    pub(crate) fn reached_at(&self) -> Option<SocketAddr> {
        let Self::Tcp(address) = self else { return None };
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        Some(SocketAddr::new(ip, address.port()))
    }

    /// Whether a connection of this machine to an address certainly arrives here.
    pub(super) fn is_reached_by(&self, address: &Self) -> bool {
        let (Self::Tcp(own), Self::Tcp(other)) = (self, address) else { return false };
        let is_local = other.ip().is_loopback() || other.ip().is_unspecified();
        let is_same = own.ip() == other.ip() || own.ip().is_unspecified() && is_local;
        own.port() == other.port() && is_same
    }

    /// Whether both cannot be listened on at once. Port 0 is any free one.
    pub(super) fn collides_with(&self, other: &Self) -> bool {
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

/// A length of time: a whole number and a unit that quotas know too, more than nothing and at most
/// 366 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(pub(crate) Duration);

impl FromStr for Period {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let counted = text.starts_with(|c: char| c.is_ascii_digit());
        // A quota's window may be written without a number; a length of time may not.
        let window = counted.then(|| format!("1/{text}").parse::<Quota>().ok()).flatten();
        window.map(|quota| Self(quota.window())).ok_or(EXPECTED_PERIOD)
    }
}

const EXPECTED_PERIOD: &str =
    "expected a length of time such as 50ms, 10s, 5min, 1h or 7d, at most 366 days";

impl fmt::Display for Period {
    /// Written as it would be in a quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
        let whole = units.into_iter().find(|(length, _)| ms.is_multiple_of(*length));
        let (length, unit) = whole.unwrap_or((1, "ms"));
        write!(f, "{}{unit}", ms / length)
    }
}

/// A secret that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// A secret from a file or a variable, without a trailing line break.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The secret itself. Do not print it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
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

    #[test]
    fn periods_are_read_and_written_as_in_quotas() {
        for (text, ms, shown) in [
            ("50ms", 50, "50ms"),
            ("10s", 10_000, "10s"),
            ("60s", 60_000, "1min"),
            ("5min", 300_000, "5min"),
            ("1h", 3_600_000, "1h"),
            ("2 days", 172_800_000, "2d"),
        ] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.0.as_millis(), ms, "{text}");
            assert_eq!(period.to_string(), shown);
        }
        for text in [
            "",
            "min",
            "0s",
            "-1s",
            "1.5s",
            "10",
            "10 parsecs",
            "367d",
            "+1s",
            "9".repeat(40).as_str(),
        ] {
            assert_eq!(text.parse::<Period>(), Err(EXPECTED_PERIOD), "{text}");
        }
    }
}
