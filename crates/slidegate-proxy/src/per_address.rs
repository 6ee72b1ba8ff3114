//! A limit on the permits that one client address holds at the same time.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// Limits how many permits each address holds. Clones share the counts.
///
/// One IPv6 client usually has a whole /64 network, so that network counts as one address.
#[derive(Debug, Clone)]
pub(crate) struct PerAddressLimit {
    held: Arc<HeldPermits>,
    max: usize,
}

/// In shards by the address, so that workers seldom wait for each other.
#[derive(Debug, Default)]
struct HeldPermits {
    shards: [Mutex<HashMap<IpAddr, usize, RandomState>>; SHARDS],
    hasher: RandomState,
}

const SHARDS: usize = 32;

/// Counts towards its address until it is dropped.
#[derive(Debug)]
pub(crate) struct AddressPermit {
    limit: PerAddressLimit,
    network: IpAddr,
}

impl PerAddressLimit {
    pub(crate) fn new(max: usize) -> Self {
        Self { held: Arc::default(), max }
    }

    /// Returns `None` if the address holds the maximum.
    pub(crate) fn acquire(&self, address: IpAddr) -> Option<AddressPermit> {
        let network = network(address);
        let mut held = self.held.shard(network).lock();
        let count = held.entry(network).or_insert(0);
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(AddressPermit { limit: self.clone(), network })
    }
}

impl HeldPermits {
    fn shard(&self, network: IpAddr) -> &Mutex<HashMap<IpAddr, usize, RandomState>> {
        &self.shards[self.hasher.hash_one(network) as usize % SHARDS]
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut held = self.limit.held.shard(self.network).lock();
        if let Some(count) = held.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.network);
            }
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_network_has_its_own_count() {
        let limit = PerAddressLimit::new(2);
        let acquire = |text: &str| limit.acquire(text.parse().unwrap());
        let first = acquire("2001:db8::1");
        let second = acquire("2001:db8::2");
        assert!(first.is_some() && second.is_some());
        assert!(acquire("2001:db8::3").is_none(), "one /64 is one client");
        assert!(acquire("2001:db8:0:1::1").is_some() && acquire("192.0.2.1").is_some());
        drop(first);
        assert!(acquire("2001:db8::3").is_some());
        drop(second);
        assert!(limit.held.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
