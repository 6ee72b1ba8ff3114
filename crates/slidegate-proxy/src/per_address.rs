//! A limit on the permits that one client address holds at the same time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Limits how many permits each address holds. Clones share the counts.
///
/// One IPv6 client usually has a whole /64 network, so that network counts as one address.
#[derive(Debug, Clone)]
pub(crate) struct PerAddressLimit {
    held: Arc<Mutex<HashMap<IpAddr, usize, foldhash::fast::RandomState>>>,
    max: usize,
}

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
        let mut held = self.held.lock();
        let count = held.entry(network).or_insert(0);
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(AddressPermit { limit: self.clone(), network })
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut held = self.limit.held.lock();
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
        assert!(limit.held.lock().is_empty());
    }
}
