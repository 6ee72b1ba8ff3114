//! The address of the client behind proxies.

mod entries;
mod forwarded;
mod node;
mod source;

use std::iter;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::{HeaderMap, HeaderName, header};
use slidegate::policy::Network;

use self::entries::ListEntries;
pub use self::source::{AddressSource, AddressSourceError};

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
/// The default is the peer, with nobody trusted.
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

/// Whom a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolvedClient {
    /// Whoever holds the connection. A Unix socket's peer has no address.
    pub peer: Option<IpAddr>,
    /// The client that it is sent for.
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
    /// The networks are those of every proxy on the way, and of nobody else: whoever is in them
    /// can pass for any client.
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

    /// Whom a request with these headers comes from.
    pub fn sender(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> ResolvedClient {
        let is_trusted = peer.is_some_and(|peer| self.trusts(peer));
        let client = peer.map(|peer| self.client(peer.to_canonical(), is_trusted, headers));
        ResolvedClient { peer, client, is_trusted }
    }

    /// The client's address in its canonical form, without an allocation.
    ///
    /// A peer without an address, as on a Unix socket, is not trusted: there is no client address.
    pub fn resolve(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer?.to_canonical();
        Some(self.client(peer, self.trusts(peer), headers))
    }

    fn client(&self, peer: IpAddr, is_trusted: bool, headers: &HeaderMap) -> IpAddr {
        if !is_trusted {
            return peer;
        }
        match self.source {
            AddressSource::Peer => peer,
            AddressSource::XForwardedFor => match lone_v4(headers) {
                Some(client) => client.into(),
                None => self
                    .walk(peer, ListEntries::of(headers, &X_FORWARDED_FOR).map(node::parse_bare)),
            },
            AddressSource::Forwarded => {
                self.walk(peer, ListEntries::of(headers, &header::FORWARDED).map(forwarded::parse))
            }
            AddressSource::XRealIp => self.walk(peer, single(headers, &X_REAL_IP)),
            AddressSource::CfConnectingIp => self.walk(peer, single(headers, &CF_CONNECTING_IP)),
        }
    }

    /// Goes from hop to hop, away from a trusted peer, while the one reached is trusted and says
    /// where its request came from.
    fn walk(&self, peer: IpAddr, hops: impl IntoIterator<Item = Option<IpAddr>>) -> IpAddr {
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

/// The address, if all that `X-Forwarded-For` says is one IPv4 address, as nearly always: then there
/// is nothing to walk.
fn lone_v4(headers: &HeaderMap) -> Option<Ipv4Addr> {
    // Requests have few headers. To look through them takes less time than to hash a name.
    let mut lines = headers.iter().filter(|(name, _)| name.as_str() == "x-forwarded-for");
    let (_, line) = lines.next()?;
    let address = node::plain_v4(line.as_bytes())?;
    lines.next().is_none().then_some(address)
}

/// The address in a header that has one value, unless the header is repeated: one of the two was
/// not written by the proxy.
fn single(headers: &HeaderMap, name: &HeaderName) -> iter::Once<Option<IpAddr>> {
    let mut values = headers.get_all(name).iter();
    iter::once(match (values.next(), values.next()) {
        (Some(value), None) => node::parse_bare(value.as_bytes().trim_ascii()),
        _ => None,
    })
}
