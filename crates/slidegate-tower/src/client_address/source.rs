//! Where a client's address is read from.

use std::fmt;
use std::str::FromStr;

/// Where a client's address is read from. There is exactly one: a proxy sets the header that it
/// knows and passes the others on as the client sent them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum AddressSource {
    /// The address of the peer that holds the connection.
    #[default]
    Peer,
    /// `X-Forwarded-For`, a list that every proxy on the way appends to.
    XForwardedFor,
    /// `Forwarded` of RFC 7239, the same with names.
    Forwarded,
    /// `X-Real-IP`, one address that the nearest proxy sets.
    XRealIp,
    /// `CF-Connecting-IP`, one address that Cloudflare sets.
    CfConnectingIp,
}

impl AddressSource {
    const ALL: [Self; 5] =
        [Self::Peer, Self::XForwardedFor, Self::Forwarded, Self::XRealIp, Self::CfConnectingIp];

    fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::XRealIp => "x-real-ip",
            Self::CfConnectingIp => "cf-connecting-ip",
        }
    }
}

impl fmt::Display for AddressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reads `peer` or the name of a header, in any case.
impl FromStr for AddressSource {
    type Err = AddressSourceError;

    fn from_str(text: &str) -> Result<Self, AddressSourceError> {
        let named = |source: &Self| source.as_str().eq_ignore_ascii_case(text);
        let error = || AddressSourceError { text: text.to_owned() };
        Self::ALL.into_iter().find(named).ok_or_else(error)
    }
}

/// A text that names no source of client addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a source of client addresses: expected peer, x-forwarded-for, forwarded, \
     x-real-ip or cf-connecting-ip"
)]
pub struct AddressSourceError {
    text: String,
}
