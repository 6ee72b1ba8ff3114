//! Detectors of misconfiguration. Each warns once, with the remedy.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Extensions, HeaderMap, HeaderName, header};
use slidegate::{Decision, Name};

/// What a limiter has noticed about its configuration.
#[derive(Debug, Default)]
pub(crate) struct Detectors {
    /// Each is set when its warning has been logged.
    no_peer: OnceLock<()>,
    untrusted: OnceLock<()>,
    one_identity: OnceLock<()>,
    twice: OnceLock<()>,
    only_peer: OnlyPeer,
}

/// The headers that show that a request came through a proxy.
static FORWARDING: [HeaderName; 4] = [
    HeaderName::from_static("x-forwarded-for"),
    header::FORWARDED,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("cf-connecting-ip"),
];

impl Detectors {
    /// A request without a known peer.
    pub(crate) fn no_peer(&self) {
        self.no_peer.get_or_init(|| {
            tracing::warn!(
                "the peer's address is not known, so all such requests share one quota: with \
                 axum, enable the feature `axum` of slidegate-tower and serve the router with \
                 `into_make_service_with_connect_info::<SocketAddr>()`; with another server, \
                 insert the extension `slidegate_tower::Peer` into each request"
            );
        });
    }

    /// A request of an untrusted peer. Only a sample of them is examined.
    pub(crate) fn untrusted(&self, peer: IpAddr, headers: &HeaderMap) {
        if !UNTRUSTED.with(is_sampled)
            || (self.untrusted.get().is_some() && self.one_identity.get().is_some())
        {
            return;
        }
        let sent = FORWARDING.iter().find_map(|name| Some((name, headers.get(name)?)));
        let Some((name, value)) = sent else { return };
        self.untrusted.get_or_init(|| {
            tracing::warn!(
                %peer, header = %name,
                "a forwarding header came from a peer that is not trusted, and was ignored: if \
                 the peer is your proxy, add its network to gateway.trusted_proxies (in Rust, \
                 `RateLimitLayer::client_address`); if not, a client tries to pass for another"
            );
        });
        if is_internal(peer) && self.only_peer.has_several_clients(peer, value.as_bytes()) {
            self.one_identity.get_or_init(|| {
                tracing::warn!(
                    %peer, header = %name,
                    "every request comes from one internal address, on behalf of several clients, \
                     which all share one quota: the peer is a proxy, so add its network to \
                     gateway.trusted_proxies (in Rust, `RateLimitLayer::client_address`)"
                );
            });
        }
    }

    /// A decision about a request, which a limiter further in may have decided about too: a sample of
    /// them leave their policies in the extensions of the response.
    pub(crate) fn decided(&self, decision: &Decision, extensions: &mut Extensions) {
        if self.twice.get().is_some() {
            return;
        }
        // Names of one set of policies are one text in memory; equal names of two sets are not.
        let same = |(one, two): (&Name, &Name)| std::ptr::eq(one.as_ptr(), two.as_ptr());
        let inner = extensions.get::<CountedBy>().map_or(&[][..], |CountedBy(names)| names);
        let mut pairs = inner.iter().flat_map(|one| names(decision).map(move |two| (one, two)));
        if pairs.any(same) {
            self.twice.get_or_init(|| {
                tracing::warn!(
                    "one request was counted twice by the same policy: its layer is on the router \
                     and on the route, or was added twice; keep one of them, or give each a gate of \
                     its own"
                );
            });
        } else if DECIDED.with(is_sampled) {
            let names = inner.iter().chain(names(decision)).cloned().collect();
            extensions.insert(CountedBy(names));
        }
    }
}

fn names(decision: &Decision) -> impl Iterator<Item = &Name> {
    decision.policies().iter().map(|policy| &policy.policy)
}

/// The policies by which a limiter has counted a request.
#[derive(Debug, Clone)]
struct CountedBy(Box<[Name]>);

/// Each thread examines the first of its requests, so many, and then one in so many: looking for four
/// headers takes longer than finding the client's address. It is a prime, so that layers that take
/// turns all have theirs.
const SAMPLE: u32 = 61;

thread_local! {
    /// Requests of untrusted peers.
    static UNTRUSTED: Cell<u32> = const { Cell::new(0) };
    static DECIDED: Cell<u32> = const { Cell::new(0) };
}

fn is_sampled(counter: &Cell<u32>) -> bool {
    let seen = counter.get();
    counter.set(seen.wrapping_add(1));
    seen < SAMPLE || seen.is_multiple_of(SAMPLE)
}

/// Whether an address is one that no external client has.
fn is_internal(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

/// The first peer and a digest of the first client that were seen, and whether there was another
/// peer since.
#[derive(Debug, Default)]
struct OnlyPeer {
    hasher: RandomState,
    first: OnceLock<(IpAddr, u64)>,
    has_others: AtomicBool,
}

impl OnlyPeer {
    /// Whether this is the only peer so far and has sent requests for several clients.
    fn has_several_clients(&self, peer: IpAddr, client: &[u8]) -> bool {
        let client = self.hasher.hash_one(client);
        let (first_peer, first_client) = *self.first.get_or_init(|| (peer, client));
        if peer != first_peer {
            self.has_others.store(true, Ordering::Relaxed);
        }
        client != first_client && !self.has_others.load(Ordering::Relaxed)
    }
}
