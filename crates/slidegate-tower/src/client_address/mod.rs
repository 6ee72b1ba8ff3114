//! The address of the client behind proxies.

mod forwarding;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, header};
use slidegate::policy::Network;

use self::forwarding::{ListEntries, parse_element, parse_entry};

/// How the client's address is found: one source, and the networks of the proxies that are
/// trusted to fill it in.
///
/// The peer that holds the connection is the only fact. If it lies in a trusted network, the
/// source is believed as far as trusted proxies wrote it, from the right: the client is the first
/// address that is not trusted, or the leftmost if all are. Whatever stands further left was
/// written by the client and is not looked at. An entry that is no address ends the walk, and the
/// hop that sent it is the client. So does the end of what is examined: 64 entries or 8 KiB,
/// over all lines of the header.
///
/// The default is the peer, with no proxy trusted.
///
/// ```
/// use slidegate_tower::{AddressSource, ClientAddress};
///
/// let clients = ClientAddress::new(AddressSource::XForwardedFor, ["10.0.0.0/8".parse()?]);
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("x-forwarded-for", "198.51.100.1, 203.0.113.7, 10.0.0.2".parse()?);
/// let client = clients.resolve(Some("10.0.0.1".parse()?), &headers);
/// assert_eq!(client, Some("203.0.113.7".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientAddress {
    source: AddressSource,
    trusted: Arc<[Network]>,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolvedClient {
    /// The peer that holds the connection. A Unix socket's peer has no address.
    pub peer: Option<IpAddr>,
    /// The client that it was sent for, in the canonical form.
    pub client: Option<IpAddr>,
    /// Whether the peer may speak for clients.
    pub is_trusted: bool,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const CF_CONNECTING_IP: HeaderName = HeaderName::from_static("cf-connecting-ip");

impl ClientAddress {
    /// Reads the source where a peer in one of the trusted networks sent it.
    ///
    /// The networks are those of all proxies on the way and of nothing else: any peer in them can
    /// pass for any client.
    pub fn new(source: AddressSource, trusted: impl IntoIterator<Item = Network>) -> Self {
        Self { source, trusted: trusted.into_iter().collect() }
    }

    /// Where the address is read from.
    pub fn source(&self) -> AddressSource {
        self.source
    }

    /// Whether the peer may speak for clients.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// Where a request with these headers comes from.
    ///
    /// A peer without an address, as on a Unix socket, is not trusted, and there is no client
    /// address. This allocates nothing.
    pub fn resolve_client(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> ResolvedClient {
        let is_trusted = peer.is_some_and(|peer| self.trusts(peer));
        let canonical = peer.map(|peer| peer.to_canonical());
        let client = match canonical {
            Some(peer) if is_trusted => Some(self.walk(peer, headers)),
            peer => peer,
        };
        ResolvedClient { peer, client, is_trusted }
    }

    /// The client's address in its canonical form.
    pub fn resolve(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        self.resolve_client(peer, headers).client
    }

    /// Where a trusted peer says that a request came from.
    fn walk(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let list = |name| ListEntries::of(headers, name);
        match self.source {
            AddressSource::Peer => peer,
            AddressSource::XForwardedFor => {
                self.last_hop(peer, list(&X_FORWARDED_FOR).map(parse_entry))
            }
            AddressSource::Forwarded => {
                self.last_hop(peer, list(&header::FORWARDED).map(parse_element))
            }
            AddressSource::XRealIp => single(headers, &X_REAL_IP).unwrap_or(peer),
            AddressSource::CfConnectingIp => single(headers, &CF_CONNECTING_IP).unwrap_or(peer),
        }
    }

    /// Goes from hop to hop, away from a trusted peer, while the one reached is trusted and says
    /// where its request came from.
    fn last_hop(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for hop in hops {
            let Some(before) = hop else { break };
            client = before;
            if !self.trusts(client) {
                break;
            }
        }
        client
    }
}

/// The address in a header that has one value, unless the header is repeated: one of the two was
/// not written by the proxy.
fn single(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => parse_entry(value.as_bytes().trim_ascii()),
        _ => None,
    }
}

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
