//! Detectors of misconfiguration. Each warns once, with the remedy.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, header};
use slidegate::{Decision, Name, PolicyStanding};

/// What a layer has noticed about how it is set up.
#[derive(Debug, Default)]
pub(crate) struct Detectors {
    no_peer: Once,
    untrusted: Once,
    one_identity: Once,
    twice: Once,
    shared: SharedPeer,
}

/// In the headers of a request that came through a proxy.
static FORWARDING: [HeaderName; 4] = [
    HeaderName::from_static("x-forwarded-for"),
    header::FORWARDED,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("cf-connecting-ip"),
];

impl Detectors {
    /// A request whose peer is not known.
    pub(crate) fn no_peer(&self) {
        if self.no_peer.is_first() {
            tracing::warn!(
                "the peer's address is not known, so all such requests share one quota: with \
                 axum, enable the feature `axum` of slidegate-tower and serve the router with \
                 `into_make_service_with_connect_info::<SocketAddr>()`; with another server, \
                 insert the extension `slidegate_tower::Peer` into each request"
            );
        }
    }

    /// A request of a peer that may not speak for clients. Not every one is looked at.
    pub(crate) fn untrusted(&self, peer: IpAddr, headers: &HeaderMap) {
        if !is_sampled() || (self.untrusted.is_over() && self.one_identity.is_over()) {
            return;
        }
        let sent = FORWARDING.iter().find_map(|name| Some((name, headers.get(name)?)));
        let Some((name, value)) = sent else { return };
        if self.untrusted.is_first() {
            tracing::warn!(
                %peer, header = %name,
                "a forwarding header came from a peer that is not trusted, and was ignored: if \
                 the peer is your proxy, name its network with `RateLimitLayer::client_address`; \
                 if not, a client tries to pass for another"
            );
        }
        if is_inside(peer)
            && self.shared.is_for_several(peer, value.as_bytes())
            && self.one_identity.is_first()
        {
            tracing::warn!(
                %peer, header = %name,
                "every request comes from one address inside, on behalf of several clients, who \
                 all share one quota: the peer is a proxy, so name its network with \
                 `RateLimitLayer::client_address`"
            );
        }
    }

    /// A response that two decisions were made about, further in and here.
    pub(crate) fn decided_twice(&self, inner: &Decision, outer: &Decision) {
        // Names of one set of policies are one text in memory; equal names of two sets are not.
        let same = |(one, two): (&Name, &Name)| std::ptr::eq(one.as_ptr(), two.as_ptr());
        let mut pairs = names(inner).flat_map(|one| names(outer).map(move |two| (one, two)));
        if !self.twice.is_over() && pairs.any(same) && self.twice.is_first() {
            tracing::warn!(
                "one request was counted twice by the same policy: its layer is on the router \
                 and on the route, or was added twice; keep one of them, or give each a gate of \
                 its own"
            );
        }
    }
}

fn names(decision: &Decision) -> impl Iterator<Item = &Name> {
    decision.policies().iter().map(PolicyStanding::policy)
}

thread_local! {
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

/// A thread looks at its first so many requests, and then at one in so many: looking for headers
/// takes longer than all else that is done to find the client.
const SAMPLE: u32 = 64;

fn is_sampled() -> bool {
    let seen = SEEN.get();
    SEEN.set(seen.wrapping_add(1));
    seen < SAMPLE || seen.is_multiple_of(SAMPLE)
}

/// Something that is done once.
#[derive(Debug, Default)]
struct Once(AtomicBool);

impl Once {
    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn is_first(&self) -> bool {
        !self.is_over() && !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Whether all requests come from one peer, and for whom. Only digests are kept.
#[derive(Debug, Default)]
struct SharedPeer {
    seed: RandomState,
    peer: AtomicU64,
    client: AtomicU64,
    several_peers: AtomicBool,
}

impl SharedPeer {
    /// Whether this peer has spoken for another client before, and nobody but this peer was seen.
    fn is_for_several(&self, peer: IpAddr, client: &[u8]) -> bool {
        if !self.is_same(&self.peer, self.seed.hash_one(peer)) {
            self.several_peers.store(true, Ordering::Relaxed);
        }
        let same_client = self.is_same(&self.client, self.seed.hash_one(client));
        !same_client && !self.several_peers.load(Ordering::Relaxed)
    }

    /// Whether the digest is the first that was seen. Zero is none.
    fn is_same(&self, first: &AtomicU64, digest: u64) -> bool {
        let digest = digest.max(1);
        let seen = first.compare_exchange(0, digest, Ordering::Relaxed, Ordering::Relaxed);
        seen.unwrap_or_else(|seen| seen) == digest || seen == Ok(0)
    }
}

/// Whether the address is one that no client from outside has.
fn is_inside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local(),
    }
}
