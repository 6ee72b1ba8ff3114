//! The limits of requests in flight to upstream: of all clients, and of one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Bounds;
use crate::net::network;

/// Counts the requests in flight.
#[derive(Debug, Clone)]
pub(crate) struct InFlightLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    counts: Mutex<InFlightCounts>,
    most: usize,
    most_per_address: usize,
}

#[derive(Debug, Default)]
struct InFlightCounts {
    total: usize,
    addresses: HashMap<IpAddr, usize, foldhash::fast::RandomState>,
}

/// One request's place, free again when dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    limit: InFlightLimit,
    address: Option<IpAddr>,
}

impl InFlightLimit {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self(Arc::new(Shared {
            counts: Mutex::default(),
            most: bounds.in_flight,
            most_per_address: bounds.in_flight_per_address,
        }))
    }

    /// A place for a request of a client, or none if there are too many.
    pub(crate) fn begin(&self, client: Option<IpAddr>) -> Option<InFlightPermit> {
        let address = client.map(network);
        let mut counts = self.0.counts.lock();
        if counts.total >= self.0.most {
            return None;
        }
        if let Some(address) = address {
            let from_here = counts.addresses.entry(address).or_insert(0);
            if *from_here >= self.0.most_per_address {
                return None;
            }
            *from_here += 1;
        }
        counts.total += 1;
        Some(InFlightPermit { limit: self.clone(), address })
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let mut counts = self.limit.0.counts.lock();
        counts.total -= 1;
        if let Some(address) = self.address
            && let Some(from_here) = counts.addresses.get_mut(&address)
        {
            *from_here -= 1;
            if *from_here == 0 {
                counts.addresses.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let bounds = Bounds { in_flight: 3, in_flight_per_address: 2, ..Bounds::default() };
        let limit = InFlightLimit::new(&bounds);
        let from = |text: &str| limit.begin(Some(text.parse().unwrap()));
        let first = from("2001:db8::1");
        let second = from("2001:db8::2");
        assert!(first.is_some() && second.is_some());
        assert!(from("2001:db8::3").is_none(), "one network is one client");
        let third = limit.begin(None);
        assert!(third.is_some() && from("192.0.2.1").is_none(), "three in all");
        drop(first);
        assert!(from("2001:db8::3").is_some());
        drop((second, third));
        assert!(limit.0.counts.lock().addresses.is_empty());
    }
}
